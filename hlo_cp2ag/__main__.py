"""`python -m hlo_cp2ag` is `cp2ag`."""

from hlo_cp2ag.cli.main import process

if __name__ == "__main__":
    process()

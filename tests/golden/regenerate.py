"""`python -m tests.golden.regenerate`: writes every golden file anew, and takes away those that no case needs."""

from __future__ import annotations

from .cases import CASES, GOLDEN


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    written = set()
    for case in CASES:
        outcome = case.run()
        case.stdout_path.write_bytes(outcome.stdout)
        written.add(case.stdout_path)
        if outcome.stderr:
            case.stderr_path.write_bytes(outcome.stderr.encode())
            written.add(case.stderr_path)
        if outcome.code != case.exit_code:
            print(f"{case.name}: exit code {outcome.code}, the table says {case.exit_code}")
    for path in GOLDEN.iterdir():
        if path.is_file() and path not in written:
            print(f"{path.name}: no case needs it any more; taken away")
            path.unlink()


if __name__ == "__main__":
    main()

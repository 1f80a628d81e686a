"""The command line: one group, each command in a file of its own, loaded when it is called."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from typing import NoReturn

import click

from hlo_cp2ag import __version__
from hlo_cp2ag.cli import console, files
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.text import side_process

_COMMANDS = {
    "rewrite": "hlo_cp2ag.cli.rewrite",
    "verify": "hlo_cp2ag.cli.verify",
    "run": "hlo_cp2ag.cli.run",
    "check": "hlo_cp2ag.cli.check",
    "ranks": "hlo_cp2ag.cli.ranks",
}

TROUBLE = 2
_INTERRUPTED = 130


class _ClosedPipeError(Exception):
    """Nobody reads our output any more. Click would make exit code 1 of a BrokenPipeError."""


class _LazyGroup(click.Group):
    """Imports a command's module only when the command is asked for."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ClosedPipeError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = _COMMANDS.get(cmd_name)
        return None if home is None else importlib.import_module(home).command


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  cp2ag rewrite model.hlo -o model.ag.hlo
  hlo-opt ... | cp2ag rewrite - --replica-count 4 | less

Exit codes: 0 yes, 1 no (--check would change something, --require-all left one, verify could not prove it,
ranks world-size refuses), 2 trouble.""",
)
@click.version_option(__version__, prog_name="cp2ag", message="%(prog)s %(version)s")
def cp2ag() -> None:
    """Rewrite collective-permute to all-gather in textual HLO."""


def main() -> None:
    """The console script: runs a command and turns every trouble into a message and an exit code."""
    # A short-lived process that builds many small objects and drops few: collecting cycles only costs time.
    gc.disable()
    try:
        code = cp2ag.main(prog_name="cp2ag", standalone_mode=False)
    except click.exceptions.Exit as request:
        code = request.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = _INTERRUPTED
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except HloError as error:
        console.error(error)
        code = TROUBLE
    except (_ClosedPipeError, BrokenPipeError):
        files.discard(sys.stdout)
        code = 0
    except RecursionError:
        console.say("cp2ag: error: the input nests too deeply for this program", severity="error")
        code = TROUBLE
    except MemoryError:
        console.say("cp2ag: error: out of memory", severity="error")
        code = TROUBLE
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        files.discard(sys.stdout)
    sys.exit(code if isinstance(code, int) else 0)


def process() -> NoReturn:
    """`main` as a process of its own: ends at once, for taking 40 MB of small objects apart costs as much as reading them."""
    side_process.allowed = True
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    else:
        code = 0
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    os._exit(code)

"""`cp2ag check`."""

from __future__ import annotations

import click

from hlo_cp2ag.cli import console, files
from hlo_cp2ag.cli.flags import flag
from hlo_cp2ag.ir.source import HloError, SourceText
from hlo_cp2ag.text.parser import parse_source

_TROUBLE = 2


@click.command(
    "check",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Examples:
  cp2ag check dumps/*.hlo
  hlo-opt ... | cp2ag check -
""",
)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@flag("--split-input-file", is_flag=True, help="Each FILE holds several modules, separated by // ----- lines.")
def command(paths: tuple[str, ...], split_input_file: bool) -> int:
    """Parse files in full and print what is wrong with them, or nothing.

    Every body is read and every name resolved; what XLA's parser refuses is refused. Exit code 2 if any file is.
    """
    code = 0
    for path in paths:
        try:
            text = files.decode(files.read_bytes(path), path)
            parts = files.split_modules(text) if split_input_file else [(text, 1)]
        except HloError as error:
            console.error(error)
            code = _TROUBLE
            continue
        for part, first_line in parts:
            if split_input_file and len(parts) > 1 and not part.removeprefix("// -----").strip():
                continue
            try:
                parse_source(SourceText(part, files.shown(path), first_line)).check()
            except HloError as error:
                console.error(error)
                code = _TROUBLE
    return code

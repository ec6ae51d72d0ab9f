"""The ``seqserve`` command: finds a command and runs it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from seqserve import __version__
from seqserve.command import process
from seqserve.command.table import COMMANDS, Command, overview

_PACKAGES = {command.module.partition(".")[0] for command in COMMANDS.values()}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command, by default from the arguments of the process, and returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return process.status_of(lambda: _dispatch(arguments))


def _dispatch(arguments: list[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name in ("-h", "--help", "help"):
        print(overview())
        return 0
    if name == "--version":
        print(f"seqserve {__version__}")
        return 0
    if name in COMMANDS:
        return _run(name, COMMANDS[name], rest)
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    return process.fail(
        2, f"there is no command {name!r}{guess}", "`seqserve --help` lists the commands."
    )


def _run(name: str, command: Command, arguments: list[str]) -> int:
    try:
        module = import_module(command.module)
        process.clean_up_first()
        status: int = module.main(arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _PACKAGES or not command.extra:
            raise
        hint = f"pip install 'seqserve[{command.extra}]'"
        return process.fail(
            1, f"`seqserve {name}` needs {missing!r}, which is not installed: {hint}"
        )
    return status

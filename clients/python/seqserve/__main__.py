"""The ``seqserve`` command: finds and runs a command, turns errors into exit statuses.

Exit status: 0 success, 1 an error of :mod:`seqserve.errors` or an output that cannot be written, 2
wrong usage, 130 an interrupt, 141 the reader of the output has gone away.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from seqserve import __version__
from seqserve.command import interrupt, stdio
from seqserve.command.advice import advice_on
from seqserve.command.table import COMMANDS, Command, overview
from seqserve.errors import OptionError, SeqserveError

_READER_GONE = 141
_OWN_PACKAGES = {
    "seqserve",
    "seqserve_server",
    "seqserve_model",
    "seqserve_export",
    "seqserve_import",
}


def run() -> NoReturn:
    """Runs a command and ends the process."""
    interrupt.prepare()
    status = main()
    if status in (interrupt.STATUS, _READER_GONE):
        # Calls may be under way. The end of the interpreter stops gRPC's threads where they are,
        # perhaps with the lock that a call needs when it is deleted.
        with suppress(OSError, stdio.OutputLost):
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command, by default that of the process, and returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    stdio.prepare()
    try:
        return _flushed(arguments)
    except stdio.OutputLost as error:
        stdio.discard_output()
        return _fail(1, str(error))
    except OptionError as error:
        return _fail(2, str(error))
    except SeqserveError as error:
        return _fail(1, f"{error}\n{advice_on(error)}".rstrip())
    except KeyboardInterrupt:
        return interrupt.STATUS
    except BrokenPipeError:
        stdio.discard_output()
        return _READER_GONE


def _flushed(arguments: list[str]) -> int:
    try:
        status = _dispatch(arguments)
    except SystemExit:
        # From argparse, which has printed the help.
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return status


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
    return _fail(2, f"there is no command {name!r}{guess}\n`seqserve --help` lists the commands.")


def _run(name: str, command: Command, arguments: list[str]) -> int:
    try:
        status: int = import_module(command.module).main(arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _OWN_PACKAGES or not command.extra:
            raise
        hint = f"in a clone of seqserve, pip install '.[{command.extra}]'"
        return _fail(1, f"`seqserve {name}` needs {missing!r}, which is not installed: {hint}")
    return status


def _fail(status: int, message: str) -> int:
    print(f"seqserve: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    run()

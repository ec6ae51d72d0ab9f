"""The ``seqserve`` command: finds and runs a command, turns errors into exit statuses.

Exit status: 0 success, 1 an error of :mod:`seqserve.errors` or an output that cannot be written, 2
wrong usage, 130 an interrupt, 141 the reader of the output has gone away.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from seqserve import __version__
from seqserve.command import interrupt, stdio
from seqserve.command.advice import advice_on
from seqserve.command.table import COMMANDS, Command, overview
from seqserve.errors import OptionError, SeqserveError

_OWN_PACKAGES = {
    "seqserve",
    "seqserve_server",
    "seqserve_model",
    "seqserve_export",
    "seqserve_import",
    "seqserve_playground",
    "seqserve_plot",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command, by default that of the process, and returns its exit status."""
    try:
        stdio.prepare()
        return _reported(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return interrupt.STATUS
    except Exception:
        # A clean-up that an interrupt begins too early may fail.
        if interrupt.has_come():
            return interrupt.STATUS
        raise


def _reported(arguments: list[str]) -> int:
    try:
        return _flushed(arguments)
    except stdio.OutputLost as error:
        stdio.discard_output()
        return _fail(1, *_told(error))
    except OptionError as error:
        return _fail(2, *_told(error))
    except SeqserveError as error:
        return _fail(1, *_told(error), advice_on(error))
    except BrokenPipeError:
        stdio.discard_output()
        return interrupt.READER_GONE


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
        module = import_module(command.module)
        interrupt.clean_up_first()
        status: int = module.main(arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _OWN_PACKAGES or not command.extra:
            raise
        hint = f"in a clone of seqserve, pip install '.[{command.extra}]'"
        return _fail(1, f"`seqserve {name}` needs {missing!r}, which is not installed: {hint}")
    return status


def _told(error: SeqserveError) -> list[str]:
    return [str(error), *getattr(error, "__notes__", [])]


def _fail(status: int, *lines: str | None) -> int:
    if interrupt.has_come():
        # That is why it failed.
        return interrupt.STATUS
    message = "\n".join(filter(None, lines))
    print(f"seqserve: {message}", file=sys.stderr)
    return status

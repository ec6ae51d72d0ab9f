"""``seqserve token``: makes a token for a caller, and the line by which a server knows it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve.token_entry import Scope, TokenEntry, digest_of, new_token

_EPILOG = """\
The token goes to standard output and is shown only now. The line for the server's file goes to
standard error, or right into the file: the server reads it again by itself. To replace a token, add
a line for a new one, hand that out, then delete the old line.

examples:
  seqserve token --name web
  umask 077; seqserve token --name web --tokens tokens > web.token
  seqserve token --name operator --scope generate --scope admin"""

_NOTE = "# For the file of `seqserve serve --tokens`; the token itself is shown only now."


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """The options of ``seqserve token``."""

    name: str = option("", help="Whose it is; the server's log names it with every call.")
    scope: list[Scope] = option(
        [Scope.GENERATE],
        help="What it may do: generate calls models, admin changes what is served. Only"
        " generate where not given.",
    )
    tokens: Path | None = option(
        None, help="File of the server's tokens to add the line to; made where there is none."
    )


def main(argv: list[str]) -> int:
    """Makes a token.

    Args:
        argv: Arguments after the command's name.

    Returns:
        The exit status.

    Raises:
        OptionError: The name is malformed, or the file cannot be written.
    """
    options = parse(
        TokenOptions,
        argv,
        prog="seqserve token",
        description="Makes a token for a caller, and the line by which a server knows it.",
        epilog=_EPILOG,
    )
    token = new_token()
    scopes = frozenset(options.scope)
    entry = TokenEntry(digest=digest_of(token), scopes=scopes, name=options.name)
    if options.tokens is None:
        print(token, flush=True)
        print(f"{_NOTE}\n{entry}", file=sys.stderr)
    else:
        _add(entry, options.tokens)
        print(token)
    return 0


def _add(entry: TokenEntry, path: Path) -> None:
    try:
        with open(path, "a+b", opener=_private) as file:
            file.seek(0)
            # In one write, so that a server that reads meanwhile sees all of it or nothing.
            ends = file.read()[-1:] in (b"", b"\n")
            file.write(f"{'' if ends else chr(10)}{entry}\n".encode())
    except OSError as error:
        raise OptionError(f"--tokens: {path} cannot be written: {error.strerror}") from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""``seqserve token``: makes a token for a client, and the line that a server needs to accept it."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from seqserve.auth import Quota, Scope, TokenEntry, digest_of, new_token
from seqserve.errors import OptionError
from seqserve.options import option, parse

_ABOUT = """\
Makes a token for a client, and the line by which a server accepts it.

Prints the token on standard output; it is stored nowhere. Prints the line for the server's file on
standard error, or adds it to the file, which the server reloads by itself. To replace a token, add
a line for a new token, distribute the new token, then delete the old line.

examples:
  seqserve token --name web
  umask 077; seqserve token --name web --tokens tokens > web.token
  seqserve token --name shop --quota characters/month=1000000 --quota requests/day=5000
  seqserve token --name operator --scope generate --scope admin"""

_NOTE = "# For the file of `seqserve serve --tokens`; the token itself is shown only now."


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """The options of ``seqserve token``."""

    name: str = option("", help="Name of its owner, which the server logs with every call.")
    scope: list[Scope] = option(
        [Scope.GENERATE],
        help="Scope of the token: generate to call models, admin to change the served models. By"
        " default generate.",
    )
    quota: list[str] = option(
        [],
        help="What calls with this name may use in a day or month of UTC, such as"
        " characters/month=1000000; also requests and tokens. By default unlimited.",
        metavar="KIND/PERIOD=NUMBER",
    )
    tokens: Path | None = option(
        None, help="File of the server's tokens to add the line to; created if missing."
    )


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(TokenOptions, argv, prog="seqserve token", description=_ABOUT)
    token = new_token()
    scopes = frozenset(options.scope)
    quotas = tuple(map(Quota.parse, options.quota))
    entry = TokenEntry(digest=digest_of(token), scopes=scopes, name=options.name, quotas=quotas)
    if options.tokens is None:
        print(token, flush=True)
        print(f"{_NOTE}\n{entry}", file=sys.stderr)
    else:
        _add(entry, options.tokens)
        print(token)
    return 0


def _add(entry: TokenEntry, path: Path) -> None:
    try:
        with open(path, "a+b", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.seek(0)
            # In one write, so that a server that reloads meanwhile reads the whole line or nothing.
            ends = file.read()[-1:] in (b"", b"\n")
            file.write(f"{'' if ends else chr(10)}{entry}\n".encode())
    except OSError as error:
        raise OptionError(f"--tokens: {path} cannot be written: {error.strerror}") from None

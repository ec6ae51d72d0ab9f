"""Advice for users of the command, which an error of the client cannot give."""

from __future__ import annotations

from seqserve.errors import SeqserveError, Unauthenticated, Unavailable

_NO_SERVER = (
    "Is a server running there? `seqserve serve` starts one, --target names another; a server with"
    " TLS needs --tls."
)
# gRPC's message for a certificate that it does not trust.
_NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
_AUTHORITY = (
    "The server's certificate is signed by an unknown authority: --tls-ca names the file of one."
)
_TOKEN = "--token-file or SEQSERVE_TOKEN gives the token; `seqserve token` makes one."


def advice_on(error: SeqserveError) -> str:
    """Returns a line of advice; empty if the error needs none."""
    if isinstance(error, Unavailable):
        return _AUTHORITY if _NOT_TRUSTED in error.details else _NO_SERVER
    return _TOKEN if isinstance(error, Unauthenticated) else ""

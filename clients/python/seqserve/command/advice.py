"""What a user of the command can do about an error, where the error cannot know."""

from __future__ import annotations

from seqserve.errors import SeqserveError, Unauthenticated, Unavailable

_NO_SERVER = (
    "Is a server running there? `seqserve serve` starts one, --target names another; one that"
    " speaks TLS wants --tls."
)
# What gRPC says of a certificate.
_NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
_AUTHORITY = (
    "The server's certificate is signed by an authority that is not known here: --tls-ca names the"
    " file of one."
)
_TOKEN = "--token-file or SEQSERVE_TOKEN gives the token; `seqserve token` makes one."


def advice_on(error: SeqserveError) -> str:
    """Gives a line of advice; empty where the error says enough."""
    if isinstance(error, Unavailable):
        return _AUTHORITY if _NOT_TRUSTED in error.details else _NO_SERVER
    return _TOKEN if isinstance(error, Unauthenticated) else ""

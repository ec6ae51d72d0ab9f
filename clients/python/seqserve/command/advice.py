"""Turns an error or a source into advice for the user of a command, or into the end of a run."""

import os

from seqserve import errors

_NO_SERVER = "Is a server running there? `seqserve serve` starts one, --target names another."
# Words of gRPC's messages, the first that fits; the certificate's faults before their class.
_NO_CONNECTION = {
    "certificate has expired": (
        "The server's certificate has expired: the server needs a new one, or the clock of this"
        " machine is wrong."
    ),
    "certificate is not yet valid": (
        "The server's certificate is not valid yet: is the clock of this machine right?"
    ),
    "CERTIFICATE_VERIFY_FAILED": (
        "The server's certificate is signed by an unknown authority: --tls-ca names the file of"
        " one."
    ),
    "Hostname Verification": (
        "The server's certificate is for another name than the host of --target: --tls-server-name"
        " gives the name in it."
    ),
    "WRONG_VERSION_NUMBER": "The server does not use TLS: leave out the options --tls...",
    "Socket closed": (
        "The server ended the connection: one with TLS needs --tls, one with mutual TLS"
        " --tls-client-certificate too."
    ),
    "SETTINGS": "That is not a gRPC server: is the port of --target right?",
    "no address of": "Is the host of --target right?",
}
_STATE = (
    "The server answers, but not yet this call: `seqserve models` shows the state of its models."
)
_BROKEN = "The connection broke; the server may have ended."
_BUSY = "The server is busy: a longer --timeout-s waits longer for it."
_LATE = "--timeout-s gives a call more time; `seqserve models` shows how busy the server is."
_TOKEN = "--token-file or SEQSERVE_TOKEN gives the token; `seqserve token` makes one."
_UNDIVIDED = (
    "has several sentences, which --segmentation none sends as one; a model of sentences may leave"
    " some out: --segmentation sentences translates all"
)
# A word of three letters or more, for abbreviations are shorter, or of Korean; after its end a
# sentence that begins with a capital letter, a digit or a letter of a script without them.
_SENTENCES = (
    r"(?:[^\W\d_]{3}|[가-힣])[.!?…]+[\"'”’»)\]]*\s+[\"'“„‘«(\[¿¡]*"
    r"(?=\w)[^a-zà-öø-ÿа-я]|[。！？]\s*\w"
)

_FATAL = (errors.Unavailable, errors.NotFound, errors.Unauthenticated, errors.PermissionDenied)


def advice_on(error: errors.SeqserveError) -> str:
    """Returns a line of advice; empty if the error needs none."""
    if isinstance(error, errors.Unreachable):
        known = (advice for words, advice in _NO_CONNECTION.items() if words in error.details)
        return next(known, _NO_SERVER)
    if isinstance(error, errors.Unavailable):
        return _STATE if error.request_id else _BROKEN
    if isinstance(error, errors.Overloaded):
        return _BUSY
    if isinstance(error, errors.DeadlineExceeded):
        return _LATE
    return _TOKEN if isinstance(error, errors.Unauthenticated) else ""


def advice_on_text(text: str, segmentation: str | None, *, is_argument: bool = False) -> str:
    """Returns what may be wrong with a text, of the command line or of a file; empty if nothing."""
    import re  # not before interrupts are handled

    if is_argument and os.path.isfile(text):
        return "is the name of a file, but is sent as a text: --file answers the lines of a file"
    return _UNDIVIDED if segmentation == "none" and re.search(_SENTENCES, text) else ""


def raise_if_fatal(error: errors.CallError) -> None:
    """Raises an error that concerns every source: no such model, a wrong option, no permission."""
    is_option = isinstance(error, errors.InvalidArgument) and error.field not in ("", "source")
    if is_option or isinstance(error, _FATAL):
        raise error

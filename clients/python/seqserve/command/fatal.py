"""Errors of one source that would be those of every other one."""

from __future__ import annotations

from seqserve import errors

_FATAL = (
    errors.Unavailable,
    errors.NotFound,
    errors.Unauthenticated,
    errors.PermissionDenied,
)


def raise_if_fatal(error: errors.CallError) -> None:
    """Raises an error that concerns every source: no such model, a wrong option, no permission."""
    is_option = isinstance(error, errors.InvalidArgument) and error.field not in ("", "source")
    if is_option or isinstance(error, _FATAL):
        raise error

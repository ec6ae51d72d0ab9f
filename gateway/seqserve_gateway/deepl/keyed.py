"""The fields of a request; the key, in its header or among them, is the caller's token."""

from __future__ import annotations

from starlette.requests import Request

from seqserve_gateway.call import Call
from seqserve_gateway.translation.fields import Fields, fields_of

_SCHEME = "deepl-auth-key"


def keyed_fields_of(call: Call) -> Fields:
    """Reads the fields, and sets the token of the call.

    Raises:
        Failure: The body is not what its Content-Type says.
    """
    fields = fields_of(call)
    if key := _key_of(call.request) or fields.text("auth_key", ""):
        # The end by which its clients know the address of the free service.
        call.token = key.removesuffix(":fx")
    return fields


def _key_of(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == _SCHEME else ""

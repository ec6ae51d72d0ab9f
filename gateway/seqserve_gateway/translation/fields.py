"""The fields of a request, wherever its client puts them: JSON, a form, multipart, or the query.

Sources: WHATWG URL Standard, section 5.1, application/x-www-form-urlencoded; RFC 7578,
multipart/form-data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qs

from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure

_MOST_FIELDS = 1000
_TRUE = {"1", "true", "yes", "on"}


@dataclass(frozen=True, slots=True)
class File:
    """A file that a client sends."""

    name: str
    content: bytes


class Fields:
    """Texts, numbers and files by the names of their fields."""

    def __init__(self, values: Mapping[str, Any], files: Mapping[str, File] | None = None) -> None:
        """Takes what JSON can hold; a field that is repeated has a list."""
        self._values, self._files = values, files or {}

    def has(self, name: str) -> bool:
        """Tells whether there is a field of this name."""
        return self._values.get(name) is not None

    def has_list(self, name: str) -> bool:
        """Tells whether a field is an array, or was sent more than once."""
        return isinstance(self._values.get(name), list)

    def text(self, name: str, default: str | None = None) -> str:
        """Returns the text of a field.

        Raises:
            Failure: It is missing and has no default, or is not a text.
        """
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise refusal(name, "is missing" if value is None else "must be a text")
        return value

    def texts(self, name: str) -> list[str]:
        """Returns the texts of a field that may be one text or several.

        Raises:
            Failure: It is missing, or has something else.
        """
        if not self.has_list(name):
            return [self.text(name)]
        values = self._values[name]
        if not all(isinstance(value, str) for value in values):
            raise refusal(name, "must be a text or an array of texts")
        return list(values)

    def flag(self, name: str) -> bool:
        """Returns whether a field is true, or the word for it."""
        return str(self._values.get(name, "")).lower() in _TRUE

    def number(self, name: str, limit: int) -> int:
        """Returns a whole number from 0 to a limit; 0 where the field is missing.

        Raises:
            Failure: It is none, or too large.
        """
        text = str(self._values.get(name) or 0)
        if not (text.isascii() and text.isdecimal() and int(text) <= limit):
            raise refusal(name, f"must be a whole number from 0 to {limit}")
        return int(text)

    def file(self, name: str) -> File:
        """Returns a file.

        Raises:
            Failure: There is none of this name.
        """
        if name not in self._files:
            raise refusal(name, "is missing; send it as multipart/form-data")
        return self._files[name]


def fields_of(call: Call) -> Fields:
    """Reads the fields of the body, and those of the query beside them.

    Raises:
        Failure: The body is not what its Content-Type says.
    """
    content_type = call.request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    query = _of_form(call.request.url.query)
    if not call.body:
        return Fields(query)
    if kind == "application/json":
        return Fields(query | _of_json(call.body))
    if kind == "multipart/form-data":
        values, files = _of_multipart(call.body, content_type)
        return Fields(query | values, files)
    return Fields(query | _of_form(_decoded(call.body)))


def refusal(name: str, reason: str) -> Failure:
    """Returns the failure of a wrong field."""
    return Failure("INVALID_ARGUMENT", f"{name}: {reason}", field=name)


def _of_json(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise Failure("INVALID_ARGUMENT", "the body is not JSON") from None
    if not isinstance(values, dict):
        raise Failure("INVALID_ARGUMENT", "the body is not a JSON object")
    return values


def _of_form(text: str) -> dict[str, Any]:
    try:
        values = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        reason = f"there are more than {_MOST_FIELDS:,} fields"
        raise Failure("INVALID_ARGUMENT", reason) from None
    return {name.removesuffix("[]"): _alone(each) for name, each in values.items()}


def _of_multipart(body: bytes, content_type: str) -> tuple[dict[str, Any], dict[str, File]]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if message.defects or not message.is_multipart():
        raise Failure("INVALID_ARGUMENT", "the body is not multipart/form-data")
    values: dict[str, list[str]] = {}
    files: dict[str, File] = {}
    for part in message.iter_parts():
        name = str(part.get_param("name", "", header="content-disposition"))
        content = part.get_payload(decode=True) or b""
        assert isinstance(content, bytes)
        if (file_name := part.get_filename()) is None:
            values.setdefault(name.removesuffix("[]"), []).append(_decoded(content))
        else:
            files[name] = File(file_name, content)
    return {name: _alone(each) for name, each in values.items()}, files


def _alone(values: Sequence[str]) -> Any:
    return values[0] if len(values) == 1 else list(values)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Failure("INVALID_ARGUMENT", "the body is not UTF-8") from None

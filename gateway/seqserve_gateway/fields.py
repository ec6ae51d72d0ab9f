"""The fields of a request, whether they come as JSON, a form, multipart, or in the query; objects
of JSON, read strictly.

Sources: WHATWG URL Standard, section 5.1, application/x-www-form-urlencoded; RFC 7578,
multipart/form-data.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from io import StringIO
from itertools import chain
from typing import Any, NoReturn
from urllib.parse import parse_qs

from seqserve.language_codes import folded
from seqserve.option_values import nearest
from seqserve.words import entries_of
from seqserve_gateway.call import JSON, Call
from seqserve_gateway.failure import Failure, refusal, writable

_MOST_FIELDS = 1000
_MOST_HEAD = 4096
_MOST_PARAMETERS = 16
# Python refuses to read numbers of more than 4,300 digits; no field has more than 20.
_MOST_DIGITS = 100
_MOST_SHOWN = 200
_FEW = 8
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_TRUE = {"1", "true", "yes", "on"}


@dataclass(frozen=True, slots=True)
class File:
    """A file that a client sends."""

    name: str
    content: bytes


class Fields:
    """Texts, numbers and files by the names of their fields."""

    def __init__(self, values: Mapping[str, Any], files: Mapping[str, File] | None = None) -> None:
        """Stores values of JSON; a repeated field has a list."""
        self._values, self._files = values, files or {}

    def has(self, name: str) -> bool:
        """Returns whether the field has a value."""
        return self._values.get(name) not in (None, "", [])

    def has_list(self, name: str) -> bool:
        """Returns whether the field is an array, or was sent more than once."""
        return isinstance(self._values.get(name), list)

    def text(self, name: str, default: str | None = None) -> str:
        """Returns the text of a field."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise refusal(name, "is missing" if value is None else "must be a text")
        return _whole(name, value)

    def code(self, name: str) -> str:
        """Returns the code of a language; for an empty one the server would choose a language."""
        if not (code := self.text(name)):
            raise refusal(name, "is empty")
        return code

    def word(self, name: str, default: str, words: Collection[str]) -> str:
        """Returns one of some words; JSON may have a number, true or false for 1 and 0."""
        value = self._values.get(name)
        word = str(int(value)) if isinstance(value, int) else self.text(name, "") or default
        if word not in words:
            raise refusal(name, f"must be one of {', '.join(words)}")
        return word

    def texts(self, name: str) -> list[str]:
        """Returns the texts of a field that may be one text or several."""
        if not self.has_list(name):
            return [self.text(name)]
        values = self._values[name]
        if not all(isinstance(value, str) for value in values):
            raise refusal(name, "must be a text or an array of texts")
        return [_whole(name, value) for value in values]

    def objects(self, name: str) -> list[Fields]:
        """Returns the fields of each object of an array; a form has them as ``name[0].field``."""
        members: dict[str, dict[str, Any]] = {}
        for key, value in self._values.items():
            begin, is_member, member = key.partition("].")
            if is_member and begin.startswith(f"{name}["):
                members.setdefault(begin, {})[member] = value
        values = self._values.get(name, [*members.values()])
        if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
            raise refusal(name, "must be an array of objects")
        if not values:
            raise refusal(name, "is missing")
        return [Fields(each) for each in values]

    def languages(self) -> tuple[str, str]:
        """Returns the codes of both languages of a glossary, which have no regions."""
        names = ("source_lang", "target_lang")
        source, target = (folded(self.code(name)).name for name in names)
        if not re.fullmatch("[a-z]{2,8}-[a-z]{2,8}", f"{source}-{target}"):
            raise refusal(names[0], f"is no code of a language, or {names[1]} is none")
        return source, target

    def entries(self) -> dict[str, str]:
        """Returns the entries of a glossary, which are TSV or CSV."""
        # A file of the server may begin with this mark, so no term does.
        text = self.text("entries").removeprefix("\ufeff")
        rows: Iterable[list[str]] = (line.split("\t") for line in text.split("\n"))
        if self.word("entries_format", "tsv", ("tsv", "csv")) == "csv":
            # There may be columns with the languages.
            rows = (row[:2] for row in csv.reader(StringIO(text, newline="")))
        try:
            entries = entries_of(rows)
        except (ValueError, csv.Error) as error:
            raise refusal("entries", str(error)) from None
        if wrong := next(filter(_CONTROL.search, chain(*entries.items())), ""):
            raise refusal("entries", f"{wrong!r:.80} has a control character")
        return entries

    def flag(self, name: str) -> bool:
        """Returns whether a field is true, or the word for it."""
        return str(self._values.get(name, "")).lower() in _TRUE

    def number(self, name: str, limit: int) -> int:
        """Returns a whole number from 0 to a limit; 0 where the field is missing."""
        text = str(self._values.get(name) or 0)
        digits = text.lstrip("0") if text.isascii() and text.isdecimal() else str(limit + 1)
        # Longer ones are too large, and Python does not read thousands of digits.
        if len(digits) > len(str(limit)) or int(digits or 0) > limit:
            raise refusal(name, f"must be a whole number from 0 to {limit}")
        return int(digits or 0)

    def file(self, name: str) -> File:
        """Returns a file."""
        if name not in self._files:
            raise refusal(name, "is missing; send it as multipart/form-data")
        return self._files[name]


def fields_of(call: Call) -> Fields:
    """Reads the fields of the body, then of the query."""
    query = _of_form(call.request.url.query)
    if not call.body:
        return Fields(query)
    if call.media_type == JSON:
        # Repeated members, and those without a use, do no harm here.
        return Fields(query | object_of(lambda parse_int, **_: call.json(parse_int=parse_int)))
    if call.media_type == "multipart/form-data":
        values, files = _of_multipart(call.body, call.request.headers["content-type"])
        return Fields(query | values, files)
    if call.body.startswith(b"{"):
        # As curl sends it without that header.
        reason = "the body looks like JSON; send it with Content-Type: application/json"
        raise Failure("INVALID_ARGUMENT", reason)
    return Fields(query | _of_form(_decoded(call.body)))


def object_of(load: Callable[..., Any]) -> dict[str, Any]:
    """Reads an object of JSON, strictly; ``load`` takes the hooks of :func:`json.loads`."""
    try:
        facts = load(object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer)
    except RecursionError:
        raise invalid("the body is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise invalid(f"the body is not JSON: {error}") from None
    except (ValueError, UnicodeError):
        raise invalid("the body is not JSON") from None
    if not isinstance(facts, dict):
        raise invalid("the body is not a JSON object")
    return facts


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise invalid("is given twice", twice)
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _integer(digits: str) -> int | float:
    # A number that fits no field is infinite, as 1e999 is.
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def known(name: str, names: list[str]) -> str:
    """Returns the end of a sentence about an unknown name: what there is."""
    if near := nearest(name, names, least=2):
        return f"; did you mean {near}?"
    return (
        f"; the fields are {', '.join(names)}" if len(names) <= _FEW else "; /docs lists all fields"
    )


def invalid(reason: str, field: str = "") -> Failure:
    """Returns the failure of a body, or of a field whose name the caller made up."""
    field, reason = field[:_MOST_SHOWN], reason[:_MOST_SHOWN]
    details = f"{field}: {reason}" if field else reason
    return Failure("INVALID_ARGUMENT", details, field=field)


def _whole(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        # Only JSON can write it.
        raise refusal(name, "has half of a surrogate pair") from None
    return text


def _too_many() -> Failure:
    return Failure("INVALID_ARGUMENT", f"there are more than {_MOST_FIELDS:,} fields")


def _of_form(text: str) -> dict[str, Any]:
    try:
        # By default a byte that is not UTF-8 would become U+FFFD.
        values = parse_qs(
            text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
        )
    except UnicodeDecodeError:
        raise Failure("INVALID_ARGUMENT", "the fields are not UTF-8") from None
    except ValueError:
        raise _too_many() from None
    return {name.removesuffix("[]"): _alone(each) for name, each in values.items()}


def _of_multipart(body: bytes, content_type: str) -> tuple[dict[str, Any], dict[str, File]]:
    boundary = _head(f"Content-Type: {content_type}").get_boundary("")
    # The first section is before the first boundary, the last one after the last.
    sections = (b"\r\n" + body).split(f"\r\n--{boundary}".encode(), _MOST_FIELDS + 2)
    if len(sections) > _MOST_FIELDS + 2:
        raise _too_many()
    if not boundary or len(sections) < 3 or not sections[-1].startswith(b"--"):
        raise Failure("INVALID_ARGUMENT", "the body is not multipart/form-data")
    values: dict[str, list[str]] = {}
    files: dict[str, File] = {}
    for section in sections[1:-1]:
        headers, _, content = section.partition(b"\r\n\r\n")
        head = _head(headers.decode(errors="replace").lstrip())
        name = str(head.get_param("name", "", header="content-disposition"))
        if (file_name := head.get_filename()) is None:
            values.setdefault(name.removesuffix("[]"), []).append(_decoded(content))
        else:
            files[name] = File(writable(file_name), content)
    return {name: _alone(each) for name, each in values.items()}, files


def _head(text: str) -> Message:
    # Reading very long headers would take quadratic time.
    if len(text) > _MOST_HEAD or text.count(";") > _MOST_PARAMETERS:
        raise Failure("INVALID_ARGUMENT", "the headers of a part are too long")
    return Parser().parsestr(text, headersonly=True)


def _alone(values: Sequence[str]) -> Any:
    return values[0] if len(values) == 1 else list(values)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Failure("INVALID_ARGUMENT", "the body is not UTF-8") from None

"""JSON to messages of ``seqserve.v1`` and back, strictly.

Fields are written with the names of the protos (``num_hypotheses``); ``numHypotheses`` is accepted
too. An unknown or repeated field is an error that names it. NaN and the infinities are
texts.
Source: the JSON mapping of proto3, https://protobuf.dev/programming-guides/json/.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from seqserve.option_values import nearest
from seqserve_gateway.failure import Failure, writable

M = TypeVar("M", bound=Message)

_WRONG = re.compile(r"Failed to parse (\S+) field: (.+)", re.DOTALL)
_PLACE = re.compile(r" at \w+\.([\w.\[\]]+)$")
# Python refuses to read numbers of more than 4,300 digits; no field has more than 20.
_MOST_DIGITS = 100
_MOST_SHOWN = 200
_FEW = 8
_SCALARS: dict[int, tuple[Any, str]] = {
    FieldDescriptor.CPPTYPE_STRING: (str, "a text"),
    FieldDescriptor.CPPTYPE_BOOL: (bool, "true or false"),
}
"""JSON types of each kind of field, and their name in errors."""
_NUMBER: tuple[Any, str] = (str | float | int, "a number")
"""All other kinds; a text that is a number is one."""
_NO_INTEGER = "invalid literal for int() with base 10: "
"""Python's own words, which protobuf passes on."""


def message_of(load: Callable[..., Any], message: M) -> M:
    """Fills a message from JSON; ``load`` reads it with the hooks of :func:`json.loads`."""
    facts = object_of(load)
    try:
        _check_objects(facts, message.DESCRIPTOR)
        return json_format.ParseDict(facts, message)
    except json_format.ParseError as error:
        raise _misfit(str(error)) from None
    except RecursionError:
        raise _invalid("the body is nested too deeply") from None


def facts_of(message: Message) -> dict[str, Any]:
    """Converts a message to what JSON can hold; fields that have their default are left out."""
    facts: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return facts


def text_of(message: Message) -> str:
    """Writes a message as JSON in one line."""
    return compact(facts_of(message))


def compact(facts: Mapping[str, Any]) -> str:
    """Writes JSON in one line without spaces, for answers and events."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))


def object_of(load: Callable[..., Any]) -> dict[str, Any]:
    """Reads an object of JSON, strictly; ``load`` as of :func:`message_of`."""
    try:
        facts = load(object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer)
    except RecursionError:
        raise _invalid("the body is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _invalid(f"the body is not JSON: {error}") from None
    except (ValueError, UnicodeError):
        raise _invalid("the body is not JSON") from None
    if not isinstance(facts, dict):
        raise _invalid("the body is not a JSON object")
    return facts


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise _invalid("is given twice", twice)
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _integer(digits: str) -> int | float:
    # A number that fits no field is infinite, as 1e999 is.
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _check_objects(facts: Mapping[str, Any], kind: Any, path: str = "") -> None:
    # protobuf's errors about unknown fields lack their path, and it takes an empty list for an
    # object. Most other values are left to it.
    fields = kind.fields_by_name
    for name, value in facts.items():
        # protobuf fails to look this name up.
        _check_scalar(name, f"{path}{name}")
        field = fields.get(name) or kind.fields_by_camelcase_name.get(name)
        if field is None:
            reason = f"unknown field{known(name, list(fields))}"
            raise _invalid(reason, f"{path}{name or repr(name)}")
        if value is None:
            continue
        if field.message_type is None:
            _check_values(value, field, f"{path}{name}")
            continue
        # A message on its own has presence, a list of them has none.
        if not isinstance(value, dict if field.has_presence else list):
            kinds = "an object" if field.has_presence else "a list of objects"
            raise _invalid(f"is not {kinds}", f"{path}{name}")
        if isinstance(value, dict):
            _check_objects(value, field.message_type, f"{path}{name}.")
            continue
        for number, member in enumerate(value):
            place = f"{path}{name}[{number}]"
            if not isinstance(member, dict):
                raise _invalid("is not an object", place)
            _check_objects(member, field.message_type, f"{place}.")


def _check_values(value: object, field: Any, path: str) -> None:
    # Errors name the types of JSON, not of Python.
    if not isinstance(field.default_value, list):
        values = {path: value}
    elif isinstance(value, list):
        values = {f"{path}[{number}]": member for number, member in enumerate(value)}
    else:
        raise _invalid("is not a list", path)
    types, kind = _SCALARS.get(field.cpp_type, _NUMBER)
    for place, each in values.items():
        # Python takes True for a number.
        if not isinstance(each, types) or (isinstance(each, bool) and types is not bool):
            raise _invalid(f"is not {kind}", place)
        _check_scalar(each, place)


def known(name: str, names: list[str]) -> str:
    """Returns the end of a sentence about an unknown name: what there is."""
    if near := nearest(name, names, least=2):
        return f"; did you mean {near}?"
    return (
        f"; the fields are {', '.join(names)}" if len(names) <= _FEW else "; /docs lists all fields"
    )


def _check_scalar(value: object, path: str) -> None:
    # protobuf fails at these without a ParseError.
    if isinstance(value, str) and writable(value) != value:
        raise _invalid("has half of a surrogate pair", path)
    if isinstance(value, float) and math.isinf(value):
        raise _invalid("is too large a number", path)


def _misfit(reason: str) -> Failure:
    names = []
    while wrong := _WRONG.match(reason):
        names.append(wrong[1])
        reason = wrong[2].removesuffix(".")
    field = ".".join(names)
    if place := _PLACE.search(reason):
        # Some errors have all names in front, some all at the end.
        field, reason = max(field, place[1], key=len), reason[: place.start()]
    if reason.startswith(_NO_INTEGER):
        reason = f"{reason.removeprefix(_NO_INTEGER)} is not an integer"
    return _invalid(reason, field)


def _invalid(reason: str, field: str = "") -> Failure:
    field, reason = field[:_MOST_SHOWN], reason[:_MOST_SHOWN]
    details = f"{field}: {reason}" if field else reason
    return Failure("INVALID_ARGUMENT", details, field=field)

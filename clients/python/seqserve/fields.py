"""Sets fields of messages to a caller's values, with errors that name the field.

The client checks only types; the server checks values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from enum import Enum
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from seqserve.errors import invalid_argument

M = TypeVar("M", bound=Message)

_KINDS = {
    FieldDescriptor.CPPTYPE_STRING: "a text",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_INT32: "a whole number that fits 32 bits",
    FieldDescriptor.CPPTYPE_UINT32: "a whole number that fits 32 bits",
    FieldDescriptor.CPPTYPE_UINT64: "a whole number that fits 64 bits",
    FieldDescriptor.CPPTYPE_ENUM: "a member of its enum",
}
_KINDS_OF_LISTS = {
    "TokenSequence": "a list of lists of texts",
    "Term": "a mapping from texts to texts",
    "WeightsEntry": "a mapping from versions to weights",
}


def set_fields(message: M, **values: Any) -> M:
    """Sets fields and returns the message; None leaves a field unset.

    Raises:
        InvalidArgument: A value does not fit its field.
        TypeError: There is no such field.
    """
    for name, value in values.items():
        if name not in message.DESCRIPTOR.fields_by_name:
            raise TypeError(f"there is no option {name!r}")
        if value is not None:
            set_field(message, name, value)
    return message


def set_field(message: M, name: str, value: Any) -> M:
    """Sets a field, which may be a list or a map, and returns the message.

    Raises:
        InvalidArgument: The value does not fit the field.
    """
    holder = getattr(message, name)
    try:
        if isinstance(value, Enum):
            setattr(message, name, _number_of(message, name, value))
        elif isinstance(holder, MutableMapping):
            holder.update(_mapped(value))
        elif isinstance(holder, MutableSequence):
            _extend(message, name, value)
        elif isinstance(value, bool) is isinstance(holder, bool):
            setattr(message, name, value)
        else:
            # protobuf accepts True for 1 and, depending on its version, 1 for True.
            raise TypeError
    except UnicodeEncodeError as error:
        reason = f"holds half a character (a lone surrogate) at position {error.start}; send text"
        # A list has taken the elements before it.
        where = f"[{len(holder)}]" if isinstance(value, list | tuple) else ""
        raise invalid_argument(name + where, reason) from None
    except (TypeError, ValueError):
        kind = _kind_of(message, name)
        raise invalid_argument(name, f"{value!r:.80} is not {kind}") from None
    return message


def _number_of(message: Message, name: str, value: Enum) -> int:
    """Returns the number of an enum member; its name on the wire begins with that of the enum."""
    kind = message.DESCRIPTOR.fields_by_name[name].enum_type
    found = kind and kind.values_by_name.get(f"{kind.name.upper()}_{value.name}")
    if not found:
        raise TypeError
    return int(found.number)


def _extend(message: Message, name: str, value: Any) -> None:
    holder, element = getattr(message, name), message.DESCRIPTOR.fields_by_name[name].message_type
    if element is None:
        for each in _listed(value):
            holder.append(each)
    elif element.name == "Term":
        for source, target in _mapped(value):
            holder.add(source=source, target=target)
    else:
        for tokens in _listed(value):
            holder.add(tokens=_listed(tokens))


def _listed(value: Any) -> Sequence[Any]:
    # A text would pass for a list of its characters.
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError
    return value


def _mapped(value: Any) -> Iterable[tuple[Any, Any]]:
    # protobuf would leave out a text that is None.
    if not isinstance(value, Mapping) or None in (*value, *value.values()):
        raise TypeError
    return value.items()


def _kind_of(message: Message, name: str) -> str:
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None:
        return _KINDS_OF_LISTS[field.message_type.name]
    kind = _KINDS[field.cpp_type]
    if not isinstance(getattr(message, name), MutableSequence):
        return kind
    return "a list of texts" if kind == "a text" else f"a list, each of it {kind}"

"""Declarations of the decoding options, read from the descriptor of ``GenerationOptions``.

An option is declared in ``generation.proto`` alone: the typed keywords, the flags of the command,
the checks of the server and the tables of the documentation follow from its declaration there.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from seqserve.v1 import generation_pb2, options_pb2

_SCALARS: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_INT32: int,
    FieldDescriptor.CPPTYPE_UINT64: int,
    FieldDescriptor.CPPTYPE_FLOAT: float,
    FieldDescriptor.CPPTYPE_STRING: str,
}
_MESSAGES: dict[str, Any] = {"TokenSequence": list[list[str]], "Term": dict[str, str]}
_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "gt": ("above", operator.gt),
    "gte": ("at least", operator.ge),
    "lt": ("below", operator.lt),
    "lte": ("at most", operator.le),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The proto's declaration of an option."""

    name: str
    kind: Any
    """Type of the value, such as ``int``, ``list[str]`` or ``dict[str, str]``."""
    group: str
    help: str
    default: Any
    """Value of a field that is not set; None if the proto declares none."""
    limits: Mapping[str, float]
    """The declared bounds of a number, by their names: gt, gte, lt or lte."""
    max_items: int
    """Maximum number of elements of a list; 0 if it is not limited."""
    choices: tuple[str, ...]
    """The values that a text may have; empty if it may have any."""

    @property
    def minimum(self) -> float | None:
        """The lower bound, whether or not it is allowed itself."""
        return self.limits.get("gt", self.limits.get("gte"))

    @property
    def maximum(self) -> float | None:
        """The upper bound, whether or not it is allowed itself."""
        return self.limits.get("lt", self.limits.get("lte"))

    def allows(self, value: float) -> bool:
        """Returns whether a number is within all bounds, which NaN never is."""
        return all(_BOUNDS[name][1](value, limit) for name, limit in self.limits.items())

    @property
    def bounds(self) -> str:
        """The bounds in words, such as "above 0 and at most 16"; empty without bounds."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.max_items:
            return f"at most {self.max_items}"
        return " and ".join(f"{_BOUNDS[name][0]} {limit:g}" for name, limit in self.limits.items())

    @property
    def shown_default(self) -> str:
        """The default in words; empty without one."""
        if self.default is None:
            return ""
        return str(self.default).lower() if self.kind is bool else f"{self.default:g}"

    @property
    def text(self) -> str:
        """The help, the bounds and the default, in sentences."""
        # A switch is off unless its text tells otherwise.
        default = "" if self.default in (None, False) and self.kind is bool else self.shown_default
        facts = "; ".join(filter(None, (self.bounds, default and f"{default} by default")))
        return f"{self.help} {facts[:1].upper()}{facts[1:]}." if facts else self.help


def _declaration_of(field: Any) -> Declaration:
    declared, kind = field.GetOptions().Extensions[options_pb2.decoding], _kind_of(field)
    limits = {name: getattr(declared, name) for name in _BOUNDS if declared.HasField(name)}
    has_default = declared.HasField("default") or kind is bool
    return Declaration(
        name=field.name,
        kind=kind,
        group=declared.group,
        help=declared.help,
        default=kind(declared.default) if has_default else None,
        limits={name: int(each) if each.is_integer() else each for name, each in limits.items()},
        max_items=declared.max_items,
        choices=tuple(declared.choices),
    )


def _kind_of(field: Any) -> Any:
    if field.message_type:
        return _MESSAGES[field.message_type.name]
    # Single values are all optional, so a field without presence is a list; lists hold texts.
    return _SCALARS[field.cpp_type] if field.has_presence else list[str]


DECLARATIONS: Mapping[str, Declaration] = MappingProxyType(
    {
        field.name: _declaration_of(field)
        for field in generation_pb2.GenerationOptions.DESCRIPTOR.fields
    }
)
"""The declaration of each field of ``GenerationOptions``, in the order of the proto."""

"""Declarations of the decoding options, read from the descriptor of ``GenerationOptions``.

An option is declared in ``generation.proto`` alone: the typed keywords, the flags of the command,
the checks of the server and the tables of the documentation follow from its declaration there.
"""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What the proto declares about an option; None where it declares nothing."""

    name: str
    kind: Any
    """Type of the value, such as ``int``, ``list[str]`` or ``dict[str, str]``."""
    group: str
    help: str
    default: Any
    """Value of a field that is not set."""
    minimum: float | None
    maximum: float | None
    excludes_minimum: bool
    """Whether values must be greater than the minimum."""
    excludes_maximum: bool
    """Whether values must be less than the maximum."""
    max_items: int | None

    def allows(self, value: float) -> bool:
        """Tells whether a number is within the bounds; NaN never is."""
        low, high = self.minimum, self.maximum
        # A comparison with NaN is false.
        if low is not None and not (value > low if self.excludes_minimum else value >= low):
            return False
        return high is None or (value < high if self.excludes_maximum else value <= high)

    @property
    def bounds(self) -> str:
        """The bounds in words, such as "above 0 and at most 16"; empty if there are none."""
        parts = []
        if self.minimum is not None:
            parts.append(f"{'above' if self.excludes_minimum else 'at least'} {self.minimum:g}")
        if self.maximum is not None:
            parts.append(f"{'below' if self.excludes_maximum else 'at most'} {self.maximum:g}")
        if self.max_items is not None:
            parts.append(f"at most {self.max_items}")
        return " and ".join(parts)

    @property
    def shown_default(self) -> str:
        """The default in words; empty if there is none."""
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
    declared = field.GetOptions().Extensions[options_pb2.decoding]

    def number(*names: str) -> float | None:
        """Returns the first of some bounds that is declared."""
        values = [getattr(declared, name) for name in names if declared.HasField(name)]
        return next((int(each) if each.is_integer() else each for each in values), None)

    kind = _kind_of(field)
    has_default = declared.HasField("default") or kind is bool
    return Declaration(
        name=field.name,
        kind=kind,
        group=declared.group,
        help=declared.help,
        default=kind(declared.default) if has_default else None,
        minimum=number("gt", "gte"),
        maximum=number("lt", "lte"),
        excludes_minimum=declared.HasField("gt"),
        excludes_maximum=declared.HasField("lt"),
        max_items=declared.max_items or None,
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

"""Builds dataclasses from JSON values; refuses fields that are missing, unknown or mistyped."""

import typing
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any

from seqserve_server.contract.errors import ArtifactError


def build(kind: Any, values: Any, path: str, prefix: str = "") -> Any:
    """Builds a dataclass from JSON; ArtifactError names the file, ``path``, and the wrong field."""
    if not isinstance(values, dict):
        raise ArtifactError(f"{path}: {prefix.rstrip('.')}: not an object")
    hints = typing.get_type_hints(kind)
    known = {entry.name for entry in fields(kind)}
    for name in sorted(set(values) - known):
        raise ArtifactError(f"{path}: {prefix}{name:.80}: not known to this server")
    built = {}
    for entry in fields(kind):
        where = f"{prefix}{entry.name}"
        if entry.name in values:
            built[entry.name] = _value(hints[entry.name], values[entry.name], path, where)
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise ArtifactError(f"{path}: {where}: missing")
    return kind(**built)


def _value(hint: Any, value: Any, path: str, where: str) -> Any:
    if typing.get_origin(hint) is UnionType:
        if value is None:
            return None
        hint, _ = typing.get_args(hint)  # X | None
    if is_dataclass(hint):
        return build(hint, value, path, where + ".")
    if typing.get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise ArtifactError(f"{path}: {where}: not an object")
        kind = typing.get_args(hint)[1]
        return {
            name: entry if kind is Any else _value(kind, entry, path, f"{where}.{name:.80}")
            for name, entry in value.items()
        }
    if typing.get_origin(hint) is list:
        if not isinstance(value, list):
            raise ArtifactError(f"{path}: {where}: not a list")
        [kind] = typing.get_args(hint)
        return [_value(kind, entry, path, where) for entry in value]
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ArtifactError(f"{path}: {where}: {value!r:.80} is not of type {hint.__name__}")
    return value

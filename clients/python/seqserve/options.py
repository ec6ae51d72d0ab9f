"""Options, each declared once: a dataclass field becomes a flag, a variable and a line of help.

A command states its options as a frozen dataclass whose fields are made by :func:`option`::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ServeOptions:
        port: int = option(50051, help="Port of the gRPC service.", minimum=0, maximum=65535)

    options = parse(ServeOptions, argv, prog="seqserve serve", description="...")

``port`` is then ``--port`` on the command line and ``SEQSERVE_PORT`` in the environment. A flag
wins over a variable, a variable over the default; an empty variable counts as not set, for that is
what compose files make of ``SEQSERVE_PORT=${PORT:-}``. Understood types: str, int, float, bool,
Path, Enum, each also as ``X | None``, and lists of them. The flag of a list is repeated, one
element each time; its variable holds all elements, quoted as in a shell; the last positional
argument may be a list too. An element of ``list[list[str]]`` is words with spaces between, and one
of ``dict[str, str]`` is two texts with ``=`` between. A secret has no flag, only its variable.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import os
import shlex
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from seqserve.errors import OptionError

T = TypeVar("T")

_METAVARS = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH", list[str]: "WORDS"}
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


class _Parser(argparse.ArgumentParser):
    """Tells what is wrong in one line, as an :class:`OptionError`, and does not end the process."""

    def error(self, message: str) -> NoReturn:
        """Says where to read on."""
        raise OptionError(f"{message}; see `{self.prog} --help`")


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    positional: bool = False,
    metavar: str | None = None,
    group: str = "options",
    secret: bool = False,
) -> Any:
    """Declares an option as a dataclass field.

    Args:
        default: Value where neither flag nor variable is given; without one the option is required.
        help: What it does and why one would change it.
        minimum: Smallest value allowed.
        maximum: Largest value allowed.
        positional: Take it by place instead of by flag.
        metavar: What ``--help`` writes for its value; the kind of it where None.
        group: Heading under which ``--help`` lists it.
        secret: Take it from its variable alone, for a command line can be read by everybody on the
            machine; the help of another option is to name the variable.
    """
    metadata = {
        "help": help,
        "minimum": minimum,
        "maximum": maximum,
        "positional": positional,
        "metavar": metavar,
        "group": group,
        "secret": secret,
    }
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def parse(
    options: type[T],
    argv: Sequence[str],
    *,
    prog: str,
    description: str,
    epilog: str = "",
    environ: Mapping[str, str] | None = None,
) -> T:
    """Reads options from the command line and the environment.

    Args:
        options: The dataclass that declares them.
        argv: Arguments after the command's name.
        prog: Name of the command, for the help.
        description: What the command does, for the help.
        epilog: Examples, for the help.
        environ: Environment; the process's own where None.

    Returns:
        An instance of ``options``.

    Raises:
        OptionError: An option is not known or lacks its value, or a value does not fit its type or
            its bounds; the message names its source.
    """
    environ = os.environ if environ is None else environ
    parser = _Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    hints = typing.get_type_hints(options)
    fields = dataclasses.fields(options)  # type: ignore[arg-type]
    groups: dict[str, Any] = {"options": parser}
    for field in fields:
        if field.metadata["secret"]:
            continue
        title = field.metadata["group"]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add_argument(groups[title], field, hints[field.name])
    # Intermixed, flags may stand before, behind and between texts; but argparse then loses "--".
    has_dashes = "--" in argv
    read = parser.parse_known_args if has_dashes else parser.parse_known_intermixed_args
    namespace, left_over = read(argv)
    if left_over:
        flags = [flag_of(field.name) for field in fields if _has_flag(field)]
        parser.error(_not_understood(left_over, flags))
    given = vars(namespace)
    values = {}
    for field in fields:
        kind = _strip_optional(hints[field.name])
        found = _find(field, kind, given, environ)
        if found is not None:
            source, value = found
            values[field.name] = _convert(value, kind, field.metadata, source)
    return options(**values)


def flag_of(name: str) -> str:
    """Gives the flag of an option: ``metrics_port`` → ``--metrics-port``."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """Gives the environment variable of an option: ``metrics_port`` → ``SEQSERVE_METRICS_PORT``."""
    return "SEQSERVE_" + name.upper()


def _has_flag(field: dataclasses.Field[Any]) -> bool:
    return not (field.metadata["positional"] or field.metadata["secret"])


def _not_understood(words: Sequence[str], flags: Sequence[str]) -> str:
    """Says what is wrong with words that no option takes, and which flag may be meant."""
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            near = difflib.get_close_matches(flag, flags, n=1)
            return f"there is no option {flag}" + (f" (did you mean {near[0]}?)" if near else "")
    return f"{words[0]!r} is one argument too many"


def _find(
    field: dataclasses.Field[Any], kind: Any, given: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[str, Any] | None:
    """Gives where a value was found and what it is; None where the default is to stand."""
    flag, variable = flag_of(field.name), variable_of(field.name)
    is_positional = field.metadata["positional"]
    if given.get(field.name) not in (None, []):
        return (field.name if is_positional else flag), given[field.name]
    if is_positional:
        return None
    if environ.get(variable):
        text = environ[variable]
        return variable, _shell_words(text, variable) if _is_many(kind) else text
    if _is_required(field):
        raise OptionError(f"{flag} (or {variable}) is required; see --help")
    return None


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _add_argument(group: Any, field: dataclasses.Field[Any], hint: Any) -> None:
    kind = _strip_optional(hint)
    many = _is_many(kind)
    element = typing.get_args(kind)[0] if many else kind
    text = field.metadata["help"].replace("%", "%%")
    if _is_enum(element):
        text += f" One of: {', '.join(str(member.value) for member in element)}."
    if field.metadata["positional"]:
        nargs = "*" if many else (None if _is_required(field) else "?")
        group.add_argument(field.name, nargs=nargs, metavar=field.name.upper(), help=text)
        return
    text += " May be repeated." if many else ""
    text += f" [{variable_of(field.name)}{_shown_default(field)}]"
    if kind is bool:
        group.add_argument(
            flag_of(field.name), action=argparse.BooleanOptionalAction, default=None, help=text
        )
    else:
        action = "append" if many else "store"
        metavar = field.metadata["metavar"] or _METAVARS.get(element, "VALUE")
        group.add_argument(flag_of(field.name), action=action, metavar=metavar, help=text)


def _shown_default(field: dataclasses.Field[Any]) -> str:
    if _is_required(field):
        return "; required"
    if field.default in (None, "", dataclasses.MISSING):
        return ""
    default = field.default.value if isinstance(field.default, Enum) else field.default
    if isinstance(default, bool):
        return f"; {str(default).lower()}"
    return f"; {default:g}" if isinstance(default, float) else f"; {default}"


def _strip_optional(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint


def _is_list(kind: Any) -> bool:
    return typing.get_origin(kind) is list


def _is_many(kind: Any) -> bool:
    return typing.get_origin(kind) in (list, dict)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _shell_words(text: str, source: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise OptionError(f"{source}: {text!r} has a quote that is not closed") from None


def _convert(value: Any, kind: Any, metadata: Mapping[str, Any], source: str) -> Any:
    if typing.get_origin(kind) is dict:
        return _pairs(value, source)
    if _is_list(kind):
        (element,) = typing.get_args(kind)
        parts = value.split() if isinstance(value, str) else value
        return [_convert(part, element, metadata, source) for part in parts]
    try:
        converted = _to_bool(value) if kind is bool else kind(value)
    except ValueError:
        raise OptionError(f"{source}: {value!r} is not {_expected(kind)}") from None
    if isinstance(converted, float) and math.isnan(converted):
        # NaN passes every comparison below.
        raise OptionError(f"{source}: {value!r} is not {_expected(kind)}")
    low, high = metadata["minimum"], metadata["maximum"]
    if low is not None and converted < low:
        raise OptionError(f"{source}: {value} is less than {low}, the smallest allowed")
    if high is not None and converted > high:
        raise OptionError(f"{source}: {value} is more than {high}, the largest allowed")
    return converted


def _pairs(parts: list[str], source: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{source}: {part!r} has no = between two texts")
        if pairs.setdefault(key, value) != value:
            raise OptionError(f"{source}: {key!r} is given twice, and not alike")
    return pairs


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(word)
    return word in _TRUE


def _expected(kind: Any) -> str:
    if _is_enum(kind):
        return "one of " + ", ".join(str(member.value) for member in kind)
    names = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    return names.get(kind, "valid")

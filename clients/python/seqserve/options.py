"""Options, each declared once: a dataclass field becomes a flag, a variable and a line of help.

A command declares its options as a frozen dataclass whose fields are made by :func:`option`::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ServeOptions:
        port: int = option(50051, help="Port of the gRPC service.", minimum=0, maximum=65535)

    options = parse(ServeOptions, argv, prog="seqserve serve", description="...")

``port`` is then ``--port`` on the command line and ``SEQSERVE_PORT`` in the environment. A flag
overrides a variable, a variable the default; ``--no-tls`` also those of ``--tls-...``. An empty
variable counts as unset, because compose files make one of ``SEQSERVE_PORT=${PORT:-}``.

Types: str, int, float, bool, Path, Enum, each also as ``X | None``, and lists of them. The flag of
a list is repeated, with one element each time; its variable holds all elements, quoted as in a
shell; the last positional argument may be a list too. An element of ``list[list[str]]`` is words
separated by spaces, an element of ``dict[str, str]`` is two texts separated by ``=``.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from seqserve.errors import OptionError
from seqserve.option_values import (
    converted,
    is_enum,
    members,
    nearest,
    shell_words,
    variable_of,
    warn_of_misspelt,
)

T = TypeVar("T")

_METAVARS = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH", list[str]: "WORDS"}
# Names of `--target` in other programs.
_SERVERS = ("server", "host", "url", "address", "endpoint")
# No argument of a process can hold it.
_NO_FLAG = "\0"


def option(
    default: Any = MISSING,
    *,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    fault: Callable[[Any], str | None] | None = None,
    positional: bool = False,
    short: str = "",
    metavar: str | None = None,
    group: str = "options",
    secret: bool = False,
    has_variable: bool = True,
) -> Any:
    """Declares an option as a dataclass field.

    Args:
        default: Value without flag and variable; an option without default is required.
        fault: Says of a value what it is not, where it is not allowed; for rules that two bounds do
            not express.
        short: A second flag of one letter, such as ``-o``.
        metavar: Name of the value in ``--help``; depends on the type if None.
        secret: Take the value from the variable alone, because every user of the machine can read a
            command line; the help of another option should name the variable.
        has_variable: Whether a variable sets it too; not where the variable of that name belongs to
            another program.
    """
    metadata = {name: rule for name, rule in locals().items() if name != "default"}
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
    hidden: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
    warns: bool = True,
) -> T:
    """Reads options from the command line and the environment.

    Args:
        description: What the command does. Its further paragraphs are shown below the options, as
            ``epilog`` is.
        hidden: Names of options that the help leaves out, because it says where they are explained.
        warns: Whether to report misspelt variables on standard error.
    """
    if warns:
        warn_of_misspelt(options, environ)
    declared = _declared(options)
    description, _, further = description.partition("\n\n")
    parser = _Parser(
        prog=prog,
        usage=" ".join([prog, *filter(None, (each.usage for each in declared)), "[OPTIONS]"]),
        description=description,
        epilog=further or epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    groups: dict[str, Any] = {"options": parser}
    for each in declared:
        if not each.secret:
            if each.group not in groups:
                groups[each.group] = parser.add_argument_group(each.group)
            each.add_to(groups[each.group], is_hidden=each.name in hidden)
    words = _marked(argv)
    # argparse would take such a word for -h with an argument.
    unknown = [word for word in words if word.startswith("-h") and word != "-h"]
    if not unknown:
        # Intermixed, flags may come before, after and between texts.
        namespace, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        parser.error(_unknown(unknown, declared))
    environ = os.environ if environ is None else environ
    parsed = vars(namespace)
    values = {each.name: each.value(parsed, environ) for each in declared}
    try:
        return options(**{name: value for name, value in values.items() if value is not MISSING})
    except OptionError as error:
        flag, colon, reason = str(error).partition(":")
        given = {
            each.flag: each.source(parsed) for each in declared if values[each.name] is not MISSING
        }
        raise OptionError(f"{given.get(flag, flag)}{colon}{reason}") from None


def split_command(
    options: type[Any], argv: Sequence[str], commands: Iterable[str]
) -> tuple[str, list[str]]:
    """Splits the name of a command from its arguments; flags of ``options`` may come before it.

    Returns:
        The name, empty if the first argument is none of ``commands``, and the other words.
    """
    with_value = {each.flag for each in _declared(options) if not each.is_switch}
    index = 0
    while index < len(argv) and argv[index].startswith("-"):
        index += 2 if argv[index] in with_value else 1
    if index < len(argv) and argv[index] in commands:
        return argv[index], [*argv[:index], *argv[index + 1 :]]
    return "", list(argv)


def flag_of(name: str) -> str:
    """Returns the flag of an option: ``metrics_port`` → ``--metrics-port``."""
    return "--" + name.replace("_", "-")


def _declared(options: type[Any]) -> list[_Option]:
    hints = typing.get_type_hints(options)
    return [_Option(field, hints[field.name]) for field in dataclasses.fields(options)]


def _marked(argv: Sequence[str]) -> list[str]:
    """Marks words that are not flags: those after "--", and a value "--"; argparse loses both."""
    end = argv.index("--") if "--" in argv else len(argv)
    flags = (f"{word[:-2]}{_NO_FLAG}--" if word.endswith("=--") else word for word in argv[:end])
    return [*flags, *(_NO_FLAG + word for word in argv[end + 1 :])]


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(word) for word in value]
    return value.removeprefix(_NO_FLAG) if isinstance(value, str) else value


class _Parser(argparse.ArgumentParser):
    """Raises an :class:`OptionError` of one line, instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; see `{self.prog} --help`")


class _Option:
    """A declared option: its place in the help, and its value."""

    def __init__(self, field: dataclasses.Field[Any], hint: Any) -> None:
        self.name, self.default = field.name, field.default
        self.flag = flag_of(field.name)
        self.variable = variable_of(field.name) if field.metadata["has_variable"] else ""
        self.is_required = field.default is MISSING and field.default_factory is MISSING
        self.positional, self.secret = field.metadata["positional"], field.metadata["secret"]
        self.group = field.metadata["group"]
        self._declared = field.metadata
        self._kind = _without_none(hint)
        self._is_many = typing.get_origin(self._kind) in (list, dict)
        self._element = typing.get_args(self._kind)[0] if self._is_many else self._kind
        self.is_switch = self._kind is bool

    @property
    def usage(self) -> str:
        if not self.positional:
            return f"{self.flag} {self._metavar}" if self.is_required else ""
        name = self.name.upper() + (" ..." if self._is_many else "")
        return name if self.is_required else f"[{name}]"

    @property
    def _metavar(self) -> str:
        return self._declared["metavar"] or _METAVARS.get(self._element, "VALUE")

    def add_to(self, group: Any, *, is_hidden: bool) -> None:
        text = self._declared["help"].replace("%", "%%")
        if is_enum(self._element):
            text += f" One of: {members(self._element)}."
        if self.positional:
            nargs = "*" if self._is_many else (None if self.is_required else "?")
            group.add_argument(self.name, nargs=nargs, metavar=self.name.upper(), help=text)
            return
        text += " May be repeated." if self._is_many else ""
        notes = "; ".join(filter(None, (self.variable, self._shown_default())))
        text += f" [{notes}]" if notes else ""
        text = argparse.SUPPRESS if is_hidden else text
        if self.is_switch:
            action = argparse.BooleanOptionalAction
            group.add_argument(self.flag, action=action, default=None, help=text)
        else:
            repeated = "append" if self._is_many else "store"
            flags = filter(None, (self._declared["short"], self.flag))
            group.add_argument(*flags, action=repeated, metavar=self._metavar, help=text)

    def source(self, parsed: Mapping[str, Any]) -> str:
        """Names the origin of the value: the flag, or else the variable."""
        if parsed.get(self.name) in (None, []):
            return self.variable
        return self.name if self.positional else self.flag

    def value(self, parsed: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
        if parsed.get(self.name) not in (None, []):
            words, source = _unmarked(parsed[self.name]), self.source(parsed)
            return converted(words, self._kind, source, self._declared)
        if self.positional:
            return MISSING
        off = tuple(f"{name}_" for name, given in parsed.items() if given is False)
        if self.variable and not self.name.startswith(off) and (text := environ.get(self.variable)):
            words = shell_words(text, self.variable) if self._is_many else text
            return converted(words, self._kind, self.variable, self._declared)
        if self.is_required:
            variable = f" (or {self.variable})" if self.variable else ""
            raise OptionError(f"{self.flag}{variable} is required; see --help")
        return MISSING

    def _shown_default(self) -> str:
        if self.is_required:
            return "required"
        if self.default in (None, "", MISSING):
            return ""
        default = self.default.value if isinstance(self.default, Enum) else self.default
        if isinstance(default, bool):
            return str(default).lower()
        return f"{default:g}" if isinstance(default, float) else str(default)


def _unknown(words: Sequence[str], declared: Sequence[_Option]) -> str:
    # Without the dashes, which are alike in all.
    names = [each.flag[2:] for each in declared if not (each.positional or each.secret)]
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            bare = flag.removeprefix("--")
            is_server = bare in _SERVERS and "target" in names
            if near := "target" if is_server else nearest(bare, names, least=len("xyz")):
                return f"unknown option {flag} (did you mean --{near}?)"
            takes_text = any(each.positional for each in declared)
            hint = f" (put a text that begins with - after --: -- {word})" if takes_text else ""
            return f"unknown option {flag}{hint}"
    return f"{_unmarked(words[0])!r} is one argument too many"


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint

"""Values of options from a command line or the environment, and variables that are misspelt."""

import dataclasses
import difflib
import math
import os
import shlex
import sys
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from seqserve.errors import OptionError

_PREFIX = "SEQSERVE_"
# A wrong, missing or extra letter or two in ten, or an ending left out.
_LIKENESS = 0.9
NAMESAKES = {
    f"SEQSERVE_{name}"
    for name in (
        *("AS_TARGET", "CONCURRENCY", "CONNECTIONS", "FORMALITY", "FORMAT", "MAX_CONCURRENCY"),
        *("MAX_CONNECTIONS", "TIME_LIMIT_MS", "TIME_LIMIT_S", "TOKEN", "TOKENIZE", "TOKENS"),
    )
}
"""Variables of one command that are written like one of another, and are right as they are."""


def variable_of(name: str) -> str:
    """Returns the variable of an option: ``metrics_port`` → ``SEQSERVE_METRICS_PORT``."""
    return _PREFIX + name.upper()


def misspelt_variables(
    options: type[Any], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Maps set variables that are not options to the variables that were probably meant."""
    known = [
        variable_of(each.name)
        for each in dataclasses.fields(options)
        if each.metadata["has_variable"] and not each.metadata["positional"]
    ]
    strangers = set(os.environ if environ is None else environ) - {*known, *NAMESAKES}
    near = {
        name: difflib.get_close_matches(name, known, n=1, cutoff=_LIKENESS)
        for name in sorted(strangers)
        if name.startswith(_PREFIX)
    }
    return {name: matches[0] for name, matches in near.items() if matches}


def warn_of_misspelt(options: type[Any], environ: Mapping[str, str] | None = None) -> None:
    """Reports the variables that :func:`misspelt_variables` finds on standard error."""
    for name, meant in misspelt_variables(options, environ).items():
        warning = f"seqserve: {name} has no effect; did you mean {meant}?"
        print(warning, file=sys.stderr, flush=True)


_LINKED = (
    ". Kubernetes sets such a variable for a Service called seqserve: write enableServiceLinks:"
    " false in the spec of the pod, or give the Service another name"
)
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


def converted(value: Any, kind: Any, source: str, rules: Mapping[str, Any]) -> Any:
    """Converts the text of an option, or the texts of a list, and checks the value.

    ``source`` is the flag or the variable, ``rules`` has what :func:`.option` was told.
    """
    if typing.get_origin(kind) is dict:
        return _pairs(value, source)
    if typing.get_origin(kind) is list:
        (element,) = typing.get_args(kind)
        parts = value.split() if isinstance(value, str) else value
        return [converted(part, element, source, rules) for part in parts]
    try:
        result = _to_bool(value) if kind is bool else kind(value)
        if isinstance(result, float) and math.isnan(result):
            # NaN would pass every comparison below.
            raise ValueError
    except ValueError:
        expected = f"one of {members(kind)}" if is_enum(kind) else _KINDS.get(kind, "valid")
        advice = _LINKED if source.startswith(_PREFIX) and "://" in str(value) else ""
        raise OptionError(f"{source}: {value!r} is not {expected}{advice}") from None
    if (fault := rules["fault"]) and (expected := fault(result)):
        raise OptionError(f"{source}: {value!r} is not {expected}")
    low, high = rules["minimum"], rules["maximum"]
    if low is not None and result < low:
        raise OptionError(f"{source}: {value} is less than {low}, the smallest allowed")
    if high is not None and result > high:
        raise OptionError(f"{source}: {value} is more than {high}, the largest allowed")
    return result


def nearest(name: str, names: Sequence[str], *, least: int) -> str | None:
    """Finds the name that may have been meant: one that begins or ends so, else one spelled alike.

    With fewer than ``least`` characters, only one that is spelled alike.
    """
    longer = [each for each in names if len(name) >= least and each.startswith(name)]
    longer += [each for each in names if len(name) >= least and each.endswith(name)]
    return next(iter(longer or difflib.get_close_matches(name, names, n=1, cutoff=0.7)), None)


def is_enum(kind: Any) -> bool:
    """Returns whether a type is an enum."""
    return isinstance(kind, type) and issubclass(kind, Enum)


def members(kind: type[Enum]) -> str:
    """Lists the values of an enum."""
    return ", ".join(str(member.value) for member in kind)


def shell_words(text: str, source: str) -> list[str]:
    """Divides the variable of a list into its elements, which are quoted as in a shell."""
    try:
        return shlex.split(text)
    except ValueError:
        raise OptionError(f"{source}: {text!r} has a quote that is not closed") from None


def _pairs(parts: list[str], source: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"{source}: {part!r} has no = between two texts")
        if pairs.setdefault(key, value) != value:
            raise OptionError(f"{source}: {key!r} is given twice, with different values")
    return pairs


def _to_bool(value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(word)
    return word in _TRUE

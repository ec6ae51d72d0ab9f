"""The environment variables of options: their names, and those that are misspelt."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Mapping
from typing import Any

_PREFIX = "SEQSERVE_"
# A wrong, missing or extra letter or two in ten, or an ending left out.
_LIKENESS = 0.9
NAMESAKES = {
    "SEQSERVE_AS_TARGET",
    "SEQSERVE_CONCURRENCY",
    "SEQSERVE_MAX_CONCURRENCY",
    "SEQSERVE_TIME_LIMIT_MS",
    "SEQSERVE_TIME_LIMIT_S",
    "SEQSERVE_TOKEN",
    "SEQSERVE_TOKENIZE",
    "SEQSERVE_TOKENS",
}
"""Variables of one command that are written like one of another, and are right as they are."""


def variable_of(name: str) -> str:
    """Returns the variable of an option: ``metrics_port`` → ``SEQSERVE_METRICS_PORT``."""
    return _PREFIX + name.upper()


def misspelt_variables(
    options: type[Any], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Finds variables that are no options but are written nearly like one.

    Args:
        options: The dataclass that declares the options.
        environ: Environment; the one of the process if None.

    Returns:
        The variable that was probably meant, by the one that is set.
    """
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
    """Tells on standard error of the variables that :func:`misspelt_variables` finds."""
    for name, meant in misspelt_variables(options, environ).items():
        warning = f"seqserve: {name} has no effect; did you mean {meant}?"
        print(warning, file=sys.stderr, flush=True)

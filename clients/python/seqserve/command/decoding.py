"""Flags of ``seqserve generate`` for decoding: one for each option that the proto declares."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from seqserve.arguments import GenerateOptions, Priority
from seqserve.declarations import DECLARATIONS, Declaration
from seqserve.options import flag_of, option

OUTPUT = "output"
"""Group of the flags that choose what is printed."""
SCORES = "return_scores"
"""The only option of that group whose result a line has a place for."""
NEED_JSON = [each.name for each in DECLARATIONS.values() if each.group == OUTPUT]
NEED_JSON.remove(SCORES)

# Their variables are options of a server on this machine, which no client obeys.
_OF_SERVER = {"segmentation"}
_HEADINGS = {
    "alternatives": "alternatives, as many as --num-hypotheses",
    "sampling": "sampling, in place of search; any of these switches it on",
    "drafts": "drafts of the answer, which do not change it",
    "constraints": (
        "constraints; tokens are written as `generate --json` shows them, with ▁ for a space"
    ),
}


def _flag(declared: Declaration) -> tuple[str, object, object]:
    flag = option(
        None,
        help=_help(declared),
        fault=partial(_fault, declared) if declared.bounds else None,
        metavar="SOURCE=TARGET" if declared.kind == dict[str, str] else None,
        group=_HEADINGS.get(declared.group, declared.group),
        has_variable=declared.name not in _OF_SERVER,
    )
    return declared.name, declared.kind | None, flag


def _fault(declared: Declaration, value: Any) -> str | None:
    fits = value in declared.choices if declared.choices else declared.allows(value)
    return None if fits else declared.bounds


def _help(declared: Declaration) -> str:
    text = re.sub(r"\b[a-z]+(_[a-z]+)+\b", lambda name: flag_of(name[0]), declared.text)
    if declared.name in NEED_JSON:
        return f"With --json: {text[0].lower()}{text[1:]}"
    if declared.name == SCORES:
        return f"{text} If set, a line begins with the score and a tab."
    return f"{text} Spaces separate tokens." if declared.kind == list[list[str]] else text


if TYPE_CHECKING:
    # Typed code reads the options from `decoding()`.
    _DecodingFlags = object
else:
    _DecodingFlags = make_dataclass(
        "_DecodingFlags", map(_flag, DECLARATIONS.values()), frozen=True, kw_only=True
    )


def options_outside(*groups: str) -> set[str]:
    """Names the options of other groups, for a help that leaves them to ``seqserve generate``."""
    return {each.name for each in DECLARATIONS.values() if each.group not in groups}


# No slots: Python cannot join two bases that both have them.
@dataclass(frozen=True, kw_only=True)
class DecodingOptions(_DecodingFlags):
    """Decoding options from the command line; the server chooses what is not set."""

    priority: Priority | None = option(
        None, help="Order of requests while they wait; normal by default."
    )

    def decoding(self) -> GenerateOptions:
        """Returns the keywords of each call."""
        keywords = GenerateOptions()
        for field in fields(DecodingOptions):
            keywords[field.name] = getattr(self, field.name)  # type: ignore[literal-required]
        return keywords

"""Declares the languages of a model in its manifest, where it need not be told them."""

from __future__ import annotations

import re
from dataclasses import replace

from seqserve.errors import OptionError
from seqserve.language_codes import AUTO
from seqserve_server.artifact.template import Template

_CODE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")


def declared(template: Template | None, source: str, target: str) -> Template | None:
    """Returns a template with the languages of a model that reads and writes one.

    Args:
        template: What the model reads beside its texts; None for nothing.
        source: Code of the source language; empty if it is not known, or the template has it.
        target: Code of the target language.

    Raises:
        OptionError: A code is none, or the template has other languages.
    """
    changed = template or Template()
    for role, code in (("source", source), ("target", target)):
        if not code:
            continue
        if not _CODE.fullmatch(code) or code == AUTO:
            raise OptionError(f"--{role}-language: {code!r:.80} is no code; take one such as en")
        if not changed.languages[role]:
            name = f"{role}_languages"
            changed = replace(changed, **{name: {code: ""}})  # type: ignore[arg-type]
        elif changed.code_of(role, code) is None:
            known = ", ".join(sorted(changed.languages[role])[:5])
            raise OptionError(f"--{role}-language: {code} is none of the model's: {known}, ...")
    return None if changed == Template() else changed

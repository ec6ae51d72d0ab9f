"""Finds the tokenizer of a checkpoint and converts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tokenizers

from seqserve.errors import OptionError
from seqserve_import.tokenizers import bart, fairseq, marian, marian_native, pegasus, ready, t5

_KINDS: dict[str, Callable[[Path], tokenizers.Tokenizer]] = {
    "bart": bart.convert,
    "m2m_100": fairseq.convert_m2m100,
    "marian": marian.convert,
    "marian-native": marian_native.convert,
    "mbart": fairseq.convert_mbart,
    "mt5": t5.convert,
    "pegasus": pegasus.convert,
    "t5": t5.convert,
    "umt5": t5.convert,
}
_TARGETS: dict[str, Callable[[Path], tokenizers.Tokenizer | None]] = {
    "marian": marian.convert_target,
    "marian-native": marian_native.convert_target,
}
"""Families whose targets may be divided by another rule than their sources."""


def convert(folder: Path, model_type: str) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a checkpoint; ids are the checkpoint's.

    Its post-processor appends the end token; BART's also puts ``<s>`` in front. It sets no
    language. A ``tokenizer.json`` is taken as it is, except for Marian: there it is not an original
    file, and cannot hold both sides.

    Args:
        folder: The checkpoint.
        model_type: The entry of that name in its ``config.json``.

    Raises:
        OptionError: The family is not known, or a file is missing, damaged or not supported.
    """
    if model_type not in _KINDS:
        raise OptionError(
            f"{folder}: model_type is {model_type!r}; tokenizers are known of {', '.join(_KINDS)}"
        )
    path = folder / "tokenizer.json"
    if path.exists() and model_type not in _TARGETS:
        return ready.take(path, model_type)
    return _KINDS[model_type](folder)


def convert_target(folder: Path, model_type: str) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets as :func:`convert` does; None if it is that of sources."""
    convert_side = _TARGETS.get(model_type)
    return convert_side(folder) if convert_side else None

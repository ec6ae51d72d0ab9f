"""Our tokenizer, for a model of CTranslate2 whose words are numbers; runs in other environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer


class NumberedTokenizer:
    """Texts to words such as ``t17``, the end of the source last, and back."""

    def __init__(self, path: Path, eos_id: int) -> None:
        """Reads ``tokenizer.json``."""
        self._tokenizer, self._eos_id = Tokenizer.from_file(str(path)), eos_id

    def encode(self, text: str) -> list[str]:
        """Encodes a source."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [f"t{number}" for number in [*ids, self._eos_id]]

    def decode(self, words: Sequence[str]) -> str:
        """Decodes a target."""
        text: str = self._tokenizer.decode([int(word[1:]) for word in words])
        return text

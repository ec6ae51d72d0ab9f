"""The report of a document's texts: translated, copied on purpose, or left."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from seqserve.documents.passage import ParseError, Passage

_MOST_SHOWN = 200
# Maximum number of left texts to list; all are counted.
_MOST_LEFT = 1000


class Report:
    """Counts the passages of a document, and names those that are left as they were."""

    def __init__(self) -> None:
        self.translated = 0
        self.left = 0
        """Passages that a reader sees in the language of the source."""
        self.warned = 0
        """Passages whose translation is probably wrong."""
        self._unchanged = 0
        self._copied: Counter[str] = Counter()
        self._left: list[dict[str, Any]] = []
        self._warned: list[dict[str, Any]] = []
        # Hashes of sources that have another translation, and of translations.
        self._changed: set[int] = set()
        self._answers: set[int] = set()

    def add(
        self,
        passage: Passage,
        translation: str | None,
        part: str = "",
        warnings: Collection[str] = (),
    ) -> None:
        """Adds a passage with its translation, or without one if it stays on purpose."""
        if passage.fault:
            self.leave(passage, passage.fault, part)
        elif translation is not None:
            self.translated += 1
            self._unchanged += translation == passage.text
            if translation != passage.text:
                self._changed.add(hash(passage.text))
            self._answers.add(hash(translation))
            if warnings:
                self.warned += 1
                _list(self._warned, passage, "; ".join(warnings), part)
            for text in passage.lost:
                self.leave(replace(passage, text=text), "has no word in the translation", part)
        elif passage.copied or passage.text.strip():
            self._copied[passage.copied or "no letter"] += 1

    def leave(self, passage: Passage, reason: str, part: str = "") -> None:
        """Adds a passage that could not be translated; ``part`` is where in an archive it is."""
        self.left += 1
        _list(self._left, passage, reason, part)

    def check(self, passages: Iterable[Passage], part: str = "") -> None:
        """Reads the translated document; a source that was translated and is there is left."""
        try:
            for passage in passages:
                text = hash(passage.text)
                if passage.has_words and text in self._changed and text not in self._answers:
                    self.leave(passage, "is in the translated document as it was", part)
        except ParseError as error:
            self.leave(Passage(line=1), f"the translated document cannot be read: {error}", part)

    def facts(self, most_left: int = _MOST_LEFT) -> dict[str, Any]:
        """Returns it as JSON has it, with so many of the texts that are left or warned of."""
        return {
            "translated": self.translated,
            "unchanged": self._unchanged,
            "copied": dict(self._copied),
            "left": self.left,
            "texts_left": self._left[:most_left],
            "warned": self.warned,
            "texts_warned": self._warned[:most_left],
        }

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self._copied.items())
        copied = f"{self._copied.total():,} copied" + (f" ({reasons})" if reasons else "")
        warned = f", {self.warned:,} warned of" if self.warned else ""
        passages = "passage" if self.translated == 1 else "passages"
        return f"{self.translated:,} {passages} translated, {copied}, {self.left:,} left{warned}"


def _list(places: list[dict[str, Any]], passage: Passage, reason: str, part: str) -> None:
    if len(places) < _MOST_LEFT:
        text = (passage.text or passage.source)[:_MOST_SHOWN]
        place = {"part": part} if part else {}
        places.append({**place, "line": passage.line, "text": text, "reason": reason})

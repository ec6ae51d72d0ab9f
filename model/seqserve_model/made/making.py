"""Makes pairs of a recipe's training pairs, as many of each kind as the recipe weights it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from seqserve_model.data import Pair
from seqserve_model.made.language import Language, rows
from seqserve_model.made.nouns import Nouns
from seqserve_model.made.sentences import Sentences, joined
from seqserve_model.made.values import Values
from seqserve_model.recipe import MadeRecipe

_TRIES = 40
_JOINED_CHARS = 240
_CODES = frozenset("@/{<[%$_#\\`0123456789")


class Maker:
    """Makes pairs of pairs by a seed: equal pairs and recipes make equal pairs."""

    def __init__(self, recipe: MadeRecipe, pairs: Sequence[Pair]) -> None:
        """Takes the pairs to make others of.

        Raises:
            OptionError: A language is not known.
        """
        source, target = Language.of(recipe.source_language), Language.of(recipe.target_language)
        self._recipe = recipe
        self._pairs = pairs
        self._draw = random.Random(recipe.seed)
        self._sentences = Sentences(source, target, self._draw)
        self._values = Values(source, target, self._draw)
        self._nouns = Nouns(source.code, target.code, self._draw)
        self._phrases = rows("phrases.tsv", source.code, target.code)

    def pairs(self) -> Iterator[Pair]:
        """Yields the made pairs, one kind after the other."""
        sentences = self._sentences
        kinds: dict[str, Callable[[], Pair | None]] = {
            "names": lambda: self._retyped(sentences.names(self._any())),
            "numbers": lambda: self._retyped(sentences.numbers(self._any())),
            "endings": lambda: sentences.ending(self._any()),
            "letters": lambda: sentences.letters(self._any()),
            "joined": lambda: self._retyped(self._joined()),
            "around": lambda: self._phrase("around"),
            "phrases": lambda: self._phrase("phrase"),
            "words": lambda: self._phrase("word"),
            "messages": lambda: self._phrase("message"),
            "nouns": lambda: self._phrase("noun"),
        }
        for kind, make in kinds.items():
            for _ in range(round(getattr(self._recipe, kind) * len(self._pairs))):
                # Not each sentence has a name or a number.
                made = next(filter(None, (make() for _ in range(_TRIES))), None)
                if made is not None:
                    yield made

    def _any(self) -> Pair:
        return self._draw.choice(self._pairs)

    def _phrase(self, kind: str) -> Pair | None:
        if kind not in self._phrases:
            return None
        phrase = self._nouns.pair(self._draw.choice(self._phrases[kind]))
        return self._retyped(self._values.pair(phrase, self._changed(self._any())))

    def _joined(self) -> Pair | None:
        count = self._draw.choice((2, 2, 2, 3))
        text = joined([self._changed(self._any()) for _ in range(count)])
        return text if max(map(len, text)) <= _JOINED_CHARS else None

    def _changed(self, pair: Pair) -> Pair:
        """Puts other names or numbers into half of the pairs."""
        if self._draw.random() < 0.5:
            return pair
        return self._sentences.names(pair) or self._sentences.numbers(pair) or pair

    def _retyped(self, pair: Pair | None) -> Pair | None:
        """Types some pairs with another end, and some in other letters."""
        if pair and self._draw.random() < 0.2:
            pair = self._sentences.ending(pair) or pair
        # Nobody types addresses and codes in other letters.
        if pair and self._draw.random() < 0.12 and not _CODES.intersection(pair.source):
            pair = self._sentences.letters(pair) or pair
        return pair

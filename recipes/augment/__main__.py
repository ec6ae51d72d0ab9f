"""Makes training pairs of a recipe's pairs: other names, numbers, endings, phrases.

    python -m recipes.augment recipes/german/en-de-wide.toml

It writes the file that ``data.augmented_path`` of the recipe names. ``weights.toml`` says how many
pairs of each kind there are. Equal recipes and files give equal pairs.
"""

import argparse
import gzip
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.augment.nouns import Nouns
from recipes.augment.sentences import Sentences, joined
from recipes.augment.values import Language, Values, fill, rows, table

from seqserve_model.data import Pair
from seqserve_model.parallel_text import divide
from seqserve_model.recipe import DataRecipe, Recipe

_TRIES = 40
_JOINED_CHARS = 240
_CODES = frozenset("@/{<[%$_#\\`0123456789")


class Maker:
    """Makes pairs for two languages by a seed."""

    def __init__(self, source: str, target: str, pairs: Sequence[Pair], seed: int = 1) -> None:
        languages = Language.of(source), Language.of(target)
        self._pairs = pairs
        self._draw = random.Random(seed)
        self._sentences = Sentences(*languages, self._draw)
        self._values = Values(*languages, self._draw)
        self._nouns = Nouns(source, target, self._draw)
        self._phrases = rows("phrases.tsv", source, target)

    def pairs(self, weights: Mapping[str, float]) -> Iterator[Pair]:
        """Yields the made pairs, one kind after the other."""
        sentences = self._sentences
        kinds = {
            "names": lambda: self._retyped(sentences.names(self._any())),
            "numbers": lambda: self._retyped(sentences.numbers(self._any())),
            "endings": lambda: sentences.ending(self._any()),
            "letters": lambda: sentences.letters(self._any()),
            "joined": lambda: self._retyped(self._joined()),
            "around": lambda: self._phrase("around"),
            "phrases": lambda: self._phrase("phrase"),
            "words": lambda: self._phrase("word"),
            "messages": lambda: self._phrase("message"),
            "several": self._several,
            "nouns": lambda: self._phrase("noun"),
        }
        for kind, make in kinds.items():
            for _ in range(round(weights.get(kind, 0.0) * len(self._pairs))):
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

    def _several(self) -> Pair | None:
        """Makes a sentence of two or three values: one as it is written, or one of two clauses."""
        if "several" not in self._phrases:
            return None
        if self._draw.random() < 0.5:
            return self._phrase("several")
        # Filled one by one, so that each clause has different values.
        one, other = map(self._values.pair, self._draw.sample(self._phrases["clause"], 2))
        joint = self._draw.choice(self._phrases["joint"])
        return self._retyped(
            Pair(
                *(
                    fill(side, {"clause1": begin[0].upper() + begin[1:], "clause2": end})
                    for side, begin, end in zip(joint, one, other, strict=True)
                )
            )
        )

    def _joined(self) -> Pair | None:
        count = self._draw.choice((2, 2, 2, 3))
        text = joined([self._changed(self._any()) for _ in range(count)])
        return text if max(map(len, text)) <= _JOINED_CHARS else None

    def _changed(self, pair: Pair) -> Pair:
        if self._draw.random() < 0.5:
            return pair
        return self._sentences.names(pair) or self._sentences.numbers(pair) or pair

    def _retyped(self, pair: Pair | None) -> Pair | None:
        if pair and self._draw.random() < 0.2:
            pair = self._sentences.ending(pair) or pair
        # Nobody types addresses and codes in other letters.
        if pair and self._draw.random() < 0.12 and not _CODES.intersection(pair.source):
            pair = self._sentences.letters(pair) or pair
        return pair


def augmented(recipe: Recipe, weights: Mapping[str, Any]) -> list[Pair]:
    """Makes the pairs of a recipe, of the first file's training pairs and of those in ``times``."""
    data = recipe.data
    division = divide(data, print)
    times = {**weights.get("times", {}), data.training_files[0].path: 1}
    sources = [
        pair for pair in division.training for _ in range(times.get(division.files[pair].path, 0))
    ]
    languages = recipe.languages
    maker = Maker(languages.source, languages.target, sources, weights.get("seed", 1))
    return division.without_held_out(maker.pairs(weights))


def write(pairs: Sequence[Pair], data: DataRecipe) -> Path:
    """Writes pairs in the columns of a recipe's other files."""
    order = slice(None, None, 1 if data.source_column < data.target_column else -1)
    text = "".join("\t".join(pair[order]) + "\n" for pair in pairs)
    path = Path(data.augmented_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m recipes.augment", description=__doc__)
    parser.add_argument("recipe", type=Path, help="its name is a section of weights.toml")
    path = parser.parse_args().recipe
    recipe = Recipe.load(path)
    pairs = augmented(recipe, table("weights.toml")[path.stem])
    print(f"{write(pairs, recipe.data)}: {len(pairs):,} pairs")


if __name__ == "__main__":
    main()

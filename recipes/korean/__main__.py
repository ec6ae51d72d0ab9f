"""Writes the everyday sentences of ko-en and en-ko: ``python -m recipes.korean``.

Tatoeba has 5,514 Korean pairs, so that most everyday words occur there once or never. The grammar
puts the words of everyday.toml into plain sentences. It is the project's own text. The sentences of
shown.tsv, which models/README.md shows, are left out.
"""

import argparse
import gzip
import tomllib
from pathlib import Path

from recipes.korean.grammar import Grammar
from recipes.korean.words import Pair

HERE = Path(__file__).parent
OUT = HERE / "everyday-eng-kor.tsv.gz"


def shown() -> set[str]:
    """Returns the sentences, of both languages, that models/README.md shows: none is learnt."""
    lines = (HERE / "shown.tsv").read_text(encoding="utf-8").splitlines()
    return {sentence for line in lines for sentence in line.split("\t")}


def sentences(count: int, seed: int = 1) -> list[Pair]:
    """Draws a number of different pairs, none of which is shown."""
    words = tomllib.loads((HERE / "everyday.toml").read_text(encoding="utf-8"))
    barred = shown()
    pairs: dict[Pair, None] = {}
    for pair in Grammar(words, seed).pairs():
        if not barred.intersection(pair):
            pairs[pair] = None
        if len(pairs) == count:
            return list(pairs)
    raise AssertionError("a grammar draws without end")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m recipes.korean", description=__doc__)
    parser.add_argument("--count", type=int, default=30_000, help="number of pairs")
    parser.add_argument("--out", type=Path, default=OUT, help="file to write")
    arguments = parser.parse_args()
    text = "".join(f"{english}\t{korean}\n" for english, korean in sentences(arguments.count))
    arguments.out.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()

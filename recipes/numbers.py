"""Measures the check of numbers: false alarms, wrong answers found, answers mended.

    python -m recipes.numbers pairs tatoeba-eng-deu.tsv.gz en de
    python -m recipes.numbers answers models/en-de/5
    python -m recipes.numbers answers models/de-en/1 --source-language de
    python -m recipes.numbers lost models/en-pt/1 tatoeba-eng-deu.tsv.gz

``pairs`` compares human translations, which are right, and then wrong ones made of them: with a
number dropped, changed or exchanged with another one. ``answers`` translates the lines of several
numbers of the development set, and those of german/numbers.tsv with 30 fillings each. It tells how
many have all numbers right, without ``verify_numbers`` and with it, and how many of the others are
warned of. The forms in which the numbers were written tell what is right, not the check. ``lost``
translates 500 sources with a digit, and counts answers without some of their digits, and those of
them that are not warned of: they have another form of the number, or have lost it.
"""

import argparse
import gzip
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from recipes.augment.values import Language, Values, fill
from recipes.german.__main__ import development, is_copied

from seqserve_model.data import read_pairs
from seqserve_server import Offline
from seqserve_server.text.quantities.comparison import differences
from seqserve_server.text.quantities.reading import Quantity, has_digit, quantities_in

TEMPLATES = Path(__file__).parent / "german" / "numbers.tsv"
"""In English and German."""
_FILLINGS = 30
_SOURCES = 500
_SEED = 50
# A number, a code, a month before a day or a year.
_NUMBER = re.compile(r"\w*\d(?:[\w.,:/-]*\w)?|[A-Z][a-zä]{2,8}(?= \d)")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)$")
_DATE = re.compile(r"[\d./-]{8,10}")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m recipes.numbers", description=__doc__)
    commands = parser.add_subparsers(required=True)
    pairs, answers, lost = map(commands.add_parser, ("pairs", "answers", "lost"))
    pairs.set_defaults(measure=measure_pairs)
    pairs.add_argument("path", type=Path, help="pairs of sentences, by TAB, gzipped")
    pairs.add_argument("languages", nargs=2)
    answers.set_defaults(measure=measure_answers)
    answers.add_argument("model", type=Path)
    answers.add_argument("--source-language", choices=("en", "de"), default="en")
    lost.set_defaults(measure=measure_lost)
    lost.add_argument("model", type=Path)
    lost.add_argument("path", type=Path, help="pairs of sentences; the first ones are translated")
    for command in (pairs, answers, lost):
        command.add_argument("--shown", type=int, default=0, help="how many mistakes to print")
    given = vars(parser.parse_args())
    given.pop("measure")(**given)


def measure_pairs(path: Path, languages: Sequence[str], shown: int) -> None:
    """Prints the share of right pairs that are warned of, and of wrong ones that are."""
    draw = random.Random(_SEED)
    counts: Counter[str] = Counter()
    found: Counter[str] = Counter()
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            source, target = line.rstrip("\n").split("\t")[:2]
            counts["pairs"] += 1
            if not has_digit(source):
                continue
            counts["with a digit"] += 1
            if differences(source, target, *languages):
                found["with a digit"] += 1
                if found["with a digit"] <= shown:
                    print(f"false alarm: {source} | {target}")
                continue
            for kind, wrong in _wrong(target, languages[1], draw):
                counts[kind] += 1
                is_found = bool(differences(source, wrong, *languages))
                found[kind] += is_found
                if not is_found and counts[kind] - found[kind] <= shown:
                    print(f"{kind}, not found: {source} | {wrong}")
    alarms = found["with a digit"]
    print(f"false alarms: {alarms} of {counts['with a digit']:,} pairs with a digit", end=" ")
    print(f"({alarms / counts['with a digit']:.2%}), {alarms / counts['pairs']:.3%} of all")
    wrong = ("dropped", "changed", "exchanged")
    counts["together"], found["together"] = (sum(map(each.get, wrong)) for each in (counts, found))
    for kind in (*wrong, "together"):
        print(f"{kind}: {found[kind] / counts[kind]:.1%} of {counts[kind]:,} found")


def _wrong(target: str, language: str, draw: random.Random) -> Iterator[tuple[str, str]]:
    quantities = [each for each in quantities_in(target, language) if each.digits]
    if not quantities:
        return
    begin, end = draw.choice(quantities)[:2]
    if not any(map(str.isdecimal, target[begin:end])):
        # CO₂
        return
    yield "dropped", target[:begin] + target[end:]
    place = draw.choice([at for at in range(begin, end) if target[at].isdecimal()])
    other = str((int(target[place]) + draw.randint(1, 9)) % 10)
    yield "changed", target[:place] + other + target[place + 1 :]
    apart = [pair for pair in combinations(quantities, 2) if _are_apart(*pair)]
    if apart:
        (one, its_end), (other_one, end) = (each[:2] for each in draw.choice(apart))
        swapped = target[other_one:end] + target[its_end:other_one] + target[one:its_end]
        yield "exchanged", target[:one] + swapped + target[end:]


def _are_apart(one: Quantity, other: Quantity) -> bool:
    """Returns whether two quantities differ and are not of one date, code or phone number."""
    return (
        other.begin - one.end > 3
        and one.digits != other.digits
        and "day" not in (one.kind, other.kind)
    )


class Asked(NamedTuple):
    """A source, and the ways to write each span that its translation must have."""

    source: str
    spans: Sequence[Sequence[str]]


def measure_answers(model: Path, source_language: str, shown: int) -> None:
    """Prints how many answers have all numbers, with and without a second try."""
    several = [
        Asked(each.source, each.copied)
        for each in development(source_language)
        if each.category == "several numbers"
    ]
    sets = {"development set": several, "templates": list(_filled(source_language))}
    with Offline(model) as offline:
        for name, asked in sets.items():
            sources = [each.source for each in asked]
            for verifies in (False, True):
                results = list(offline.generate(sources, verify_numbers=verifies))
                wrong = right_warned = warned = 0
                for each, result in zip(asked, results, strict=True):
                    is_right = all(is_copied(ways, result.text) for ways in each.spans)
                    wrong += not is_right
                    warned += not is_right and bool(result.warnings)
                    right_warned += is_right and bool(result.warnings)
                    if shown and is_right == bool(result.warnings):
                        print(f"{is_right}: {each.source} | {result.text} | {result.warnings}")
                print(
                    f"{name}, {verifies=}: {len(asked) - wrong} of {len(asked)} right;"
                    f" {warned} of {wrong} others warned of; {right_warned} right ones warned of"
                )


def measure_lost(model: Path, path: Path, shown: int) -> None:
    """Prints how many answers lack digits of their source, and how many without a warning."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found = {line.split("\t")[0] for line in file}
    sources = random.Random(_SEED).sample(sorted(filter(has_digit, found)), _SOURCES)
    with Offline(model) as offline:
        results = list(offline.generate(sources, verify_numbers=False))
    answers = [
        (bool(Counter(_digits(source)) - Counter(_digits(result.text))), result.warnings, line)
        for source, result in zip(sources, results, strict=True)
        for line in [f"{source} | {result.text}"]
    ]
    unwarned = [line for lacks, warnings, line in answers if lacks and not warnings]
    print(f"{sum(lacks for lacks, _, _ in answers)} of {_SOURCES} lack digits", end="; ")
    print(f"{len(unwarned)} of them without a warning", *unwarned[:shown], sep="\n")


def _digits(text: str) -> list[str]:
    return re.findall(r"\d+", re.sub(r"(?<=\d)[.,\s](?=\d{3}(?!\d))", "", text))


def _filled(source_language: str) -> Iterator[Asked]:
    draw = random.Random(_SEED)
    values = Values(Language.of("en"), Language.of("de"), draw)
    is_from_english = source_language == "en"
    for template in read_pairs(TEMPLATES).pairs:
        for _ in range(_FILLINGS):
            source: dict[str, str] = {}
            spans: list[list[str]] = []
            for slot in re.findall(r"\{(\w+)\}", template.source):
                english, german = _value(slot.rstrip("2"), values, draw)
                source[slot] = english if is_from_english else german
                if slot.startswith("time"):
                    spans.append(_ways_of_time(german, is_from_english))
                elif slot != "place":
                    spans += _ways(german, []) if is_from_english else _ways(english, [german])
            yield Asked(
                fill(template.source if is_from_english else template.target, source), spans
            )


def _value(kind: str, values: Values, draw: random.Random) -> tuple[str, str]:
    if kind == "bill":
        text = str(draw.randint(1000, 10 ** draw.randint(5, 9)))
    elif kind == "gate":
        text = draw.choice("ABCDE") + str(draw.randint(1, 60))
    else:
        return values.value(kind)
    return text, text


def _ways(written: str, others: Sequence[str]) -> list[list[str]]:
    if _DATE.fullmatch(written):
        return [[written, *others, *(each.replace(".", "/") for each in others)]]
    plain = [_ORDINAL.sub("", each) for each in _NUMBER.findall(written)]
    return [[each + ending for ending in ("", "st", "nd", "rd", "th")] for each in plain]


def _ways_of_time(german: str, is_german: bool) -> list[str]:
    hour, _, minute = german.split()[0].partition(":")
    hours = [int(hour)] if is_german else [int(hour), int(hour) % 12 or 12]
    if not minute:
        forms = [way for each in hours for way in (f"{each}", f"{each}:00")]
    else:
        forms = [f"{each}{mark}{minute}" for h in hours for each in (h, f"{h:02}") for mark in ":."]
    # "4:45pm", "4:45p.m."
    return [form + half for form in forms for half in ("", "am", "pm", "a", "p")]


if __name__ == "__main__":
    main()

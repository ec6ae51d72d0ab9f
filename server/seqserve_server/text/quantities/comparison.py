"""Compares the quantities of a text and of its translation."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

from seqserve_server.text.quantities.conversion import Measure, measures, sizes_in
from seqserve_server.text.quantities.reading import (
    Quantity,
    Reading,
    quantities_in,
    romans_in,
    squashed,
)
from seqserve_server.text.quantities.words import decimals_in, is_known, months, numbers_in


class Difference(NamedTuple):
    """A quantity that a translation lacks, has too much, or has in the place of another one."""

    source: Quantity | None
    """The quantity of the source; None if the translation has one that the source lacks."""
    target: Quantity | None
    """What the translation has instead; None if it has nothing."""


_ARTICLE = re.compile(r"(?<!\w)[Aa]n?(?!\w)")


class _Side:
    """The quantities of one of the two texts, as they are accounted for."""

    def __init__(self, text: str, language: str) -> None:
        self.text, self.language = text, language
        self.left = quantities_in(text, language)

    @cached_property
    def words(self) -> set[Reading]:
        """Numbers in words and months, wherever they are."""
        words: set[Reading] = set(romans_in(self.text))
        if is_known(self.language):
            words.update(numbers_in(self.text, self.language))
            words.update(decimals_in(self.text, self.language))
            if self.language == "en" and _ARTICLE.search(self.text):
                words.add("a")
            names = months(self.language).finditer(self.text.lower())
            words.update(f"m{match.lastindex}" for match in names)
        return words

    @cached_property
    def squashed(self) -> str:
        return squashed(self.text)


def differences(
    source: str, target: str, source_language: str = "", target_language: str = ""
) -> list[Difference]:
    """Compares the quantities of a source that has a digit with those of its translation.

    Languages are codes of ISO 639, empty if not known. The differences are in the order of the
    source, then of the target; there is none if the translation says the same in another form.
    """
    read, written = _Side(source, source_language), _Side(target, target_language)
    pairs = [*_paired(read, written, is_exact=True), *_paired(read, written, is_exact=False)]
    if read.left or written.left:
        if max(len(read.left), len(written.left)) <= _MOST_COMPARED:
            _pair_times(read, written)
            _pair_parts(read, written)
            _pair_parts(written, read)
            _pair_converted(read, written)
            _pair_converted(written, read)
        for side, other in ((read, written), (written, read)):
            side.left = [each for each in side.left if not _is_told(each, other)]
        # One number may be divided in the other text: 403-6578, 4036578.
        if len(read.left) != len(written.left) and _digits(read) == _digits(written):
            read.left, written.left = [each for each in read.left if not each.digits], []
        if not any(each.kind == "month" for each in read.left):
            written.left = [each for each in written.left if each.digits]
    if not (read.left or written.left):
        is_ordered = is_known(source_language) and is_known(target_language)
        return _swapped(pairs, source, target, is_ordered=is_ordered)
    if len(read.left) == len(written.left):
        return [*map(Difference, read.left, written.left)]
    lost = [Difference(each, None) for each in read.left]
    return lost + [Difference(None, each) for each in written.left]


def _swapped(
    pairs: Sequence[tuple[Quantity, Quantity]], source: str, target: str, *, is_ordered: bool
) -> list[Difference]:
    """Finds quantities that have changed places.

    Two of one kind come in the order of the source, between languages whose order is alike, unless
    each keeps the word after it: 3 km in 36 minutes, in 36 Minuten 3 km. Of two kinds, each keeps
    its own.
    """
    found: dict[Quantity, Quantity] = {}
    for (one, its), (other, others) in combinations(sorted(pairs)[:_MOST_COMPARED], 2):
        kinds, written = (one.kind, other.kind), (its.kind, others.kind)
        if kinds[0] == kinds[1] and (written[0] == written[1] or "" in written):
            is_swapped = is_ordered and its.begin > others.begin and other.begin > one.end + 1
            if is_swapped and not kinds[0] and other.begin > one.end + _LONGEST_GAP:
                initials = [_initial(source, each) for each in (one, other)]
                is_swapped = initials != [_initial(target, each) for each in (its, others)]
        else:
            is_swapped = kinds == written[::-1]
        if is_swapped and its.readings != others.readings:
            found |= {one: others, other: its}
    return [*map(Difference, found.keys(), found.values())]


_MOST_COMPARED = 32
_LONGEST_GAP = 5
_INITIAL = re.compile(r"[ -]([^\W\d_])")


def _initial(text: str, quantity: Quantity) -> str:
    match = _INITIAL.match(text, quantity.end)
    return match[1].lower() if match else ""


def _paired(read: _Side, written: _Side, *, is_exact: bool) -> list[tuple[Quantity, Quantity]]:
    """Takes from both sides the quantities that are the same, or have equal digits too."""

    def keys(quantity: Quantity) -> list[tuple[Reading, str]]:
        return [(reading, quantity.digits * is_exact) for reading in quantity.readings]

    waiting: defaultdict[Any, list[Quantity]] = defaultdict(list)
    for each in reversed(written.left):
        for key in keys(each):
            waiting[key].append(each)
    pairs, left = [], []
    taken: set[Quantity] = set()
    for each in read.left:
        found = [
            others[-1]
            for key in keys(each)
            if (others := waiting[key]) and _first_free(others, taken)
        ]
        if found:
            other = min(found)
            taken.add(other)
            pairs.append((each, other))
        else:
            left.append(each)
    read.left, written.left = left, [each for each in written.left if each not in taken]
    return pairs


def _first_free(others: list[Quantity], taken: set[Quantity]) -> bool:
    while others and others[-1] in taken:
        others.pop()
    return bool(others)


def _digits(side: _Side) -> str:
    return "".join(each.digits for each in side.left)


def _is_told(quantity: Quantity, other: _Side) -> bool:
    """Tells whether the other text has a quantity in words, or may have it so."""
    readings, words = quantity.readings, other.words
    numbers = [each for each in readings if isinstance(each, Decimal)]
    if quantity.kind in ("day", "month") and not readings.isdisjoint(words):
        return True
    codes = [each[1:] for each in map(str, readings) if each[0] == "#"]
    if any(_has_code(other.squashed, code) for code in codes):
        return True
    if not is_known(other.language):
        return not (numbers or codes) or any(map(_is_round, numbers))
    if any(_is_time(each, words) for each in _times(quantity)):
        return True
    return any(_is_in_words(each, words) for each in numbers)


def _has_code(text: str, code: str) -> bool:
    begin = text.find(code)
    return begin >= 0 and not text[begin + len(code) : begin + len(code) + 1].isdigit()


def _is_round(number: Decimal) -> bool:
    """Tells whether any language may write a number in words."""
    return number <= 20 or not str(int(number)).rstrip("0")[1:]


_MOST_IN_WORDS = 10**15


def _is_in_words(number: Decimal, words: Collection[Reading]) -> bool:
    if number in words or (number == 1 and "a" in words):
        return True
    if number > _MOST_IN_WORDS:
        return False
    # "deux ans et demi"
    if number % 1 in _FRACTIONS.values() and {number // 1, number % 1} <= {*words}:
        return True
    # "nineteen eighty-four", "ein Meter fünfzig"; "in the eighties"; "half an hour", "ein Viertel"
    hundreds, rest = divmod(number, 100)
    if rest in words and (hundreds in words or (hundreds > 10 and not rest % 10)):
        return True
    return _FRACTIONS.get(number) in words


def _times(quantity: Quantity) -> list[str]:
    # An hour alone may be any number.
    return [
        each
        for each in quantity.readings
        if isinstance(each, str)
        and each[0] == "t"
        and (quantity.kind == "time" or int(each[1:]) % 60)
    ]


_FRACTIONS = {
    **dict.fromkeys(map(Decimal, (30, 50)), Decimal("0.5")),
    **dict.fromkeys(map(Decimal, (15, 25, 45, 75)), Decimal("0.25")),
}


def _is_time(reading: str, words: Collection[Reading]) -> bool:
    """Tells whether words have an hour and what belongs to a time: "halb drei", "ten to three"."""
    hour, minute = divmod(int(reading[1:]), 60)
    hours = {Decimal(hour), Decimal(hour % 12 or 12)}
    if not minute:
        return not hours.isdisjoint(words)
    minutes = {Decimal(minute), Decimal(60 - minute), abs(Decimal(30 - minute))}
    minutes |= {*_FRACTIONS.values()}
    hours.add(Decimal(hour % 12 + 1))
    return not hours.isdisjoint(words) and not minutes.isdisjoint(words)


def _pair_times(read: _Side, written: _Side) -> None:
    """Takes times whose hour alone the other text has in digits: "halb 3"."""
    for side, other in ((read, written), (written, read)):
        for time in side.left[:]:
            for hour in (each for each in other.left if len(each.digits) <= 2):
                words = {*other.words, *hour.readings}
                times = (each for each in _times(time) if int(each[1:]) % 60)
                if any(_is_time(each, words) for each in times):
                    side.left.remove(time)
                    other.left.remove(hour)
                    break


def _pair_parts(side: _Side, other: _Side) -> None:
    """Takes numbers that are a date to the other text: 12.04."""
    for each in side.left[:]:
        text = side.text[each.begin : each.end]
        parts = re.findall(r"\d+", text)
        if len(parts) < 2 or not all(map(str.isdecimal, parts)):
            continue
        found = []
        for part in map(Decimal, parts):
            fitting = (
                one for one in other.left if {part, f"m{part}"} & one.readings and one not in found
            )
            found.append(next(fitting, None))
        if None not in found:
            side.left.remove(each)
            other.left = [one for one in other.left if one not in found]


def _pair_converted(side: _Side, other: _Side) -> None:
    """Takes numbers that the other text has in another unit, in digits or in words."""
    texts = side.text.lower(), other.text.lower()
    for each in side.left[:]:
        own = [*measures(each, texts[0])]
        others = (one for one in other.left if _is_equal(own, measures(one, texts[1])))
        if found := next(others, None):
            other.left.remove(found)
        elif not _is_equal(own, _measures_in_words(own, other, texts[1])):
            continue
        side.left.remove(each)


def _is_equal(measured: Sequence[Measure], others: Iterable[Measure]) -> bool:
    return bool(measured) and any(one.equals(other) for other in others for one in measured)


def _measures_in_words(own: Sequence[Measure], other: _Side, text: str) -> Iterator[Measure]:
    numbers = [each for each in other.words if isinstance(each, Decimal)]
    for kind in {each.kind for each in own}:
        for size in sizes_in(text, kind):
            yield from (Measure(kind, size, number) for number in numbers)

"""Compares the quantities of a text and of its translation, which may be in another unit."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import combinations, islice, pairwise
from typing import Any, NamedTuple

from seqserve_server.text.quantities.reading import Quantity, Reading
from seqserve_server.text.quantities.side import (
    Measure,
    Side,
    is_time,
    measures,
    sizes_in,
    times_of,
)
from seqserve_server.text.quantities.words import is_known


class Difference(NamedTuple):
    """A quantity that a translation lacks, adds, or has instead of another one."""

    source: Quantity | None
    """The quantity of the source; None if the translation has one that the source lacks."""
    target: Quantity | None
    """The translation's quantity instead; None if it has nothing."""


def differences(
    source: str, target: str, source_language: str = "", target_language: str = ""
) -> list[Difference]:
    """Compares the quantities of a source that has a digit with its translation's.

    Languages are codes of ISO 639, or empty. The differences are in the order of the source, then
    of the target.
    """
    read, written = Side(source, source_language), Side(target, target_language)
    pairs = [*_paired(read, written, is_exact=True), *_paired(read, written, is_exact=False)]
    if read.left or written.left:
        if max(len(read.left), len(written.left)) <= _MOST_COMPARED:
            _pair_times(read, written)
            _pair_parts(read, written)
            _pair_parts(written, read)
            _pair_converted(read, written)
            _pair_converted(written, read)
        for side, other in ((read, written), (written, read)):
            side.left = [each for each in side.left if not side.is_told(each, other)]
        # One number may be divided in the other text: 403-6578, 4036578.
        is_divided = len(read.left) != len(written.left) and _digits(read) == _digits(written)
        if is_divided and _are_together(read) and _are_together(written):
            read.left, written.left = [each for each in read.left if not each.digits], []
        if not any(each.kind == "month" for each in read.left):
            written.left = [each for each in written.left if each.digits]
    if not (read.left or written.left):
        are_known = is_known(source_language) and is_known(target_language)
        is_ordered = are_known and "ko" not in (source_language, target_language)
        swapped = _swapped(pairs, source, target, is_ordered=is_ordered)
        return swapped or _in_other_units(pairs, source.lower(), target.lower(), are_known)
    if len(read.left) == len(written.left):
        return [*map(Difference, read.left, written.left)]
    lost = [Difference(each, None) for each in read.left]
    return lost + [Difference(None, each) for each in written.left]


def _in_other_units(
    pairs: Sequence[tuple[Quantity, Quantity]], source: str, target: str, are_known: bool
) -> list[Difference]:
    """Finds equal numbers that count something else, or lack a sign: 5 €, 5 $; 80 %, 80; -5, 5."""
    found, digits = [], re.findall(r"\d+", f"{source} {target}")
    for one, other in sorted(pairs)[:_MOST_COMPARED]:
        own, others = _counted(one, source), _counted(other, target)
        is_other = bool(own and others) and own.isdisjoint(others)
        sign = are_known and _SIGN.search(source, max(0, one.begin - 4))
        if sign and sign.start() <= one.end + 1:
            is_other |= bool(own) and not any(size in sizes_in(target, kind) for kind, size in own)
        if one.kind in ("day", "month", "year"):
            around = f"{target[: other.begin][-2:]}#{target[other.end :][:4]}"
            is_other |= bool(_PRICE.search(around))
        # No clock shows it: gate 77 at 8:20, um 77 Uhr von Tor 8:20.
        if len(one.digits) == 2 and one.digits > "24" and _HOUR.match(target, other.end):
            is_other |= not _HOUR.match(source, one.end)
        is_signed = _is_negative(one, source)
        if is_signed != _is_negative(other, target):
            is_other |= not _BELOW.search(target if is_signed else source)
        # Of two equal numbers nothing tells which is which.
        if is_other and digits.count(one.digits) <= 2:
            found.append(Difference(_with_unit(one, source), _with_unit(other, target)))
    return found


def _with_unit(quantity: Quantity, text: str) -> Quantity:
    before = _BEFORE.search(text, max(0, quantity.begin - 5), quantity.begin)
    is_counted = quantity.kind != "year" and _counted(quantity, text)
    after = _AFTER.match(text, quantity.end) if is_counted else None
    begin = before.start() if before else quantity.begin
    return quantity._replace(begin=begin, end=after.end() if after else quantity.end)


_BEFORE = re.compile(r"(?:[-−]?[€$£¥] ?|\b(?:eur|usd|gbp|jpy|chf|pln) |(?<!\S)[-−])\Z")
_HOUR = re.compile(r"[ \u00a0]?(?:uhr\b|o'clock\b|[ap]\.? ?m\b|시(?!간))")
_AFTER = re.compile(r"[ \u00a0\u202f-]?(?:[%‰€$£¥]|°? ?[^\W\d_]{1,15})")


# A translation has it too, or a word for it.
_PRICE = re.compile(r"[€$£¥] ?#|# ?[€$£¥](?! ?\d)")
_SIGN = re.compile(r"[%€$£¥]|\b(?:eur|usd|gbp|jpy|chf|pln|km|cm|mm|kg|ml|mph)\b")


def _is_negative(quantity: Quantity, text: str) -> bool:
    return _MINUS.search(text, max(0, quantity.begin - 7), quantity.begin) is not None


# Not between two numbers.
_MINUS = re.compile(r"(?:\A|[^\w\s)%°.,/-]|(?<![\d)%°])\s)[-−][€$£¥]?\Z|\b(?:minus|영하) \Z")
_BELOW = re.compile(
    r"[-−–][ €$£¥]?\d|minus|below|under|negativ|zero|unter|null"
    r"|moins|sous|meno|sotto|bajo|abaixo|onder|poniżej|영하|마이너스"
)


def _counted(quantity: Quantity, text: str) -> set[tuple[str, Decimal]]:
    # "5 h" may be an hour of the day.
    hours = [("time", Decimal(0))] * (quantity.kind == "time")
    return {*hours, *((each.kind, each.size) for each in measures(quantity, text))}


def _swapped(
    pairs: Sequence[tuple[Quantity, Quantity]], source: str, target: str, *, is_ordered: bool
) -> list[Difference]:
    """Finds quantities that have changed places.

    Two of one kind come in the order of the source, between languages whose order is alike, unless
    one keeps the initial of the word after it, or both keep their units: in 36 Minuten 3 km.
    """
    found: dict[Quantity, Quantity] = {}
    for (one, its), (other, others) in combinations(sorted(pairs)[:_MOST_COMPARED], 2):
        kinds, written = (one.kind, other.kind), (its.kind, others.kind)
        if kinds[0] == kinds[1] and (written[0] == written[1] or "" in written):
            is_swapped = is_ordered and its.begin > others.begin and other.begin > one.end + 1
            if is_swapped and not kinds[0] and other.begin > one.end + _LONGEST_GAP:
                words = [(_initial(source, one), _initial(target, its))]
                words += [(_initial(source, other), _initial(target, others))]
                is_swapped = not any(own == its_own != "" for own, its_own in words)
                units = [_counted(each, source.lower()) for each in (one, other)]
                kept = [_counted(each, target.lower()) for each in (its, others)]
                is_swapped &= units[0] == units[1] or units != kept
        else:
            # "6 euros instead of 9" is "6 instead of 9 euros".
            is_swapped = kinds == written[::-1] and ("" not in kinds or its.begin > others.begin)
        if is_swapped and its.readings != others.readings:
            found |= {one: others, other: its}
    return [*map(Difference, found.keys(), found.values())]


_MOST_COMPARED = 32
_LONGEST_GAP = 5
_INITIAL = re.compile(r"[ -]([^\W\d_])")


def _initial(text: str, quantity: Quantity) -> str:
    match = _INITIAL.match(text, quantity.end)
    return match[1].lower() if match else ""


def _paired(read: Side, written: Side, *, is_exact: bool) -> list[tuple[Quantity, Quantity]]:
    """Takes from both sides the quantities that are the same, or have equal digits too."""

    def keys(quantity: Quantity) -> list[tuple[Reading, str, bool]]:
        # In "5월 5일" a month and a day have the same digits.
        is_month = is_exact and quantity.kind == "month"
        return [(each, quantity.digits * is_exact, is_month) for each in quantity.readings]

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


def _digits(side: Side) -> str:
    return "".join(each.digits for each in side.left)


def _are_together(side: Side) -> bool:
    gaps = (side.text[one.end : other.begin] for one, other in pairwise(side.left))
    return all(map(_WITHIN.fullmatch, gaps))


# Text within a phone number, or within 1 m 55.
_WITHIN = re.compile(
    r"(?!, )\W{0,3}(?:(?:m|m[eèé]t\w{2,3}|euros?|dollars?|uhr)\W{0,3})?", re.IGNORECASE
)


def _pair_times(read: Side, written: Side) -> None:
    """Takes times whose hour alone the other text has in digits: "halb 3"."""
    for side, other in ((read, written), (written, read)):
        for time in side.left[:]:
            for hour in (each for each in other.left if len(each.digits) <= 2):
                words = {*other.words, *hour.readings}
                times = (each for each in times_of(time) if int(each[1:]) % 60)
                if any(is_time(each, words, other.language) for each in times):
                    side.left.remove(time)
                    other.left.remove(hour)
                    break


def _pair_parts(side: Side, other: Side) -> None:
    """Takes numbers that are a date, or parts of a version, to the other text: 12.04."""
    for each in side.left[:]:
        text = side.text[each.begin : each.end]
        parts = re.findall(r"\d+", text)
        if len(parts) < 2 or "," in text or not all(map(str.isdecimal, parts)):
            continue
        found: list[Quantity] = []
        for part in map(Decimal, parts):
            fitting = (
                one for one in other.left if {part, f"m{part}"} & one.readings and one not in found
            )
            found += islice(fitting, 1)
        gaps = {other.text[one.end : following.begin] for one, following in pairwise(found)}
        is_date = gaps <= {*"./-"} or any(one.kind in ("day", "month") for one in found)
        if is_date and len(found) == len(parts):
            side.left.remove(each)
            other.left = [one for one in other.left if one not in found]


def _pair_converted(side: Side, other: Side) -> None:
    """Takes numbers that the other text has in another unit, in digits or in words."""
    texts = side.text.lower(), other.text.lower()
    for each in side.left[:]:
        own = [*measures(each, texts[0])]
        others = (one for one in other.left if _is_equal(own, measures(one, texts[1])))
        if found := next(others, None):
            other.left.remove(found)
        elif _is_equal(own, _measures_in_words(own, side, texts[0])) or not _is_equal(
            own, _measures_in_words(own, other, texts[1])
        ):
            # Of "a mile is 1,600 meters" the mile tells nothing of the meters.
            continue
        side.left.remove(each)


def _is_equal(measured: Sequence[Measure], others: Iterable[Measure]) -> bool:
    return bool(measured) and any(one.equals(other) for other in others for one in measured)


def _measures_in_words(own: Sequence[Measure], other: Side, text: str) -> Iterator[Measure]:
    words = (Decimal(1) if each == "a" else each for each in other.words)
    numbers = {each for each in words if isinstance(each, Decimal)}
    for kind in {each.kind for each in own}:
        sizes = sizes_in(text, kind)
        yield from (Measure(kind, size, number) for size in sizes for number in numbers)

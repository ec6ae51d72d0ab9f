"""A task without data: numbers in digits and in English words, "427" → "four hundred twenty-seven".

Small enough to learn in about a minute on one core, and there is only one right answer: it shows
that the whole chain works before any real text is at hand.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from seqserve_model.data import Pair

LARGEST = 999_999

# fmt: off
_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)
# fmt: on
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def spell(number: int) -> str:
    """Writes a number between 0 and 999,999 in English words."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, rest = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_SMALL[rest]}" if rest else "")
    unit, name = (1_000, "thousand") if number >= 1_000 else (100, "hundred")
    count, rest = divmod(number, unit)
    return f"{spell(count)} {name}" + (f" {spell(rest)}" if rest else "")


def number_pairs(count: int, seed: int = 1) -> Iterator[Pair]:
    """Draws different numbers from 1 on: all of the short ones, where count is large.

    Of 20,000 some 1,000 have up to three digits, 5,100 four, 7,200 five and 6,700 six.
    """
    random_ = random.Random(seed)
    seen: set[int] = set()
    while len(seen) < min(count, LARGEST):
        # Not 0: no other number has its word, and one pair teaches nothing.
        number = random_.randrange(1, 10 ** random_.randint(1, 6))
        if number not in seen:
            seen.add(number)
            yield Pair(str(number), spell(number))

from __future__ import annotations

from collections.abc import Iterable

import pytest

from seqserve.command.line_numbers import LineNumbers


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], ""),
        ([7], "7"),
        ([2, 3, 9, 11, 12, 13], "2-3, 9, 11-13"),
        (range(1, 100_000), "1-99999"),
        (range(2, 42, 2), ", ".join(map(str, range(2, 42, 2)))),
        (
            [*range(2, 42, 2), 41, 43, 44],
            ", ".join(map(str, range(2, 40, 2))) + ", 40-41 and 2 more",
        ),
    ],
)
def test_ranges_are_shown_and_the_rest_counted(numbers: Iterable[int], shown: str) -> None:
    lines = LineNumbers()
    for number in numbers:
        lines.add(number)
    assert str(lines) == shown

"""Numbers of lines, for a report of one line."""

from __future__ import annotations

_MAX_RANGES = 20


class LineNumbers:
    """Counts line numbers, which come in order, and shows the first ones."""

    def __init__(self) -> None:
        """Starts empty."""
        self.count = 0
        self._ranges: list[tuple[int, int]] = []
        self._others = 0

    def add(self, number: int) -> None:
        """Adds a number, which is greater than the ones before."""
        self.count += 1
        if self._others or (len(self._ranges) == _MAX_RANGES and self._ranges[-1][1] < number - 1):
            self._others += 1
        elif self._ranges and self._ranges[-1][1] == number - 1:
            self._ranges[-1] = (self._ranges[-1][0], number)
        else:
            self._ranges.append((number, number))

    def __str__(self) -> str:
        """Shows ranges: ``2-3, 9``."""
        ranges = (str(a) if a == b else f"{a}-{b}" for a, b in self._ranges)
        return ", ".join(ranges) + (f" and {self._others} more" if self._others else "")

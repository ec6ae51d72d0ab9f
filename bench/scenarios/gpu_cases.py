"""Cases of the benchmark on a GPU, and the time for them."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

from bench.drivers import Rows
from bench.models import random_sources
from bench.random_artifact import SHAPES, folder_name

BEAM_SIZE = 5
_GRACE_S = 5.0
"""How much later than planned an engine that is busy is ended."""
LENGTH = 32
"""Target tokens of each source."""
_LONG = {"BART-large-CNN": (128, 260, 440)}
"""Target tokens, and the fewest and most source tokens, of shapes with long sources."""
_WAVES = 2
"""Times as many sources in a turn as are in flight."""


@dataclass(frozen=True, slots=True)
class Case:
    """A shape, and how many sources are in flight."""

    shape: str
    """A key of :data:`~bench.random_artifact.SHAPES`."""
    rows: int
    beam_size: int = 1
    is_served: bool = False
    """Whether callers ask our server, and no other engine."""

    @classmethod
    def parse(cls, text: str) -> Case:
        """Reads ``bart-large:64``, ``marian-base:8:beam`` or ``marian-base:64:served``."""
        name, rows, *rest = text.split(":")
        shapes = {folder_name(shape): shape for shape in SHAPES}
        if name not in shapes or rest not in ([], ["beam"], ["served"]):
            raise ValueError(
                f"{text}: not SHAPE:ROWS[:beam|:served]; shapes are {', '.join(shapes)}"
            )
        beam_size = BEAM_SIZE if rest == ["beam"] else 1
        return cls(shapes[name], int(rows), beam_size, is_served=rest == ["served"])

    @property
    def label(self) -> str:
        """As :meth:`parse` reads it."""
        rest = ":beam" * (self.beam_size > 1) + ":served" * self.is_served
        return f"{folder_name(self.shape)}:{self.rows}{rest}"

    @property
    def length(self) -> int:
        """Target tokens of each source."""
        return _LONG[self.shape][0] if self.shape in _LONG else LENGTH

    def sources(self) -> Rows:
        """Draws sources, the end token last in each."""
        config, count = SHAPES[self.shape], _WAVES * self.rows
        if self.shape not in _LONG:
            return random_sources(count, config=config)
        draw = random.Random(7)
        _, fewest, most = _LONG[self.shape]
        return [
            [*draw.choices(range(4, config.vocabulary_size), k=draw.randint(fewest, most) - 1),
             config.eos_id]
            for _ in range(count)
        ]  # fmt: skip


_CASES = """
    marian-base:64:served marian-base:64 t5-base:64 marian-base:256 marian-base:1024 marian-base:1
    marian-base:1:served bart-large-cnn:64 marian-base:256:served flan-t5-base:64 marian-base:8:beam
    marian-base:64:beam bart-large-cnn:32 bart-large-cnn:128 t5-base:1 t5-base:64:served
    marian-base:8 bart-large:1 bart-large:64 nllb-600m:1 nllb-600m:64 bart-large:256 nllb-600m:256
"""
CASES = tuple(Case.parse(label) for label in _CASES.split())
"""The most important cases come first."""


class Clock:
    """Time that is left for cases."""

    def __init__(self, max_s: float) -> None:
        self._began_s = time.monotonic()
        self._end_s = self._began_s + max_s

    @property
    def left_s(self) -> float:
        """Seconds until no case should begin."""
        return self._end_s - time.monotonic()

    def patience_s(self, most_s: float = math.inf) -> float:
        """How long to wait for something that takes ``most_s`` at most."""
        return min(max(self.left_s, 0.0) + _GRACE_S, most_s)

    def say(self, text: str) -> None:
        """Prints a line with the time before it."""
        print(f"{time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)

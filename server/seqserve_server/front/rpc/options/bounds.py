"""The numbers among the options of a request: what each may be, and what it is where not said."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.limits import MAX_TOP_K


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a number may be."""

    default: float
    least: float
    most: float = math.inf
    above: bool = False
    """Whether the least itself is too little."""
    below: bool = False
    """Whether the most itself is too much."""

    def holds(self, value: float) -> bool:
        """Tells whether a value is within; what is not a number is not."""
        is_edge = (self.above and value == self.least) or (self.below and value == self.most)
        return self.least <= value <= self.most and not is_edge

    def complaint(self, value: float) -> str:
        """Says what is wrong with a value."""
        shown = f"{value:g}"
        if self.holds(float(shown)):
            # Only rounded does it look right.
            shown = f"{value:.9g}"
        return f"is {shown}; it must be {self}"

    def __str__(self) -> str:
        """Says what would be right."""
        begin = f"above {self.least:g}" if self.above else f"at least {self.least:g}"
        end = f"below {self.most:g}" if self.below else f"at most {self.most:g}"
        return begin if math.isinf(self.most) else f"{begin} and {end}"


_BOUNDS = {
    "beam_size": _Bounds(1, 1),
    "patience": _Bounds(1.0, 0.0, 16.0, above=True),
    "length_penalty": _Bounds(1.0, 0.0, 16.0),
    "coverage_penalty": _Bounds(0.0, 0.0, 16.0),
    "num_hypotheses": _Bounds(1, 1),
    "min_alternative_expansion_prob": _Bounds(0.0, 0.0, 1.0),
    "temperature": _Bounds(1.0, 0.0, 1000.0, above=True),
    "top_k": _Bounds(0, 0),
    "top_p": _Bounds(1.0, 0.0, 1.0, above=True),
    "min_p": _Bounds(0.0, 0.0, 1.0),
    "repetition_penalty": _Bounds(1.0, 1 / 64, 64.0),
    "no_repeat_ngram_size": _Bounds(0, 0),
    "prefix_bias_beta": _Bounds(0.0, 0.0, 1.0, below=True),
    "return_top_tokens": _Bounds(0, 0, MAX_TOP_K),
    "time_limit_ms": _Bounds(math.inf, 1),
}


def numbers_of(options: generation_pb2.GenerationOptions) -> dict[str, float]:
    """Gives each number by its name; its default where it is not set.

    Raises:
        InvalidRequest: One is out of its bounds.
    """
    numbers = {name: bounds.default for name, bounds in _BOUNDS.items()}
    for field, value in options.ListFields():
        bounds = _BOUNDS.get(field.name)
        if bounds is None:
            continue
        if not bounds.holds(value):
            raise InvalidRequest(f"options.{field.name}", bounds.complaint(value))
        numbers[field.name] = value
    return numbers

"""Chooses the sentence that a server decodes at load time, to check that it computes as proven.

Another processor may round sums differently in the last bits. So the choice falls on a sentence in
which no token had a close second.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from numpy.typing import NDArray

from seqserve_server.artifact.manifest import SelfTest


class Candidate(NamedTuple):
    """A sentence with a target that ends, and that torch and the artifact decode alike."""

    source: str
    target: str
    margins: NDArray[Any]
    """By how much each token's logit leads over the second, ``[T]``; the end token is the last."""


def choose_self_test(candidates: Sequence[Candidate]) -> SelfTest | None:
    """Chooses the sentence with the largest of the smallest margins; None where there is none.

    It has a target that is not empty and not shorter than the median.
    """
    usable = [candidate for candidate in candidates if len(candidate.margins) > 1]
    if not usable:
        return None
    min_length = median(len(candidate.margins) for candidate in usable)
    long = [candidate for candidate in usable if len(candidate.margins) >= min_length]
    surest = max(long, key=lambda candidate: float(candidate.margins.min()))
    return SelfTest(source=surest.source, target=surest.target)

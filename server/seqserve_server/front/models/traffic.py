"""How the calls that name no version are shared among the versions of a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

from seqserve.errors import OptionError

Weights: TypeAlias = Mapping[int, int]
"""Weight of each version; a version that is not there has none."""

MOST_WEIGHT = 1_000_000
_SHARE = re.compile(r"([1-9][0-9]{0,8})=([0-9]{1,7})")


def portions(weights: Weights, ready: Collection[int]) -> dict[int, float]:
    """Gives the share of each version that is ready; they add up to 1 where any is.

    Where no version that is ready has a weight, the highest one has all.
    """
    weighted = _weighted(weights, ready)
    total = sum(weight for _, weight in weighted)
    return {version: weight / total for version, weight in weighted}


def chosen(weights: Weights, ready: Collection[int], key: str) -> int:
    """Chooses a version that is ready.

    Args:
        weights: By version.
        ready: The versions that are; at least one.
        key: Of the call. Equal keys choose alike; different ones as if dice were thrown.
    """
    weighted = _weighted(weights, ready)
    if len(weighted) > 1:
        place = _number(key) % sum(weight for _, weight in weighted)
        for version, weight in weighted[:-1]:
            place -= weight
            if place < 0:
                return version
    return weighted[-1][0]


def _weighted(weights: Weights, ready: Collection[int]) -> list[tuple[int, int]]:
    found = [(version, weights[version]) for version in sorted(ready) if weights.get(version)]
    return found or [(version, 1) for version in [max(ready, default=0)] if version]


def _number(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")


def parse_traffic(texts: Sequence[str]) -> dict[str, dict[int, int]]:
    """Reads ``--traffic``: for each model the weights of its versions.

    Args:
        texts: Each as ``NAME:VERSION=WEIGHT,VERSION=WEIGHT``.

    Raises:
        OptionError: One is not of that form, or a model is given twice.
    """
    traffic: dict[str, dict[int, int]] = {}
    for text in texts:
        name, colon, shares = text.rpartition(":")
        parts = [_SHARE.fullmatch(part) for part in shares.split(",")]
        weights = {int(part[1]): int(part[2]) for part in parts if part}
        if not (name and colon and len(weights) == len(parts)):
            raise OptionError(
                f"--traffic: {text!r} is not of the form NAME:VERSION=WEIGHT,VERSION=WEIGHT,"
                " as en-de:1=90,2=10"
            )
        if name in traffic:
            raise OptionError(f"--traffic: {name} is given twice; put its versions together")
        wrong = wrong_with(weights)
        if wrong:
            raise OptionError(f"--traffic: {text!r}: {wrong}")
        traffic[name] = weights
    return traffic


def wrong_with(weights: Weights) -> str:
    """Says what is wrong with weights; nothing where they are right."""
    if any(version < 1 for version in weights):
        return "versions begin at 1"
    if any(not 0 <= weight <= MOST_WEIGHT for weight in weights.values()):
        return f"a weight is from 0 to {MOST_WEIGHT}"
    if weights and not any(weights.values()):
        return "all weights are 0; give one version more"
    return ""

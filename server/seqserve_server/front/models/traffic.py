"""Divides calls that name no version among the versions of a model, by weight."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

from seqserve.errors import OptionError
from seqserve_server.front.models.lifecycle import VERSION

Weights: TypeAlias = Mapping[int, int]
"""Weight of each version; a version without an entry has weight 0."""

MAX_WEIGHT = 1_000_000
_SHARE = re.compile(rf"({VERSION})=([0-9]{{1,7}})")


def traffic_shares(weights: Weights, ready: Collection[int]) -> dict[int, float]:
    """Computes the share of each ready version; the shares sum to 1 if any version is ready.

    If no ready version has a weight, the highest one gets all calls.
    """
    weighted = _weighted(weights, ready)
    total = sum(weight for _, weight in weighted)
    return {version: weight / total for version, weight in weighted}


def choose_version(weights: Weights, ready: Collection[int], key: str) -> int:
    """Chooses one of the ready versions by weight.

    Equal keys get the same version; a hash of the key is the random number.
    """
    weighted = _weighted(weights, ready)
    if len(weighted) > 1:
        digest = blake2b(key.encode(), digest_size=8).digest()
        rest = int.from_bytes(digest, "big") % sum(weight for _, weight in weighted)
        for version, weight in weighted[:-1]:
            rest -= weight
            if rest < 0:
                return version
    return weighted[-1][0]


def _weighted(weights: Weights, ready: Collection[int]) -> list[tuple[int, int]]:
    weighted = [(version, weights[version]) for version in sorted(ready) if weights.get(version)]
    return weighted or [(version, 1) for version in [max(ready, default=0)] if version]


def parse_traffic(texts: Sequence[str]) -> dict[str, dict[int, int]]:
    """Parses ``--traffic``, ``NAME:VERSION=WEIGHT,...``, into the weights of each model."""
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
        if error := weights_error(weights):
            raise OptionError(f"--traffic: {text!r}: {error}")
        traffic[name] = weights
    return traffic


def weights_error(weights: Weights) -> str:
    """Describes what is wrong with weights; empty if they are valid."""
    if any(version < 1 for version in weights):
        return "versions begin at 1"
    if any(not 0 <= weight <= MAX_WEIGHT for weight in weights.values()):
        return f"a weight is from 0 to {MAX_WEIGHT}"
    if weights and not any(weights.values()):
        return "all weights are 0; give one version more"
    return ""

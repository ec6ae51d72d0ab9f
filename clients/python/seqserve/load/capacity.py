"""How many servers a rate needs, and what each of them needs: ``docs/capacity.md`` explains it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FRONT_MI = 128
"""MiB of the front; this and the other figures here are the Helm chart's."""
ANSWERS_MI = 256
"""MiB for answers, ``--max-answer-mb``."""
VERSION_MI = 160
"""MiB of a version that was not measured."""
VERSIONS = 5
"""Versions at a time if they were not counted."""
SURGE = 1
"""Servers that are there twice while an image is replaced."""

# Allows for peaks above the measured size of a version.
_PEAK = 1.25
_STEP_MI = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One measured server; None if a figure is unknown."""

    rate_per_s: float
    """Highest rate at which the 99th percentile of whole answers held the limit."""
    in_flight: float
    """Requests in flight then, on average."""
    cores: int | None = None
    slots: int | None = None
    versions: int | None = None
    """That are loaded."""
    version_bytes: int | None = None
    """Resident memory of the engines of the version that was called."""

    @classmethod
    def of(cls, result: Mapping[str, Any], **known: int | None) -> Replica:
        """Reads the result of a search for the highest rate, which has found one."""
        # Little's law: how many come in the time that one stays.
        in_flight = result["request_throughput"] * 1e-3 * result["mean_e2el_ms"]
        return cls(rate_per_s=result["highest_request_rate"], in_flight=in_flight, **known)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """Servers for a rate."""

    rate_per_s: float
    """Requests a second, over all servers."""
    headroom: float
    """Share of its highest rate that a server gets."""
    replica: Replica

    @property
    def replicas(self) -> int:
        """How many servers there are."""
        return max(1, math.ceil(self.rate_per_s / (self.replica.rate_per_s * self.headroom) - 1e-9))

    @property
    def version_mi(self) -> int:
        """MiB of a version, with room for peaks."""
        if self.replica.version_bytes is None:
            return VERSION_MI
        return _STEP_MI * math.ceil(_PEAK * self.replica.version_bytes / 2**20 / _STEP_MI)

    @property
    def versions(self) -> int:
        """Versions at a time: one more while a new one loads."""
        return VERSIONS if self.replica.versions is None else self.replica.versions + 1

    @property
    def memory_mi(self) -> int:
        """MiB of each server, by the formula of the Helm chart."""
        return FRONT_MI + ANSWERS_MI + self.versions * self.version_mi

    def load_of(self, replicas: int) -> float:
        """Returns the share of its highest rate that each of so many servers gets."""
        return self.rate_per_s / replicas / self.replica.rate_per_s

    def values(self) -> dict[str, Any]:
        """Returns the values of the Helm chart, without unknown ones."""
        values: dict[str, Any] = {"replicas": self.replicas}
        if self.replica.cores is not None:
            values["cores"] = self.replica.cores
        values["memory"] = {"versions": self.versions, "versionMi": self.version_mi}
        if self.replica.slots is not None:
            values["options"] = {"SEQSERVE_SLOTS": self.replica.slots}
        return values


def settings_of(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yields values as ``helm --set`` takes them."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from settings_of(value, f"{path}{name}.")
        else:
            yield f"{path}{name}={value}"

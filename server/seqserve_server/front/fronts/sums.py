"""Adds up the metrics of several fronts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

Families: TypeAlias = Iterable[Metric]

# Of these the worst front counts; all other values are sums.
_SMALLEST = (
    "seqserve_reload_successful",
    "seqserve_reload_success_timestamp_seconds",
    "seqserve_certificate_expiry_timestamp_seconds",
)
_NEVER_FALL = ("counter", "histogram")


def added(fronts: Iterable[Families]) -> list[Metric]:
    """Adds the values of equal labels; of exemplars the newest stays."""
    totals: dict[str, Metric] = {}
    samples: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], Sample]] = {}
    for families in fronts:
        for family in families:
            if family.name not in totals:
                totals[family.name] = Metric(family.name, family.documentation, family.type)
            combined = samples.setdefault(family.name, {})
            combine: Callable[[float, float], float] = (
                min if family.name in _SMALLEST else float.__add__
            )
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                before = combined.get(key)
                combined[key] = _combined(before, sample, combine) if before else sample
    for name, total in totals.items():
        total.samples = list(samples[name].values())
    return list(totals.values())


def _combined(a: Sample, b: Sample, combine: Callable[[float, float], float]) -> Sample:
    exemplars = [each.exemplar for each in (a, b) if each.exemplar]
    newest = max(exemplars, key=lambda each: each.timestamp or 0.0, default=None)
    return a._replace(value=combine(float(a.value), float(b.value)), exemplar=newest)


def lasting(families: Families) -> list[Metric]:
    """Returns the families that must not fall when a front has ended."""
    return [family for family in families if family.type in _NEVER_FALL]

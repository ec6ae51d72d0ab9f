"""Bounds of a version, divided among its engine processes."""

from __future__ import annotations

from seqserve_server.contract.limits import EngineLimits


def test_bounds_are_divided() -> None:
    limits = EngineLimits(
        workers=5, slots=9, max_queue=3, max_queue_tokens=100, max_source_tokens_per_step=64
    )
    shares = limits.shares(2)
    assert [share.workers for share in shares] == [3, 2]
    assert {(share.slots, share.max_queue, share.max_queue_tokens) for share in shares} == {
        (5, 2, 50.0)
    }
    assert limits.shares(1) == [limits]

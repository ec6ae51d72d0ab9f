"""What is logged of an outage: once that it lasts, once that it is over."""

from __future__ import annotations

import logging

import pytest
from tests.clock import Clock

from seqserve.errors import Unavailable, Unreachable
from seqserve.retry import Availability

REFUSED = Unreachable("UNAVAILABLE", "connection refused")
DRAINING = Unavailable("UNAVAILABLE", "draining")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="seqserve.client")
    return caplog


def wait(availability: Availability, error: Unavailable = REFUSED) -> None:
    availability.failed(error)
    availability.awaited(error)


def test_an_outage_is_logged_once_and_so_is_its_end(logged: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    there = Availability("there:1", clock=clock)
    there.answered(clock())
    for _ in range(2):
        for _ in range(10):
            clock.now_s += 1.0
            wait(there)
        there.answered(clock() + 0.5)
        there.answered(clock() + 0.5)
    outage = [
        "there:1 is not available, waiting for it: UNAVAILABLE: connection refused",
        "there:1 is available again",
    ]
    assert logged.messages == outage * 2


def test_a_short_outage_is_not_logged(logged: pytest.LogCaptureFixture) -> None:
    """As that of one server among several that drains."""
    clock = Clock()
    there = Availability("there:1", clock=clock)
    for _ in range(10):
        wait(there, DRAINING)
        clock.now_s += 0.9
        wait(there, DRAINING)
        there.answered(clock() + 0.1)
        clock.now_s += 5.0
    assert logged.messages == []


def test_an_answer_to_an_older_call_does_not_end_an_outage(
    logged: pytest.LogCaptureFixture,
) -> None:
    """A server that drains refuses new calls while it answers those that it has."""
    clock = Clock()
    there = Availability("there:1", clock=clock)
    older_s = clock()
    wait(there, DRAINING)
    clock.now_s += 2.0
    wait(there, DRAINING)
    there.answered(older_s)
    assert len(logged.messages) == 1
    there.answered(clock())
    assert len(logged.messages) == 2


def test_an_outage_that_no_call_waits_for_is_not_logged(logged: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    there = Availability("there:1", clock=clock)
    for _ in range(3):
        clock.now_s += 10.0
        there.failed(REFUSED)
    assert logged.messages == []


def test_a_server_is_reached_by_a_connection() -> None:
    there = Availability("there:1")
    there.failed(REFUSED)
    assert not there.was_reached
    there.failed(DRAINING)
    assert there.was_reached

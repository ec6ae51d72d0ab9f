"""A server that runs for one test, and children that can be interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from .fake_server import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.stop()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Lets children be interrupted, also where the tests run in the background.

    There an interrupt is ignored, which a child inherits; what is handled is none of its business.
    To ask for it in the child, before it begins, would need a fork, and threads of gRPC break that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

"""A fake server for one test, and child processes that can be interrupted."""

import signal
from collections.abc import Iterator

import pytest

from .fake_server import FakeServer
from .sessions import connect as connect


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.stop()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Makes child processes interruptible, even if the tests run in the background.

    A background process ignores interrupts and its children inherit that, but no handler. To set
    it in the child before it starts would need a fork, which gRPC's threads do not allow.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

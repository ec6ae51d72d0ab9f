"""A server that would have no room for its threads does not start."""

from __future__ import annotations

import threading

import pytest

from seqserve_server.contract.errors import StartupError
from seqserve_server.front.app import refuse_few_threads


def test_enough_room_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    refuse_few_threads()
    assert threading.active_count() == before


def test_too_little_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before, real, started = threading.active_count(), threading.Thread.start, 0

    def start(thread: threading.Thread) -> None:
        nonlocal started
        if started == 5:
            raise RuntimeError("can't start new thread")
        started += 1
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(StartupError, match=r"leaves 5 .* needs 16; raise it: `ulimit -u`"):
        refuse_few_threads()
    assert threading.active_count() == before

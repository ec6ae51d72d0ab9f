import os
import time

import pytest
from bench.drivers.subprocess_driver import RemoteObject

PATIENCE_S = 30.0


class Counter:
    """Counts, and fails in many ways."""

    def __init__(self, start: int) -> None:
        if start < 0:
            raise ValueError(f"{start} is negative")
        self.number = start

    def add(self, number: int) -> int:
        self.number += number
        return self.number

    def divide(self, number: int) -> float:
        return self.number / number

    def sleep(self) -> None:
        time.sleep(PATIENCE_S)

    def end(self) -> None:
        os._exit(3)


def test_calls_give_results_and_errors_in_turn() -> None:
    with RemoteObject("counter", Counter, 5) as counter:
        counter.receive(PATIENCE_S)
        assert counter.call("add", 2, timeout_s=PATIENCE_S) == 7
        with pytest.raises(RuntimeError, match="counter: ZeroDivisionError: division by zero"):
            counter.call("divide", 0, timeout_s=PATIENCE_S)
        counter.send("add", 1)
        assert counter.receive(PATIENCE_S) == 8


def test_an_object_that_cannot_be_made_says_why() -> None:
    with (
        RemoteObject("counter", Counter, -1) as counter,
        pytest.raises(RuntimeError, match="counter: ValueError: -1 is negative"),
    ):
        counter.receive(PATIENCE_S)


def test_a_process_that_ends_is_an_error_at_once_and_later() -> None:
    with RemoteObject("counter", Counter, 0) as counter:
        counter.receive(PATIENCE_S)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="counter: its process ended with status 3"):
                counter.call("end", timeout_s=PATIENCE_S)


def test_a_call_that_takes_too_long_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.drivers.subprocess_driver._PATIENCE_S", 0.1)
    with RemoteObject("counter", Counter, 0) as counter:
        counter.receive(PATIENCE_S)
        began_s = time.monotonic()
        with pytest.raises(RuntimeError, match="counter: no answer after 0 s"):
            counter.call("sleep", timeout_s=0.1)
        assert time.monotonic() - began_s < PATIENCE_S / 2

"""Batches are full or late, in order, and every item is in one of them."""

from __future__ import annotations

import threading
import time

from bench.batch_queue import BatchQueue

LONG_S = 30.0


def test_full_batch_does_not_wait() -> None:
    queue: BatchQueue[int] = BatchQueue(3, LONG_S)
    for item in range(7):
        queue.put(item)
    assert queue.take() == [0, 1, 2]
    assert queue.take() == [3, 4, 5]


def test_lone_item_waits_for_others() -> None:
    queue: BatchQueue[int] = BatchQueue(3, 0.05)
    queue.put(1)
    began_s = time.monotonic()
    assert queue.take() == [1]
    assert time.monotonic() - began_s > 0.04


def test_item_that_waited_long_enough_is_taken_at_once() -> None:
    queue: BatchQueue[int] = BatchQueue(3, 0.05)
    queue.put(1)
    time.sleep(0.06)
    began_s = time.monotonic()
    assert queue.take() == [1]
    assert time.monotonic() - began_s < 0.04


def test_item_that_comes_while_another_waits_goes_along() -> None:
    queue: BatchQueue[int] = BatchQueue(3, 0.2)
    queue.put(1)
    threading.Timer(0.02, queue.put, (2,)).start()
    assert queue.take() == [1, 2]


def test_last_item_of_a_batch_wakes_who_waits() -> None:
    queue: BatchQueue[int] = BatchQueue(2, LONG_S)
    queue.put(1)
    threading.Timer(0.02, queue.put, (2,)).start()
    assert queue.take() == [1, 2]


def test_no_delay_takes_what_is_there() -> None:
    queue: BatchQueue[int] = BatchQueue(3, 0.0)
    queue.put(1)
    queue.put(2)
    assert queue.take() == [1, 2]


def test_closed_queue_gives_the_rest_and_then_nothing() -> None:
    queue: BatchQueue[int] = BatchQueue(3, LONG_S)
    queue.put(1)
    queue.close()
    assert queue.take() == [1]
    assert queue.take() == []


def test_closing_wakes_all_who_wait() -> None:
    queue: BatchQueue[int] = BatchQueue(3, LONG_S)
    takers = [threading.Thread(target=queue.take) for _ in range(3)]
    for taker in takers:
        taker.start()
    queue.close()
    for taker in takers:
        taker.join(LONG_S)
        assert not taker.is_alive()


def test_several_takers_get_every_item_once_and_in_order() -> None:
    queue: BatchQueue[int] = BatchQueue(4, 0.001)
    batches: list[list[int]] = []

    def take() -> None:
        while batch := queue.take():
            batches.append(batch)
            time.sleep(0.0005)

    takers = [threading.Thread(target=take) for _ in range(2)]
    for taker in takers:
        taker.start()
    for item in range(500):
        queue.put(item)
        if item % 23 == 0:
            time.sleep(0.002)
    queue.close()
    for taker in takers:
        taker.join(LONG_S)
    assert all(1 <= len(batch) <= 4 and batch == sorted(batch) for batch in batches)
    assert sorted(item for batch in batches for item in batch) == list(range(500))

"""Processes at the other end of pipes; each reverses its sources."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from bench.pipes import Pipes

FAR_END = """
from bench.pipes import answer
answer(lambda: print("not a reply") or (lambda texts: [text[::-1] for text in texts]))
"""


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    found = Pipes([sys.executable, "-c", FAR_END], 2)
    yield found
    found.close()


def test_sources_are_dealt_out_and_come_back_in_order(pipes: Pipes) -> None:
    texts = ["one", "seventeen", "four", "é", "eleven"]
    assert pipes.decode(texts) == [text[::-1] for text in texts]
    assert pipes.seconds > 0


def test_batches_of_many_threads_each_get_their_own_answer(pipes: Pipes) -> None:
    batches = [[f"{number} {word}" for word in ("a", "bc")] for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(pipes.decode_batch, batches))
    assert found == [[text[::-1] for text in batch] for batch in batches]


def test_a_process_that_ends_at_once_is_told_of() -> None:
    with pytest.raises(RuntimeError, match="status 3"):
        Pipes([sys.executable, "-c", "raise SystemExit(3)"], 2)

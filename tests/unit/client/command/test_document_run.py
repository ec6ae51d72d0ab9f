import itertools
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from queue import Empty, SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.command.document_run import InOrder
from seqserve.command.writers import LineNumbers

PATIENCE_S = 60.0


@given(st.permutations(range(12)), st.integers(0, 12))
def test_order_is_restored(places: list[int], fails_after: int) -> None:
    order = InOrder("abcdefghijkl", 13)
    sources = list(order.sources())

    def outcomes() -> Iterator[tuple[int, str]]:
        for place in places[:fails_after]:
            yield place, sources[place].upper()

    together = 0
    while together in places[:fails_after]:
        together += 1
    restored = list(order.restored(outcomes()))
    assert restored == [(source, source.upper()) for source in sources[:together]]


def test_an_outcome_is_yielded_as_soon_as_all_before_it_are_there_and_a_failure_raised() -> None:
    def outcomes() -> Iterator[tuple[int, str]]:
        yield from [(1, "B"), (0, "A"), (2, "C")]
        raise OSError("no more")

    order = InOrder("abc", 4)
    list(order.sources())
    found = outcomes()
    restored = order.restored(found)
    assert [next(restored), next(restored)] == [("a", "A"), ("b", "B")]
    assert next(found) == (2, "C")
    with pytest.raises(OSError, match="no more"):
        next(restored)


def test_sources_are_read_no_further_ahead() -> None:
    order = InOrder(itertools.count(), 3)
    expected = itertools.count()
    waits: SimpleQueue[int] = SimpleQueue()

    def read() -> None:
        for source in order.sources():
            assert source == next(expected)
            waits.put(source)

    thread = threading.Thread(target=read)
    thread.start()
    with closing(order.restored(iter([(1, "B"), (0, "A"), (2, "C")]))) as restored:
        assert [waits.get(timeout=PATIENCE_S) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(Empty):
            waits.get(timeout=0.05)
        assert [next(restored), next(restored)] == [(0, "A"), (1, "B")]
        # The last outcome counts until the next one is requested.
        assert waits.get(timeout=PATIENCE_S) == 3
        with pytest.raises(Empty):
            waits.get(timeout=0.05)
    # Leaving wakes the reader.
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and waits.empty()


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], ""),
        ([7], "7"),
        ([2, 3, 9, 11, 12, 13], "2-3, 9, 11-13"),
        (range(1, 100_000), "1-99999"),
        (range(2, 42, 2), ", ".join(map(str, range(2, 42, 2)))),
        (
            [*range(2, 42, 2), 41, 43, 44],
            ", ".join(map(str, range(2, 40, 2))) + ", 40-41 and 2 more",
        ),
    ],
)
def test_ranges_are_shown_and_the_rest_counted(numbers: Iterable[int], shown: str) -> None:
    lines = LineNumbers()
    for number in numbers:
        lines.add(number)
    assert str(lines) == shown

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from seqserve_server.corpus.corpus_file import Answer
from seqserve_server.corpus.run import in_order


class HeldPool:
    """A pool whose futures a test completes."""

    engines = 2

    def __init__(self) -> None:
        self.futures: list[Future[list[Answer]]] = []

    def submit(self, texts: Sequence[str]) -> Future[list[Answer]]:
        self.futures.append(Future())
        return self.futures[-1]


def test_chunks_come_in_order_and_few_are_read_ahead() -> None:
    pool, read = HeldPool(), 0

    def chunks() -> Iterator[int]:
        nonlocal read
        for read in range(1, 101):
            if read == 8:
                for index in (2, 1, 0):
                    pool.futures[index].set_result([Answer(str(index))])
            elif read > 8:
                pool.futures[read - 6].set_result([Answer(str(read - 6))])
            yield read - 1

    answered = in_order(pool, chunks(), lambda chunk: [str(chunk)])
    for expected in range(80):
        chunk, [answer] = next(answered)
        assert (chunk, answer.text) == (expected, str(expected))
        assert read <= expected + 8
    answered.close()

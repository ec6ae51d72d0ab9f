from tests.clock import Clock

from seqserve_server.front.generate.engine_call import (
    INTERVAL_S,
    UNTHROTTLED_STREAMS,
    StreamThrottle,
)


def test_tokens_of_many_streams_are_gathered() -> None:
    clock = Clock()
    pace = StreamThrottle(clock)
    due = []
    for _ in range(9):
        due.append(pace.is_due(UNTHROTTLED_STREAMS + 1))
        clock.now_s += 0.4 * INTERVAL_S
    assert due == [True, False, False] * 3


def test_every_token_of_few_streams_is_sent() -> None:
    pace = StreamThrottle(Clock())
    assert all(pace.is_due(UNTHROTTLED_STREAMS) for _ in range(9))


def test_tokens_that_come_slowly_never_wait() -> None:
    clock = Clock()
    pace = StreamThrottle(clock)
    for _ in range(9):
        assert pace.is_due(UNTHROTTLED_STREAMS + 1)
        clock.now_s += INTERVAL_S

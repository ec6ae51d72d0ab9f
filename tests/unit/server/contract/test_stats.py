"""What an engine tells of itself, as figures that add up."""

from __future__ import annotations

import pickle
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.errors import DeadlinePassed, EngineFault, Stage
from seqserve_server.contract.events import Failed, Finished, Hypothesis, StopReason, Timeline
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Request
from seqserve_server.contract.stats import EngineStats, StatsRecorder


def request(**timeline: float) -> Request:
    return Request(
        source=[5, 2],
        options=DecodingOptions(max_decoding_length=3),
        receive=lambda event: None,
        timeline=Timeline(**timeline),
    )


def observed(figures: EngineStats, name: str) -> tuple[float, float]:
    """How many values a histogram was told, and their sum."""
    buckets, total = figures.histograms[name].buckets()
    return buckets[-1][1], total


def up_to(figures: EngineStats, name: str, bound: str) -> float:
    return dict(figures.histograms[name].buckets()[0])[bound]


def test_step_counts_once_for_each_row_that_waited() -> None:
    tally = StatsRecorder()
    tally.stepped(rows=12, duration_s=0.004, outside_s=0.001)
    figures = tally.figures()
    assert observed(figures, "step_duration_seconds") == pytest.approx((1, 0.004))
    assert observed(figures, "inter_token_duration_seconds") == pytest.approx((12, 0.048))
    assert up_to(figures, "batch_rows", "8.0") == 0
    assert up_to(figures, "batch_rows", "16.0") == 1
    assert figures.totals["step_seconds"] == pytest.approx(0.004)
    assert figures.totals["step_outside_runtime_seconds"] == pytest.approx(0.001)


def test_sources_and_first_tokens() -> None:
    tally = StatsRecorder()
    tally.encoded([7, 7, 7], duration_s=0.002)
    tally.first_tokens([request(arrived_s=10.0, encode_began_s=10.5, first_token_s=12.0)])
    figures = tally.figures()
    assert figures.totals["source_tokens"] == 21
    assert up_to(figures, "source_tokens", "4.0") == 0
    assert up_to(figures, "source_tokens", "8.0") == 3
    assert observed(figures, "encode_duration_seconds") == pytest.approx((1, 0.002))
    assert observed(figures, "queue_duration_seconds") == pytest.approx((1, 0.5))
    assert observed(figures, "time_to_first_token_seconds") == pytest.approx((1, 2.0))


def test_sources_encoded_together_are_counted_by_their_own_lengths() -> None:
    tally = StatsRecorder()
    tally.encoded([2, 100], duration_s=0.002)
    figures = tally.figures()
    assert figures.totals["source_tokens"] == 102
    for bound, count in (("2.0", 1), ("64.0", 1), ("128.0", 2)):
        assert up_to(figures, "source_tokens", bound) == count


def test_ends() -> None:
    tally = StatsRecorder()
    answer = Finished([Hypothesis([4, 5, 6], -1.0, StopReason.LENGTH)])
    tally.ended(request(), answer)
    tally.ended(request(), Failed(DeadlinePassed(Stage.DECODE)))
    tally.ended(request(), Failed(EngineFault("a step failed")))
    tally.cancelled(request())
    figures = tally.figures()
    assert figures.totals["generated_tokens"] == 3
    assert observed(figures, "generated_tokens") == (1, 3)
    assert figures.stops == {"length": 1, "eos": 0, "stop_sequence": 0, "time_limit": 0}
    assert figures.deadlines == {"decode": 1, "queue": 0}
    assert figures.totals["cancelled"] == 1


def test_tokens_done_before_an_early_end_count_but_are_no_answer() -> None:
    tally = StatsRecorder()
    late, gone, left_late = request(), request(), request()
    left_late.deadline_s = time.monotonic()
    late.tokens_done, gone.tokens_done, left_late.tokens_done = 5, 7, 11
    tally.ended(late, Failed(DeadlinePassed(Stage.DECODE)))
    tally.cancelled(gone)
    tally.cancelled(left_late)
    figures = tally.figures()
    assert figures.totals["generated_tokens"] == 5 + 7 + 11
    assert observed(figures, "generated_tokens") == (0, 0)
    assert not any(figures.stops.values())


def test_requests_that_are_late_in_the_queue_count_in_its_duration() -> None:
    tally = StatsRecorder()
    late = request(arrived_s=time.monotonic() - 2.0)
    tally.ended(late, Failed(DeadlinePassed(Stage.QUEUE)))
    count, seconds = observed(tally.figures(), "queue_duration_seconds")
    assert count == 1 and seconds >= 2.0


@pytest.mark.parametrize(("encode_began_s", "count"), [(0.0, 1), (1.0, 0)])
def test_time_limits_reached_in_the_queue_count_in_its_duration(
    encode_began_s: float, count: int
) -> None:
    tally = StatsRecorder()
    late = request(arrived_s=time.monotonic() - 2.0, encode_began_s=encode_began_s)
    tally.ended(late, Finished([Hypothesis([], None, StopReason.TIME_LIMIT)]))
    assert observed(tally.figures(), "queue_duration_seconds")[0] == count
    assert tally.figures().stops["time_limit"] == 1


@pytest.mark.parametrize(("encode_began_s", "where"), [(0.0, "queue"), (1.0, "decode")])
def test_cancel_at_the_deadline_counts_as_late(encode_began_s: float, where: str) -> None:
    tally = StatsRecorder()
    late = request(encode_began_s=encode_began_s)
    late.deadline_s = time.monotonic()
    tally.cancelled(late)
    figures = tally.figures()
    assert figures.deadlines[where] == sum(figures.deadlines.values()) == 1
    assert figures.totals["cancelled"] == 0


def test_every_series_is_there_before_anything_happens() -> None:
    figures = StatsRecorder().figures()
    assert set(figures.deadlines) == {stage.value for stage in Stage}
    assert set(figures.stops) == {reason.value for reason in StopReason}
    assert not any(figures.totals.values())


def test_copy_stays_as_it_was() -> None:
    tally = StatsRecorder()
    tally.encoded([3], duration_s=0.001)
    copy = tally.figures()
    tally.encoded([3], duration_s=0.001)
    assert copy.totals["source_tokens"] == observed(copy, "source_tokens")[1] == 3


steps = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 1000)), max_size=20)


def of_steps(steps: list[tuple[int, int]]) -> EngineStats:
    tally = StatsRecorder()
    for rows, duration_s in steps:
        tally.stepped(rows, duration_s, outside_s=0.0)
    return tally.figures()


@given(steps, steps)
def test_engines_add_up(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    together = EngineStats()
    together.add(of_steps(some))
    together.add(of_steps(others))
    whole = of_steps(some + others)
    assert shown(together) == shown(whole)
    assert shown(pickle.loads(pickle.dumps(together))) == shown(whole)


def shown(figures: EngineStats) -> object:
    histograms = {name: one.buckets() for name, one in figures.histograms.items()}
    return histograms, figures.totals, figures.deadlines, figures.stops


def test_threads_lose_nothing() -> None:
    tally = StatsRecorder()

    def work() -> None:
        for _ in range(500):
            tally.encoded([1], duration_s=0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        figures = tally.figures()
        assert figures.totals["source_tokens"] == observed(figures, "source_tokens")[0]
    assert tally.figures().totals["source_tokens"] == 2000

import threading
import time

import pytest

from seqserve_server.contract.errors import DeadlinePassed, EngineFault, Stage
from seqserve_server.contract.events import Failed, Finished, Hypothesis, StopReason, Timeline
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.stats import EngineStats
from seqserve_server.engine.observer import StatsRecorder
from seqserve_server.engine.request import Request


def request(
    *, deadline_s: float | None = None, answer: Finished | None = None, **timeline: float
) -> Request:
    options = DecodingOptions(max_decoding_length=3, return_attention=answer is not None)
    spec = GenerateSpec(source=[5, 2], options=options, deadline_s=deadline_s, answer=answer)
    one = Request(spec)
    one.timeline = Timeline(**timeline)
    return one


def observed(stats: EngineStats, name: str) -> tuple[float, float]:
    """Returns how many values a histogram observed, and their sum."""
    buckets, total = stats.histograms[name].buckets()
    return buckets[-1][1], total


def up_to(stats: EngineStats, name: str, bound: str) -> float:
    return dict(stats.histograms[name].buckets()[0])[bound]


@pytest.fixture
def recorder() -> StatsRecorder:
    return StatsRecorder()


def test_step_counts_once_for_each_row_that_waited(recorder: StatsRecorder) -> None:
    recorder.stepped(rows=12, duration_s=0.004, outside_s=0.001)
    stats = recorder.snapshot()
    assert observed(stats, "step_duration_seconds") == pytest.approx((1, 0.004))
    assert observed(stats, "inter_token_duration_seconds") == pytest.approx((12, 0.048))
    assert up_to(stats, "batch_rows", "8.0") == 0
    assert up_to(stats, "batch_rows", "16.0") == 1
    assert stats.totals["step_seconds"] == pytest.approx(0.004)
    assert stats.totals["step_outside_runtime_seconds"] == pytest.approx(0.001)


def test_sources_and_first_tokens(recorder: StatsRecorder) -> None:
    recorder.encoded([2, 100], duration_s=0.002)
    recorder.first_tokens([request(arrived_s=10.0, encode_began_s=10.5, first_token_s=12.0)])
    stats = recorder.snapshot()
    assert stats.totals["source_tokens"] == 102
    for bound, count in (("2.0", 1), ("64.0", 1), ("128.0", 2)):
        assert up_to(stats, "source_tokens", bound) == count
    assert observed(stats, "encode_duration_seconds") == pytest.approx((1, 0.002))
    assert observed(stats, "queue_duration_seconds") == pytest.approx((1, 0.5))
    assert observed(stats, "time_to_first_token_seconds") == pytest.approx((1, 2.0))


def test_ends_are_counted(recorder: StatsRecorder) -> None:
    answer = Finished([Hypothesis([4, 5, 6], -1.0, StopReason.LENGTH)])
    recorder.ended(request(), answer)
    recorder.ended(request(), Failed(DeadlinePassed(Stage.DECODE)))
    recorder.ended(request(), Failed(EngineFault("a step failed")))
    recorder.cancelled(request())
    stats = recorder.snapshot()
    assert stats.totals["generated_tokens"] == 3
    assert observed(stats, "generated_tokens") == (1, 3)
    assert stats.stops == {"length": 1, "eos": 0, "stop_sequence": 0, "time_limit": 0}
    assert stats.deadlines == {"decode": 1, "queue": 0}
    assert stats.totals["cancelled"] == 1


def test_tokens_done_before_an_early_end_count_but_not_as_an_answer(
    recorder: StatsRecorder,
) -> None:
    late, gone, left_late = request(), request(), request(deadline_s=time.monotonic())
    late.tokens_done, gone.tokens_done, left_late.tokens_done = 5, 7, 11
    recorder.ended(late, Failed(DeadlinePassed(Stage.DECODE)))
    recorder.cancelled(gone)
    recorder.cancelled(left_late)
    stats = recorder.snapshot()
    assert stats.totals["generated_tokens"] == 5 + 7 + 11
    assert observed(stats, "generated_tokens") == (0, 0)
    assert not any(stats.stops.values())


def test_requests_that_are_late_in_the_queue_count_in_its_duration(recorder: StatsRecorder) -> None:
    late = request(arrived_s=time.monotonic() - 2.0)
    recorder.ended(late, Failed(DeadlinePassed(Stage.QUEUE)))
    count, seconds = observed(recorder.snapshot(), "queue_duration_seconds")
    assert count == 1 and seconds >= 2.0


@pytest.mark.parametrize(("encode_began_s", "count"), [(0.0, 1), (1.0, 0)])
def test_time_limits_reached_in_the_queue_count_in_its_duration(
    recorder: StatsRecorder, encode_began_s: float, count: int
) -> None:
    late = request(arrived_s=time.monotonic() - 2.0, encode_began_s=encode_began_s)
    recorder.ended(late, Finished([Hypothesis([], None, StopReason.TIME_LIMIT)]))
    assert observed(recorder.snapshot(), "queue_duration_seconds")[0] == count
    assert recorder.snapshot().stops["time_limit"] == 1


@pytest.mark.parametrize(("encode_began_s", "where"), [(0.0, "queue"), (1.0, "decode")])
def test_cancel_at_the_deadline_counts_as_late(
    recorder: StatsRecorder, encode_began_s: float, where: str
) -> None:
    late = request(encode_began_s=encode_began_s, deadline_s=time.monotonic())
    cut_off = request(encode_began_s=encode_began_s)
    cut_off.is_late = True
    for one in (late, cut_off):
        recorder.cancelled(one)
    stats = recorder.snapshot()
    assert stats.deadlines[where] == sum(stats.deadlines.values()) == 2
    assert stats.totals["cancelled"] == 0


def test_answer_with_attention_is_counted_once_the_attention_is_there(
    recorder: StatsRecorder,
) -> None:
    answer = Finished([Hypothesis([4, 5, 6], -1.0, StopReason.EOS)])
    first = Request(
        GenerateSpec(
            source=[5, 2], options=DecodingOptions(max_decoding_length=3, return_attention=True)
        )
    )
    first.timeline.encode_began_s = 1.0
    recorder.ended(first, answer)
    assert not recorder.snapshot().totals["generated_tokens"]
    recorder.ended(request(answer=answer), answer)
    assert recorder.snapshot().totals["generated_tokens"] == 3
    late = request(answer=answer, deadline_s=time.monotonic())
    late.tokens_done = 3
    recorder.cancelled(late)
    assert recorder.snapshot().deadlines == {"queue": 0, "decode": 1}
    assert recorder.snapshot().totals["generated_tokens"] == 6


def test_every_series_is_there_before_anything_happens() -> None:
    stats = StatsRecorder().snapshot()
    assert set(stats.deadlines) == {stage.value for stage in Stage}
    assert set(stats.stops) == {reason.value for reason in StopReason}
    assert not any(stats.totals.values())


def test_copy_stays_as_it_was(recorder: StatsRecorder) -> None:
    recorder.encoded([3], duration_s=0.001)
    copy = recorder.snapshot()
    recorder.encoded([3], duration_s=0.001)
    assert copy.totals["source_tokens"] == observed(copy, "source_tokens")[1] == 3


def test_threads_lose_nothing(recorder: StatsRecorder) -> None:

    def work() -> None:
        for _ in range(500):
            recorder.encoded([1], duration_s=0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stats = recorder.snapshot()
        assert stats.totals["source_tokens"] == observed(stats, "source_tokens")[0]
    assert recorder.snapshot().totals["source_tokens"] == 2000


def test_time_that_an_answer_ran_is_measured_once(recorder: StatsRecorder) -> None:
    answer = Finished([Hypothesis([4, 5], -1.0, StopReason.EOS)])
    recorder.ended(request(encode_began_s=10.0, finished_s=12.0), answer)
    # One that was cut off in the queue never ran.
    recorder.ended(request(finished_s=12.0), answer)
    # The second request of an answer gets its attention.
    recorder.ended(request(answer=answer, encode_began_s=12.0, finished_s=13.0), answer)
    assert observed(recorder.snapshot(), "compute_duration_seconds") == pytest.approx((1, 2.0))


def test_counts_tokens_of_drafts(recorder: StatsRecorder) -> None:
    recorder.drafted(7, 3)
    recorder.drafted(20, 20)
    totals = recorder.snapshot().totals
    assert (totals["drafted_tokens"], totals["accepted_draft_tokens"]) == (27, 23)

import io
import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.errors import ArtifactError, QueueFull
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Hypothesis,
    Progress,
    StopReason,
    TargetScored,
    Timeline,
    TopTokens,
)
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import (
    Cancel,
    Frames,
    GetStats,
    LoadFailed,
    Message,
    Setup,
    StepEvents,
    Submit,
    Together,
    decoded,
    encode_message,
    read_message,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Priority, ScoreSpec
from seqserve_server.contract.stats import Ready, StatsReply
from seqserve_server.engine.observer import StatsRecorder

LIMITS = EngineLimits(workers=2, slots=64, max_queue=512, max_source_tokens_per_step=256)

numbers = st.integers(0, 2**40)
seconds = st.floats(0, 1e9)
words = st.lists(st.integers(0, 2**31), max_size=40)
options = st.builds(
    DecodingOptions,
    max_decoding_length=st.integers(1, 500),
    min_decoding_length=st.integers(0, 500),
    return_scores=st.booleans(),
)
scores = st.none() | st.floats(-1e3, 0)
hypotheses = st.builds(
    Hypothesis,
    words,
    scores,
    st.sampled_from(StopReason),
    scores,
    st.lists(st.floats(-1e3, 0), max_size=3),
    top_tokens=st.lists(
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-9, 0)), max_size=2).map(
            TopTokens.of
        ),
        max_size=2,
    ),
    text_length=st.none() | numbers,
    attention=st.binary(max_size=9),
)
ends = st.builds(Finished, st.lists(hypotheses, min_size=1, max_size=2)) | st.builds(
    TargetScored,
    st.lists(st.floats(-1e3, 0), max_size=3),
    st.lists(st.binary(max_size=9), max_size=3),
)
timelines = st.builds(Timeline, *[seconds] * 5)
events = st.tuples(numbers, st.builds(Progress, words), st.none()) | st.tuples(
    numbers, ends, timelines
)
common = {
    "source": words,
    "arrived_s": seconds,
    "deadline_s": st.none() | seconds,
    "client_id": st.text(max_size=9),
    "call_id": st.text(max_size=9),
    "priority": st.sampled_from(Priority),
}
specs = st.builds(
    GenerateSpec,
    **common,
    options=options,
    streamed=st.booleans(),
    answer=st.none() | st.builds(Finished, st.lists(hypotheses, min_size=1, max_size=2)),
) | st.builds(ScoreSpec, **common, target=words, wants_attention=st.booleans())
folders = st.builds(Path, st.text())
singles = st.one_of(
    st.builds(Setup, folders, st.sampled_from(Provider), numbers, st.just(LIMITS)),
    st.builds(Ready, numbers, numbers, numbers),
    st.builds(Submit, numbers, specs),
    st.builds(Cancel, numbers, st.booleans()),
    st.builds(StepEvents, st.lists(events, max_size=9)),
    st.just(GetStats()),
)
messages = singles | st.builds(Together, st.lists(singles, max_size=3))


def same(came: list[Message], sent: list[Message]) -> bool:
    # Tuples are equal whatever they are called.
    return came == sent and [type(one) for one in came] == [type(one) for one in sent]


@given(st.lists(messages, max_size=6), st.data())
def test_pieces_of_any_size_give_what_was_sent(sent: list[Message], data: st.DataObject) -> None:
    stream = b"".join(map(encode_message, sent))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted), label="cuts")
    frames = Frames()
    came: list[Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        came += map(decoded, frames.feed(stream[start:end]))
    assert same(came, sent)
    reader = io.BytesIO(stream)
    assert same([message for _ in sent if (message := read_message(reader)) is not None], sent)
    assert read_message(reader) is None


@given(messages, st.data())
def test_end_within_a_message_is_the_end(message: Message, data: st.DataObject) -> None:
    stream = encode_message(message)
    left = data.draw(st.integers(0, len(stream) - 1), label="left")
    assert read_message(io.BytesIO(stream[:left])) is None
    assert Frames().feed(stream[:left]) == []


def test_other_end_that_goes_with_messages_unread() -> None:
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rb") as stream:
        ours.sendall(encode_message(GetStats()))
        theirs.close()
        assert read_message(stream) is None


def test_errors_and_statistics_arrive() -> None:
    recorder = StatsRecorder()
    recorder.encoded([3, 4], duration_s=0.01)
    error, full = ArtifactError("weights.bin: sha256"), QueueFull("no room", 1.5)
    sent: list[Message] = [
        LoadFailed(error),
        StepEvents([(7, Failed(full), Timeline())]),
        StatsReply(1, 2, recorder.snapshot()),
    ]
    failed, step, reply = map(decoded, Frames().feed(b"".join(map(encode_message, sent))))
    assert isinstance(failed, LoadFailed)
    assert isinstance(step, StepEvents)
    assert isinstance(reply, StatsReply)
    assert isinstance(failed.error, ArtifactError) and str(failed.error) == str(error)
    [(number, event, _)] = step.events
    assert isinstance(event, Failed) and isinstance(event.error, QueueFull)
    assert (number, event.error.retry_after_s) == (7, 1.5)
    assert (reply.queue_depth, reply.slots_in_use) == (1, 2)
    assert reply.stats.totals == recorder.snapshot().totals


def test_event_of_a_step_takes_few_bytes() -> None:
    """Every streamed row sends an event over the socket in every step."""
    one = len(encode_message(StepEvents([(1_000_000, Progress([20_000]), None)])))
    many: list[tuple[int, Event, Timeline | None]] = [
        (1_000_000 + number, Progress([20_000]), None) for number in range(65)
    ]
    assert (len(encode_message(StepEvents(many))) - one) / 64 < 40


def test_request_takes_few_bytes() -> None:
    """Fields that have their default are hardly sent."""
    options = DecodingOptions(max_decoding_length=256)
    spec = GenerateSpec(source=[], options=options, call_id="0123456789abcdef", client_id="a")
    assert len(encode_message(Submit(1_000_000, spec))) < 270


def test_what_requests_share_goes_once() -> None:
    submits: list[Message] = [
        Submit(
            number,
            GenerateSpec(source=[number], options=DecodingOptions(max_decoding_length=256)),
        )
        for number in range(40)
    ]
    alone = sum(len(encode_message(each)) for each in submits)
    assert len(encode_message(Together(submits))) < alone / 2

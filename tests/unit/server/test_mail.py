"""Messages between two processes: whole, in order, and equal, however the bytes are cut."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.engine.figures import Tally
from seqserve_server.engine.limits import EngineLimits
from seqserve_server.engine.mail import (
    Ask,
    Cancel,
    Message,
    Ready,
    Report,
    Setup,
    Submit,
    Told,
    Unable,
    Unpacker,
    packed,
    read,
)
from seqserve_server.engine.request import (
    DecodingOptions,
    Event,
    Failed,
    Finished,
    Hypothesis,
    Progress,
    StopReason,
    TargetScored,
    Timeline,
)
from seqserve_server.errors import ArtifactError, QueueFull
from seqserve_server.provider import Provider

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
    top_tokens=st.lists(st.lists(st.tuples(numbers, st.floats(-9, 0)), max_size=2), max_size=2),
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
folders = st.builds(Path, st.text())
messages = st.one_of(
    st.builds(Setup, folders, st.sampled_from(Provider), numbers, st.just(LIMITS)),
    st.builds(Ready, numbers, numbers, numbers),
    st.builds(Submit, numbers, words, options, st.none() | seconds, st.booleans(), seconds),
    st.builds(Cancel, numbers, st.none() | seconds),
    st.builds(Told, st.lists(events, max_size=9)),
    st.just(Ask()),
)


def same(came: list[Message], sent: list[Message]) -> bool:
    # Tuples are equal whatever they are called.
    return came == sent and [type(one) for one in came] == [type(one) for one in sent]


@given(st.lists(messages, max_size=6), st.data())
def test_pieces_of_any_size_give_what_was_sent(sent: list[Message], data: st.DataObject) -> None:
    stream = b"".join(map(packed, sent))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted), label="cuts")
    unpacker = Unpacker()
    came: list[Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        came += unpacker.feed(stream[start:end])
    assert same(came, sent)


@given(st.lists(messages, max_size=6))
def test_single_bytes_give_each_message_with_its_last(sent: list[Message]) -> None:
    unpacker = Unpacker()
    for message in sent:
        *most, last = packed(message)
        assert not any(unpacker.feed(bytes([byte])) for byte in most)
        assert same(unpacker.feed(bytes([last])), [message])


@given(st.lists(messages, max_size=6))
def test_stream_gives_what_was_sent_and_then_nothing(sent: list[Message]) -> None:
    stream = io.BytesIO(b"".join(map(packed, sent)))
    came = [message for _ in sent if (message := read(stream)) is not None]
    assert same(came, sent)
    assert read(stream) is None


@given(messages, st.data())
def test_end_within_a_message_is_the_end(message: Message, data: st.DataObject) -> None:
    stream = packed(message)
    left = data.draw(st.integers(0, len(stream) - 1), label="left")
    assert read(io.BytesIO(stream[:left])) is None
    assert Unpacker().feed(stream[:left]) == []


@pytest.mark.parametrize("sent", [b"", packed(Ask())[:3], packed(Ask())[:-1]])
def test_other_end_that_goes_within_a_message(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rb") as stream:
        with theirs:
            theirs.sendall(sent)
        assert read(stream) is None


def test_other_end_that_goes_with_mail_unread() -> None:
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rb") as stream:
        ours.sendall(packed(Ask()))
        theirs.close()
        assert read(stream) is None


def test_errors_and_reports_arrive() -> None:
    tally = Tally()
    tally.encoded([3, 4], duration_s=0.01)
    error, full = ArtifactError("weights.bin: sha256"), QueueFull("no room", 1.5)
    sent: list[Message] = [
        Unable(error),
        Told([(7, Failed(full), Timeline())]),
        Report(1, 2, tally.figures()),
    ]
    unable, told, report = Unpacker().feed(b"".join(map(packed, sent)))
    assert isinstance(unable, Unable) and isinstance(told, Told) and isinstance(report, Report)
    assert isinstance(unable.error, ArtifactError) and str(unable.error) == str(error)
    [(number, event, _)] = told.events
    assert isinstance(event, Failed) and isinstance(event.error, QueueFull)
    assert (number, event.error.retry_after_s) == (7, 1.5)
    assert (report.queue_depth, report.slots_in_use) == (1, 2)
    assert report.figures.totals == tally.figures().totals


def test_event_of_a_step_takes_few_bytes() -> None:
    """Every row of every step of a stream goes over the socket."""
    one = len(packed(Told([(1_000_000, Progress([20_000]), None)])))
    many: list[tuple[int, Event, Timeline | None]] = [
        (1_000_000 + number, Progress([20_000]), None) for number in range(65)
    ]
    assert (len(packed(Told(many))) - one) / 64 < 40

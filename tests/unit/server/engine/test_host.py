import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.support.process import until
from tests.unit.server.engine.fake_runtime import (
    EOS,
    PATIENCE_S,
    HeldRuntime,
    detokenize,
    expected,
)

from seqserve_server.contract.errors import ArtifactError, Draining, EngineFault, QueueFull
from seqserve_server.contract.events import Event, Failed, Progress
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import (
    Cancel,
    GetStats,
    LoadFailed,
    Message,
    Setup,
    StepEvents,
    Submit,
    encode_message,
    read_message,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, ScoreSpec, Spec
from seqserve_server.contract.stats import Ready, StatsReply
from seqserve_server.engine import host
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.host import Host
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Request

OPTIONS = DecodingOptions(max_decoding_length=10)
ENDLESS = DecodingOptions(max_decoding_length=10, min_decoding_length=10)


class FrontEnd:
    """The other end of one socket of a host."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.channel.settimeout(PATIENCE_S)
        self._stream = channel.makefile("rb")

    def send(self, message: Message) -> None:
        self.channel.sendall(encode_message(message))

    def submit(
        self,
        request_id: int,
        *source: int,
        options: DecodingOptions = OPTIONS,
        **more: Any,
    ) -> None:
        spec = GenerateSpec(source=[*source, EOS], options=options, **more)
        self.send(Submit(request_id, spec))

    def receive(self) -> Message | None:
        return read_message(self._stream)

    def step_events(self) -> StepEvents:
        message = self.receive()
        assert isinstance(message, StepEvents)
        return message

    def last(self, request_id: int) -> Event:
        """Waits for the last event of a request that is alone."""
        while True:
            for id_, event, timeline in self.step_events().events:
                assert id_ == request_id
                assert (timeline is None) == isinstance(event, Progress)
                if timeline is not None:
                    return event

    def assert_answered(self, request_id: int) -> None:
        self.submit(request_id, 6)
        assert self.last(request_id) == expected([6, EOS], OPTIONS)

    def stats_reply(self) -> StatsReply:
        self.send(GetStats())
        while not isinstance(message := self.receive(), StatsReply):
            assert isinstance(message, StepEvents)
        return message

    def close(self) -> None:
        self._stream.close()
        self.channel.close()


class OtherEnd(FrontEnd):
    """The other end of a host whose steps can be blocked."""

    def __init__(self, workers: int, slots: int, max_queue: int, **more: Any) -> None:
        self._more = more
        self.runtime = HeldRuntime()
        self.gate, self.stepping = self.runtime.may_step, self.runtime.stepping
        self.limits = EngineLimits(
            workers=workers, slots=slots, max_queue=max_queue, max_source_tokens_per_step=20
        )
        channel, theirs = socket.socketpair()
        super().__init__(channel)
        self._door, its_door = socket.socketpair()
        self.host = threading.Thread(target=Host(theirs, self._load, its_door).run, daemon=True)
        self.host.start()
        self.engine: Engine | None = None
        self.fault: Exception | None = None

    def _load(self, setup: Setup, deliver: Deliver, observer: Observer) -> Engine:
        if self.fault is not None:
            raise self.fault
        self.engine = Engine(
            self.runtime, setup.limits, deliver, observer, detokenize, **self._more
        )
        return self.engine

    def hold_in_step(self, front: FrontEnd | None = None) -> None:
        """Submits a request 1, whose first step waits for the gate."""
        self.gate.clear()
        (front or self).submit(1, 5, options=ENDLESS)
        assert self.stepping.wait(PATIENCE_S)

    def set_up(self) -> Message | None:
        self.send(Setup(Path(), Provider.CPU, 1, self.limits))
        return self.receive()

    @contextmanager
    def further(self) -> Iterator[FrontEnd]:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._door, [b"c"], [theirs.fileno()])
        with closing(FrontEnd(ours)) as front:
            yield front

    def close(self) -> None:
        self.gate.set()
        super().close()
        self._door.close()

    def wait_ended(self) -> None:
        self.host.join(PATIENCE_S)
        assert not self.host.is_alive()


@contextmanager
def serving(
    workers: int = 1, slots: int = 4, max_queue: int = 9, **more: Any
) -> Iterator[OtherEnd]:
    """Gives the other end of a host; it must have ended with all its threads afterwards."""
    before = set(threading.enumerate())
    other = OtherEnd(workers, slots, max_queue, **more)
    try:
        yield other
    finally:
        other.close()
    other.wait_ended()
    assert not set(threading.enumerate()) - before, "the engine was not stopped"


@pytest.fixture
def other() -> Iterator[OtherEnd]:
    with serving() as other:
        assert isinstance(other.set_up(), Ready)
        yield other


def test_host_reports_its_slots_and_cache() -> None:
    with serving(workers=3, slots=4) as other:
        ready = other.set_up()
        assert other.engine is not None
        assert ready == Ready(slots=6, max_rows=2, cache_bytes=other.engine.cache_bytes)


def test_request_is_answered_by_its_id(other: OtherEnd) -> None:
    other.submit(7, 5, 6)
    [(number, event, timeline)] = other.step_events().events
    assert (number, event) == (7, expected([5, 6, EOS], OPTIONS))
    assert timeline is not None
    assert 0 < timeline.arrived_s <= timeline.encode_began_s <= timeline.encode_ended_s
    assert timeline.encode_ended_s <= timeline.first_token_s <= timeline.finished_s


def test_progress_is_sent_step_by_step(other: OtherEnd) -> None:
    ought = expected([5, EOS], ENDLESS)
    other.submit(1, 5, options=ENDLESS, streamed=True)
    words = ought.best.token_ids
    steps = [other.step_events().events for _ in words]
    # The last token comes with the whole answer.
    assert [len(events) for events in steps] == [1] * 10
    *progress, (number, last, timeline) = [event for events in steps for event in events]
    assert (number, last) == (1, ought) and timeline is not None
    assert progress == [(1, Progress([word]), None) for word in words[:-1]]


def test_events_of_a_step_come_together(other: OtherEnd) -> None:
    other.hold_in_step()
    for number in (2, 3):
        other.submit(number, 4 + number, options=ENDLESS)
    # Once it answers, it has read all that was sent before.
    assert other.stats_reply().queue_depth == 2
    other.gate.set()
    ends = [{number for number, _, _ in other.step_events().events} for _ in range(2)]
    assert ends == [{1}, {2, 3}]


def test_full_queue_is_an_event() -> None:
    with serving(slots=1, max_queue=1) as other:
        other.set_up()
        other.hold_in_step()
        other.submit(2, 6)
        other.submit(3, 7)
        [(number, event, timeline)] = other.step_events().events
        assert number == 3 and timeline is not None
        assert isinstance(event, Failed) and isinstance(event.error, QueueFull)
        assert event.error.retry_after_s > 0
        other.gate.set()
        assert [other.step_events().events[0][0] for _ in range(2)] == [1, 2]


def test_cancel_frees_the_slot_and_nothing_follows(other: OtherEnd) -> None:
    other.hold_in_step()
    other.send(Cancel(1, is_late=False))
    assert other.stats_reply().slots_in_use == 1, "its step is under way"
    other.gate.set()
    other.assert_answered(2)
    reply = other.stats_reply()
    assert (reply.slots_in_use, reply.queue_depth) == (0, 0)
    assert reply.stats.totals["cancelled"] == 1
    assert not any(reply.stats.deadlines.values())


def test_cancel_at_the_deadline_counts_as_late(other: OtherEnd) -> None:
    other.hold_in_step()
    other.submit(2, 6, deadline_s=time.monotonic() + 1000)
    other.send(Cancel(2, is_late=True))
    reply = other.stats_reply()
    assert reply.queue_depth == 0
    assert reply.stats.totals["cancelled"] == 0
    assert reply.stats.deadlines == {"queue": 1, "decode": 0}


def test_cancel_of_an_ended_or_unknown_request_does_nothing(other: OtherEnd) -> None:
    other.assert_answered(1)
    for number in (1, 99):
        other.send(Cancel(number, is_late=False))
    assert other.stats_reply().stats.totals["cancelled"] == 0
    other.assert_answered(2)


@pytest.mark.parametrize(
    ("work", "spec"),
    [
        ("before_step", GenerateSpec(source=[5, EOS], options=OPTIONS)),
        ("before_encode", GenerateSpec(source=[5, EOS], options=OPTIONS)),
        ("before_score", ScoreSpec(source=[5, EOS], target=[6, EOS])),
    ],
)
def test_a_device_that_does_no_further_work_ends_the_host(
    other: OtherEnd, caplog: pytest.LogCaptureFixture, work: str, spec: Spec
) -> None:
    """Its client starts a new one, whatever fails first. Requests get their answers before."""

    fault = mock.Mock(side_effect=RuntimeError("an illegal memory access was encountered"))
    setattr(other.runtime, work, fault)
    other.runtime.usable = False
    other.send(Submit(1, spec))
    assert isinstance(other.last(1), Failed)
    other.send(GetStats())
    while other.receive() is not None:
        pass
    other.wait_ended()
    assert "does no further work" in caplog.text


@pytest.mark.parametrize("error", [ArtifactError("weights.bin: sha256"), EngineFault("x")])
def test_load_error_is_sent_and_ends_the_host(error: Exception) -> None:
    with serving() as other:
        other.fault = error
        unable = other.set_up()
        assert isinstance(unable, LoadFailed)
        assert type(unable.error) is type(error) and str(unable.error) == str(error)
        assert other.receive() is None
        other.wait_ended()


@pytest.mark.parametrize("data", [b"", encode_message(GetStats())[:5], encode_message(GetStats())])
def test_host_without_a_setup_loads_no_engine(data: bytes) -> None:
    with serving() as other:
        other.channel.sendall(data)
        other.channel.shutdown(socket.SHUT_WR)
        assert other.receive() is None
        other.wait_ended()
        assert other.engine is None


def test_host_stops_when_the_other_end_is_gone() -> None:
    with serving(workers=2) as other:
        other.set_up()
        other.gate.clear()
        for number in range(6):
            other.submit(number, 5, options=ENDLESS)
        assert other.stepping.wait(PATIENCE_S)
        other.close()
        other.wait_ended()
        assert other.engine is not None
        assert (other.engine.slots_in_use, other.engine.queue_depth) == (0, 0)


def test_host_ends_when_the_other_end_is_gone_even_if_a_step_hangs() -> None:
    before = set(threading.enumerate())
    with serving(stop_timeout_s=0.05) as other:
        other.set_up()
        other.hold_in_step()
        other.channel.shutdown(socket.SHUT_RDWR)
        other.wait_ended()
        other.gate.set()
        for thread in set(threading.enumerate()) - before:
            thread.join(PATIENCE_S)


def test_host_stops_when_the_other_end_leaves_messages_unread() -> None:
    with serving() as other:
        other.set_up()
        other.submit(1, 5)
        # Its events stay unread in the socket.
        assert other.channel.recv(1, socket.MSG_PEEK)
        other.close()
        other.wait_ended()
        assert other.engine is not None
        with pytest.raises(Draining):
            other.engine.submit(Request(GenerateSpec(source=[EOS], options=OPTIONS)))


def test_each_front_gets_the_events_of_its_own_requests(other: OtherEnd) -> None:
    with other.further() as first, other.further() as second:
        for number, front in enumerate((first, second)):
            # Each front counts for itself.
            front.submit(1, 5 + number)
        for number, front in enumerate((first, second)):
            assert front.last(1) == expected([5 + number, EOS], OPTIONS)
        assert other.stats_reply().stats.totals["generated_tokens"] > 0


def test_events_tell_how_many_requests_other_fronts_have(other: OtherEnd) -> None:
    with other.further() as further:
        other.hold_in_step(further)
        other.submit(1, 6)
        other.stats_reply()
        other.gate.set()
        assert other.step_events().others == 1
        further.last(1)


def test_requests_of_a_front_that_has_gone_are_cancelled(other: OtherEnd) -> None:
    with other.further() as further:
        other.hold_in_step(further)
    # Its thread ends when it has cancelled them.
    until(lambda: all(thread.name != "front" for thread in threading.enumerate()))
    other.gate.set()
    other.assert_answered(1)
    assert other.stats_reply().stats.totals["cancelled"] == 1


def test_a_front_that_reads_nothing_is_cut_off(
    other: OtherEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "SEND_TIMEOUT_S", 0.05)
    deadline_s = time.monotonic() + PATIENCE_S
    with other.further() as further, pytest.raises(OSError):
        while True:
            further.submit(1, 5, options=ENDLESS, streamed=True)
            other.assert_answered(1)
            assert time.monotonic() < deadline_s

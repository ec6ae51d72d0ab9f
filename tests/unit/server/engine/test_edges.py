"""Cases at the limits of decoding, where options meet: the smallest example of each."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.front.rpc.echo import byte_tokenizer, manifest
from tests.unit.server.front.rpc.test_answers import UNK, ids, packed, response

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import Hypothesis, StopReason
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Request
from seqserve_server.engine.engine import Engine, deliver
from seqserve_server.engine.observer import NullObserver
from seqserve_server.engine.offline import Offline
from seqserve_server.engine.runtime import Runtime
from seqserve_server.front.rpc.options.options import decoding_options


def test_offline_decoding_refuses_more_rows_than_slots(tiny_artifact: Path) -> None:
    with Offline(tiny_artifact, slots=2) as offline:
        found: list[Any] = []

        def decode() -> None:
            try:
                found.append(
                    offline.decode([[5, 2]], DecodingOptions(max_decoding_length=3, beam_size=3))
                )
            except InvalidRequest as error:
                found.append(error)

        thread = threading.Thread(target=decode, daemon=True)
        thread.start()
        thread.join(3)
        assert found, "it waits forever"


def test_too_many_end_tokens_are_refused() -> None:
    """A step can suppress only a limited number of tokens."""
    options = generation_pb2.GenerationOptions(end_tokens=["a"] * 2000, min_decoding_length=1)
    with pytest.raises(InvalidRequest):
        decoding_options(options, manifest(), byte_tokenizer(), 8)


def test_the_text_before_a_stop_sequence_is_whole_where_unknown_tokens_are_replaced() -> None:
    """The source token may be longer than the unknown token that it replaces."""
    hypothesis = Hypothesis(
        [*ids("ab"), UNK, *ids("cd")],
        -1.0,
        StopReason.STOP_SEQUENCE,
        attention=packed(*[[0, 1, 0, 0]] * 5),
        text_length=4,
    )
    [found] = response(hypothesis, replaces=True).hypotheses
    assert found.text == "abycd"


def test_a_request_that_waits_for_its_attention_ends_once(tiny_runtime: Runtime) -> None:
    class EndObserver(NullObserver):
        def __init__(self) -> None:
            self.events: list[str] = []

        def ended(self, request: Request, event: Any) -> None:
            self.events.append(type(event).__name__)

    observer = EndObserver()
    limits = EngineLimits(workers=1, slots=4, max_queue=9, max_source_tokens_per_step=30)
    engine = Engine(tiny_runtime, limits, deliver, observer, str)
    for thread in engine._threads:  # but not the scorer
        thread.start()
    options = DecodingOptions(max_decoding_length=5, return_attention=True)
    engine.submit(Request(source=[5, 6, 2], options=options, receive=lambda event: None))
    while not engine._known._answers:
        time.sleep(0.01)
    engine.stop()
    assert observer.events == ["Failed"]


def test_an_unknown_field_of_a_nested_message_is_refused() -> None:
    sequence = generation_pb2.TokenSequence(tokens=["a"])
    sequence.MergeFromString(b"\xd0\x01\x01")
    options = generation_pb2.GenerationOptions(suppress_sequences=[sequence])
    with pytest.raises(InvalidRequest):
        decoding_options(options, manifest(), byte_tokenizer(), 8)


def test_a_stop_sequence_within_the_prefix_is_refused() -> None:
    options = generation_pb2.GenerationOptions(target_prefix="ab", stop_sequences=["b"])
    with pytest.raises(InvalidRequest, match=r"options\.stop_sequences: .*prefix"):
        decoding_options(options, manifest(), byte_tokenizer(), 8)

"""Edges of decoding, where one option meets another: the smallest case of each."""

import threading
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tests.unit.server.front.echo import echo_model
from tests.unit.server.front.generate.test_response import UNK, ids, packed, response
from tokenizers import decoders, models

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import Hypothesis, StopReason
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.decoding.constraints import Constraints
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.front.generate.options import compile_options


def test_more_rows_than_slots_are_refused_offline(tiny_artifact: Path) -> None:
    with LocalEngine(tiny_artifact, slots=2) as offline:
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
        assert found, "it waits for ever"


def test_very_many_end_tokens_are_refused() -> None:
    """What is banned in a step has its bounds."""
    options = generation_pb2.GenerationOptions(end_tokens=["a"] * 2000, min_decoding_length=1)
    with pytest.raises(InvalidRequest):
        compile_options(options, echo_model())


def test_kept_tokens_give_the_text_even_if_characters_come_in_bytes() -> None:
    """Two bytes of a euro sign are two replacement characters, as long as two euro signs."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    raw = tokenizers.Tokenizer(
        models.BPE({w: n for n, w in enumerate(words)}, [], byte_fallback=True)
    )
    raw.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    said = [1 + byte for byte in "€€!".encode()]
    options = DecodingOptions(max_decoding_length=20, stops=("!",))
    end = Constraints(options, 0, range(len(words)), raw.decode).end(said)
    assert end is not None
    assert raw.decode(said[: end.length])[: end.text_length] == "€€"


def test_text_before_a_stop_is_whole_after_replacing_unknown_tokens() -> None:
    """What is replaced may be longer than what was there."""
    hypothesis = Hypothesis(
        [*ids("ab"), UNK, *ids("cd")],
        -1.0,
        StopReason.STOP_SEQUENCE,
        attention=packed(*[[0, 1, 0, 0]] * 5),
        text_length=4,
    )
    [found] = response(hypothesis, replaces=True).hypotheses
    assert found.text == "abycd"


def test_unknown_field_of_a_sequence_is_refused_too() -> None:
    sequence = generation_pb2.TokenSequence(tokens=["a"])
    sequence.MergeFromString(b"\xd0\x01\x01")
    options = generation_pb2.GenerationOptions(suppress_sequences=[sequence])
    with pytest.raises(InvalidRequest):
        compile_options(options, echo_model())


def test_stop_sequence_that_the_prefix_holds_is_refused() -> None:
    options = generation_pb2.GenerationOptions(target_prefix="ab", stop_sequences=["b"])
    with pytest.raises(InvalidRequest, match=r"options\.stop_sequences: .*prefix"):
        compile_options(options, echo_model())

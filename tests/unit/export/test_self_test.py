"""The sentence of the self-test has large margins, and decodes alike in torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.tiny import SENTENCES

from seqserve_export.parity import Candidate, HeldOut, choose_self_test, verify
from seqserve_model.data import Pair
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.records import SelfTest
from seqserve_server.engine.local_engine import LocalEngine


def test_sentence_is_one_that_both_decode_alike(
    tiny_model: Transformer, tiny_artifact: Path, tiny_offline: LocalEngine
) -> None:
    pairs = [Pair(sentence, "") for sentence in SENTENCES[:20]]
    held_out = HeldOut(pairs=pairs, name="")
    self_test = verify(lambda: tiny_model, tiny_artifact, held_out).self_test
    assert self_test is not None
    assert self_test.source in SENTENCES
    assert tiny_offline([self_test.source]) == [self_test.target] != [""]


def test_model_that_says_something_else_has_none(
    tiny_model: Transformer, tiny_int8_artifact: Path, tiny_offline: LocalEngine
) -> None:
    with LocalEngine(tiny_int8_artifact) as rounded:
        others = [
            Pair(sentence, "")
            for sentence in SENTENCES[:40]
            if rounded([sentence]) != tiny_offline([sentence])
        ]
    assert len(others) > 3
    held_out = HeldOut(pairs=others, name="")
    assert verify(lambda: tiny_model, tiny_int8_artifact, held_out).self_test is None


def candidate(name: str, margins: list[float]) -> Candidate:
    return Candidate(name, name.upper(), np.array(margins))


def test_surest_of_those_that_are_not_short() -> None:
    candidates = [
        candidate("short", [9.0, 9.0]),
        candidate("unsure once", [9.0, 9.0, 1.0, 9.0]),
        candidate("sure", [2.0, 2.0, 2.0, 2.0]),
        candidate("long", [1.5, 9.0, 9.0, 9.0, 9.0]),
        candidate("empty", [99.0]),
    ]
    assert choose_self_test(candidates) == SelfTest(source="sure", target="SURE")
    assert choose_self_test(candidates[-1:]) is None
    assert choose_self_test([]) is None

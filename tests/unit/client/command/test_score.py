from __future__ import annotations

import json
from collections.abc import Callable

from seqserve.v1 import generation_pb2

from ..fake_server import FakeServer

Run = Callable[..., tuple[int, str, str]]


def test_table(seqserve: Run) -> None:
    status, out, err = seqserve("score", "good day", "Guten Tag")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "TOKEN  ID  LOG-PROBABILITY  PROBABILITY",
        "Guten  10          -0.5000       0.6065",
        "Tag    11          -1.0000       0.3679",
        "</s>   12          -1.5000       0.2231",
        "SUM                -3.0000",
        "MEAN               -1.0000",
    ]


def test_json(seqserve: Run) -> None:
    status, out, _ = seqserve("score", "--json", "good day", "Grüße")
    assert (status, json.loads(out)) == (
        0,
        {
            "model": "capitals",
            "version": 2,
            "tokens": ["Grüße", "</s>"],
            "token_ids": [10, 11],
            "token_scores": [-0.5, -1.0],
            "score": -1.5,
            "normalized_score": -0.75,
            "source_tokens": 3,
        },
    )


def test_options_reach_the_server(seqserve: Run, server: FakeServer) -> None:
    seqserve("score", "a", "--model", "m", "b", "--model-version", "3")
    assert server.requests == [
        generation_pb2.ScoreRequest(source="a", target="b", model="m", version=3)
    ]


def test_a_failure(seqserve: Run) -> None:
    assert seqserve("score", "fail NOT_FOUND", "b") == (
        1,
        "",
        "seqserve: NOT_FOUND: not_found, says the fake\n",
    )


def test_both_texts_are_required(seqserve: Run) -> None:
    status, out, err = seqserve("score", "a")
    assert (status, out) == (2, "")
    assert "required: TARGET_TEXT; see `seqserve score --help`" in err

from __future__ import annotations

import json
from collections.abc import Callable

from seqserve.v1 import generation_pb2

from ..fake_server import FakeServer

Run = Callable[..., tuple[int, str, str]]


def test_table(seqserve: Run) -> None:
    status, out, err = seqserve("tokenize", "  Grüße, 世界")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "TOKEN         ID  FROM  TO  TEXT",
        "▁Grüße,       10     2   8  Grüße,",
        "▁世界         11     9  11  世界",
        "COUNT    3 of 64",
    ]


def test_json(seqserve: Run) -> None:
    status, out, _ = seqserve("tokenize", "--json", "good")
    assert (status, json.loads(out)) == (
        0,
        {
            "model": "capitals",
            "version": 2,
            "tokens": ["▁good"],
            "token_ids": [10],
            "begins": [0],
            "ends": [4],
            "length": 2,
            "max_length": 64,
        },
    )


def test_options_reach_the_server(seqserve: Run, server: FakeServer) -> None:
    seqserve("tokenize", "a", "--as-target", "--model", "m", "--target-language", "de")
    assert server.requests == [
        generation_pb2.TokenizeRequest(text="a", is_target=True, model="m", target_language="de")
    ]

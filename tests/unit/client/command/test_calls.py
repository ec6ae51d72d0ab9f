import json
from typing import Any

import pytest

from seqserve.v1 import generation_pb2 as pb

from ..fake_server import FakeServer
from .conftest import Run

REQUESTS: list[tuple[list[str], Any]] = [
    (
        ["score", "a", "--model", "m", "b", "--model-version", "3"],
        pb.ScoreRequest(source="a", target="b", model="m", version=3),
    ),
    (["attention", "a", "--model", "m"], pb.AttentionRequest(source="a", model="m")),
    (["attention", "a", "b"], pb.AttentionRequest(source="a", target="b")),
    (
        ["tokenize", "a", "--as-target", "--model", "m", "--target-language", "de"],
        pb.TokenizeRequest(text="a", is_target=True, model="m", target_language="de"),
    ),
    (
        ["generate", "a", "--model", "m", "--model-version", "3"],
        pb.GenerateRequest(source="a", model="m", version=3),
    ),
    (
        ["generate", "--stream", "b", "--max-decoding-length", "9", "--min-decoding-length", "0"],
        pb.GenerateRequest(
            source="b", options=pb.GenerationOptions(max_decoding_length=9, min_decoding_length=0)
        ),
    ),
]

TABLES = [
    (
        ["score", "good day", "Guten Tag"],
        """\
TOKEN  ID  LOG-PROBABILITY  PROBABILITY
Guten  10          -0.5000       0.6065
Tag    11          -1.0000       0.3679
</s>   12          -1.5000       0.2231
SUM                -3.0000
MEAN               -1.0000
""",
    ),
    (
        ["tokenize", "  Grüße, 世界"],
        """\
TOKEN         ID  FROM  TO  TEXT
▁Grüße,       10     2   8  Grüße,
▁世界         11     9  11  世界
COUNT    3 of 64
""",
    ),
    (
        ["models"],
        """\
NAME       VERSION  STATE   SHARE  PRECISION  PROVIDER  ROWS  QUEUE  SOURCE  TARGET  ABOUT
capitals*  2        ready   100%   fp32       cpu       3/64  5      64      80      \
Text in capitals; with a shortlist
broken     1        failed                                                           \
decoder.onnx: the hash differs from the manifest's
""",
    ),
    (
        ["models", "--glossaries"],
        """\
NAME      FROM  TO  ENTRIES  TROUBLE
products  en    de  1200
products  ko    de  9        line 2: is not UTF-8
""",
    ),
]

ANSWER = {"model": "capitals", "version": 2}
FACTS: list[tuple[list[str], dict[str, Any]]] = [
    (
        ["score", "good day", "Grüße"],
        ANSWER
        | {"tokens": ["Grüße", "</s>"], "token_ids": [10, 11], "token_scores": [-0.5, -1.0]}
        | {"score": -1.5, "normalized_score": -0.75, "source_tokens": 3},
    ),
    (
        ["tokenize", "good"],
        ANSWER
        | {"tokens": ["▁good"], "token_ids": [10], "begins": [0], "ends": [4]}
        | {"length": 2, "max_length": 64},
    ),
    (
        ["attention", "a", "b c"],
        ANSWER
        | {
            "source_tokens": ["a", "</s>"],
            "target_tokens": ["b", "c", "</s>"],
            "encoder": [[[[0.5, 0.5]] * 2, [[1, 0], [0, 1]]], [[[1, 0], [0, 1]], [[0.5, 0.5]] * 2]],
        },
    ),
    (["models"], {"name": "capitals", "is_default": True, "state": "ready"}),
    (["models", "--glossaries"], {"name": "products", "entry_count": 1200, "fault": ""}),
]


@pytest.mark.parametrize(("argv", "request_"), REQUESTS)
def test_options_reach_the_server(
    seqserve: Run, server: FakeServer, argv: list[str], request_: Any
) -> None:
    assert seqserve(*argv)[0] == 0
    assert server.requests == [request_]


@pytest.mark.parametrize(("argv", "table"), TABLES)
def test_a_table_is_printed(seqserve: Run, argv: list[str], table: str) -> None:
    assert seqserve(*argv) == (0, table, "")


@pytest.mark.parametrize(("argv", "facts"), FACTS)
def test_json_has_every_field(seqserve: Run, argv: list[str], facts: dict[str, Any]) -> None:
    status, out, _ = seqserve(*argv, "--json")
    printed = json.loads(out.splitlines()[0])
    assert (status, {name: printed[name] for name in facts}) == (0, facts)
    assert argv[0] in ("models", "attention") or printed == facts


@pytest.mark.parametrize(
    "argv", [["score", "fail NOT_FOUND", "b"], ["attention", "fail NOT_FOUND"]]
)
def test_a_failure_is_reported(seqserve: Run, argv: list[str]) -> None:
    assert seqserve(*argv) == (1, "", "seqserve: NOT_FOUND: not_found, says the fake\n")

import pickle
from typing import Any

import pytest
from tests.unit.server.front.echo import MAX_TARGET, echo_model
from tests.unit.server.front.generate.asking import DECODING, job_of, part, read, refusal

from seqserve.v1 import generation_pb2
from seqserve_server.front.generate.records import Options

MODEL = echo_model(max_rows=4)


def drafts(source: str, **options: Any) -> list[tuple[int, ...]]:
    """Returns the draft of each part of a source."""
    return [part.draft for part in read(source, MODEL, **options).parts]


def ids(text: str) -> tuple[int, ...]:
    return tuple(MODEL.tokenizer.encode_target(text))


LINES = {"segmentation": "lines"}


@pytest.mark.parametrize(
    ("options", "source", "texts"),
    [
        ({}, "ab", [""]),
        ({"target_draft": ""}, "ab", [""]),
        ({"target_draft": "cd"}, "ab", ["cd"]),
        ({"draft_source": True}, "ab", ["ab"]),
        ({"draft_source": False}, "ab", [""]),
        # Each of several segments may be its own draft.
        (LINES | {"target_draft": "xy"}, "ab\n", ["xy"]),
        (LINES | {"target_draft": "xy"}, "ab\ncd", ["", ""]),
        (LINES | {"draft_source": True}, "ab\ncd\n--", ["ab", "cd", ""]),
        # A prefix comes before a draft without it.
        ({"target_draft": "cd", "target_prefix": "x"}, "ab", ["xcd"]),
        ({"target_draft": "xcd", "target_prefix": "x"}, "ab", ["xcd"]),
        ({"draft_source": True, "target_prefix": "x"}, "ab", ["xab"]),
    ],
    ids=str,
)
def test_each_part_has_its_draft(options: dict[str, Any], source: str, texts: list[str]) -> None:
    assert drafts(source, **options) == [ids(text) if text else () for text in texts]


def test_engine_gets_it() -> None:
    job = job_of(MODEL, Options(decoding=DECODING))
    spec = job.spec(part("a")._replace(tokens=[5, 2], draft=(7, 2)))
    assert pickle.loads(pickle.dumps(spec)).draft == (7, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"beam_size": 2},
        {"temperature": 0.5},
        {"repetition_penalty": 1.5},
        {"no_repeat_ngram_size": 2},
        {"min_decoding_length": 2},
        {"return_top_tokens": 2},
        {"return_alternatives": True},
        {"terms": [generation_pb2.Term(source="ab", target="x")]},
    ],
)
def test_other_searches_ignore_it(other: dict[str, Any]) -> None:
    assert drafts("ab", target_draft="cd", **other) == [()]
    assert drafts("ab", draft_source=True, **other) == [()]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"target_draft": "a" * 16_385}, "options.target_draft"),
        ({"target_draft": "a", "draft_source": True}, "options.draft_source"),
    ],
)
def test_refused(options: dict[str, Any], field: str) -> None:
    assert refusal(drafts, "ab", **options).field == field


def test_a_draft_is_no_longer_than_a_target() -> None:
    assert drafts("ab", target_draft="a" * 16_384) == [ids("a" * 16_384)[: MAX_TARGET + 1]]

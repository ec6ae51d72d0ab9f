import pickle
from typing import Any

import pytest
from tests.unit.server.front.echo import MAX_TARGET, echo_model

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.job import Job, Window
from seqserve_server.front.generate.options import compile_options
from seqserve_server.front.generate.records import Hop, Options, Part, Route
from seqserve_server.front.generate.source import SourceReader
from seqserve_server.front.overload.turns import run_now
from seqserve_server.text.splitting import Span

MODEL = echo_model(max_rows=4)


def drafts(source: str, **options: Any) -> list[tuple[int, ...]]:
    """Returns the draft of each part of a source."""
    meant = compile_options(generation_pb2.GenerationOptions(**options), MODEL)
    return [part.draft for part in run_now(SourceReader(MODEL, meant).read(source)).parts]


def ids(text: str) -> tuple[int, ...]:
    return tuple(MODEL.tokenizer.encode_target(text))


def test_text_is_tokenized_with_its_end() -> None:
    assert drafts("ab", target_draft="cd") == [ids("cd")]
    assert drafts("ab", target_draft="") == drafts("ab") == [()]


async def test_engine_gets_it() -> None:
    options = DecodingOptions(max_decoding_length=MAX_TARGET)
    job = Job(
        route=Route((Hop(MODEL, Options(decoding=options)),), Priority.NORMAL, is_bulk=False),
        sources=[],
        call=ServerCall(path="", request_id=""),
        window=Window(1),
    )
    part = Part(Span(0, 1), "a", "a", [5, 2], options, draft=(7, 2))
    spec = job.spec(part)
    assert pickle.loads(pickle.dumps(spec)).draft == (7, 2)


def test_source_is_the_draft() -> None:
    assert drafts("ab", draft_source=True) == [ids("ab")]
    assert drafts("ab", draft_source=False) == [()]


def test_each_of_several_segments_may_be_its_own_draft() -> None:
    lines = {"segmentation": "lines"}
    assert drafts("ab\n", target_draft="xy", **lines) == [ids("xy")]
    assert drafts("ab\ncd", target_draft="xy", **lines) == [()] * 2
    assert drafts("ab\ncd\n--", draft_source=True, **lines) == [ids("ab"), ids("cd"), ()]


def test_prefix_comes_before_a_draft_without_it() -> None:
    assert drafts("ab", target_draft="cd", target_prefix="x") == [ids("xcd")]
    assert drafts("ab", target_draft="xcd", target_prefix="x") == [ids("xcd")]
    assert drafts("ab", draft_source=True, target_prefix="x") == [ids("xab")]


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
    with pytest.raises(InvalidRequest) as caught:
        drafts("ab", **options)
    assert caught.value.field == field


def test_a_draft_is_no_longer_than_a_target() -> None:
    assert drafts("ab", target_draft="a" * 16_384) == [ids("a" * 16_384)[: MAX_TARGET + 1]]

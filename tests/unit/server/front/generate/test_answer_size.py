from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import make_options
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import TOKENIZER
from tests.unit.server.front.generate.written import written

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import Finished, Hypothesis, StopReason, Timeline, TopTokens
from seqserve_server.contract.options import DecodingOptions, SegmentationMode
from seqserve_server.front.generate.job import generated_size
from seqserve_server.front.generate.joined import Joined
from seqserve_server.front.generate.records import STRING_BYTES, Options
from seqserve_server.front.generate.scoring import attended_size, weights_of
from seqserve_server.front.generate.source import SourceReader
from seqserve_server.front.overload.memory import AnswerSize
from seqserve_server.front.overload.turns import run_now
from seqserve_server.text.splitting import Segmentation

MODEL = echo_model(manifest(name="a-model-of-some-name", version=12345), TOKENIZER)
TERMS = [generation_pb2.Term(source=text, target="its translation") for text in "<>"]
MB = 1_000_000


def size_of(options: DecodingOptions, source: int = 20, **more: Any) -> AnswerSize:
    return generated_size(options, source_tokens=source, token_bytes=TOKENIZER.token_bytes, **more)


def added(terms: int) -> dict[str, int]:
    return {"options.terms": terms * (TERMS[0].ByteSize() + STRING_BYTES)}


def answer(options: DecodingOptions, source: int, token: int) -> generation_pb2.GenerateResponse:
    """The largest answer that these options permit, of one token again and again."""
    length = options.max_decoding_length
    top = TopTokens.of([(token, -1.5)] * options.return_top_tokens)
    hypothesis = Hypothesis(
        token_ids=[token] * length,
        score=-1.5,
        stop_reason=StopReason.EOS,
        normalized_score=-0.5,
        token_scores=[-1.5] * (length + 1) if options.return_token_scores else (),
        top_tokens=[top] * (length + 1) if options.return_top_tokens else (),
        attention=array("f", [0.5] * length * source * options.return_attention).tobytes(),
        unmet_terms=range(len(options.terms)),
    )
    # As many tokens, and the end token.
    text, ids = "<" * (source - 1), [token] * source
    return written(
        MODEL,
        text,
        ids,
        Finished([hypothesis] * options.num_hypotheses),
        Timeline(encode_began_s=1.0),
        terms=TERMS[: len(options.terms)],
        return_attention=options.return_attention,
        return_alignment=options.return_attention,
    )


@given(
    length=st.integers(1, 48),
    source=st.integers(1, 64),
    token=st.integers(4, 259),
    terms=st.integers(0, 2),
    others=st.fixed_dictionaries(
        {
            "num_hypotheses": st.integers(1, 3),
            "return_top_tokens": st.sampled_from([0, 1, 5, 64]),
            "return_token_scores": st.booleans(),
            "return_attention": st.booleans(),
        }
    ),
)
def test_an_answer_is_not_larger_than_estimated(
    length: int, source: int, token: int, terms: int, others: dict[str, Any]
) -> None:
    options = make_options(max_decoding_length=length, beam_size=3, terms=((5,),) * terms, **others)
    size = size_of(options, source, added=added(terms))
    found = answer(options, source, token)
    assert generation_pb2.Outcome(response=found).ByteSize() <= size.each


@given(
    lines=st.lists(st.sampled_from(["a", "🙂", "abc def"]), min_size=1, max_size=5),
    gap=st.sampled_from(["\n", "\r\n" * 300]),
    token=st.integers(4, 259),
    terms=st.integers(0, 2),
    attention=st.booleans(),
)
def test_the_answer_to_a_text_in_segments_is_not_larger_than_estimated(
    lines: list[str], gap: str, token: int, terms: int, attention: bool
) -> None:
    text = gap.join(lines)
    options = make_options(
        max_decoding_length=12,
        beam_size=2,
        num_hypotheses=2,
        return_attention=attention,
        terms=((5,),) * terms,
    )
    response = answer(options, 20, token)

    lines_alone = Segmentation(SegmentationMode.LINES)
    reader = SourceReader(MODEL, Options(decoding=options, segmentation=lines_alone))
    source = run_now(reader.read(text))
    joined = Joined(source)
    for _ in source.parts:
        joined.add(generation_pb2.GenerateResponse.FromString(response.SerializeToString()))
    size = size_of(options, added=added(terms), sources=len(lines), text_bytes=len(text.encode()))
    outcome = generation_pb2.Outcome(response=joined.response(MODEL.manifest))
    assert outcome.ByteSize() <= size.each * len(lines)


def test_the_weights_of_all_heads_are_estimated() -> None:
    for encoder_heads in (None, 9):
        shape = replace(MODEL.manifest.architecture, encoder_heads=encoder_heads)
        read = shape.encoder_layers * 5 * 5 * (encoder_heads or shape.heads)
        decoded = shape.decoder_layers * (7 * 7 + 7 * 5) * shape.heads
        written = weights_of(bytes(4 * (read + decoded)), shape.heads, 1, 1)
        manifest = replace(MODEL.manifest, architecture=shape)
        assert written.ByteSize() <= attended_size(manifest, TOKENIZER, 5, 7).each


def test_a_recurrent_decoder_has_no_weights_of_its_own() -> None:
    shape = MODEL.manifest.architecture
    size = attended_size(MODEL.manifest, TOKENIZER, 5, 7).each
    recurrent = replace(MODEL.manifest, architecture=replace(shape, cell_width=8))
    weights_less = shape.decoder_layers * shape.heads * 7 * 7
    assert attended_size(recurrent, TOKENIZER, 5, 7).each == size - 4 * weights_less


def test_a_call_needs_memory_for_each_source() -> None:
    one, many = size_of(make_options()), size_of(make_options(), sources=100)
    assert one.each == many.each
    assert many.held_bytes > 90 * 2 * one.each


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"return_top_tokens": 64}, "options.return_top_tokens"),
        ({"return_attention": True}, "options.return_attention"),
        ({"beam_size": 32, "num_hypotheses": 32}, "options.num_hypotheses"),
        ({"beam_size": 32, "patience": 16.0, "coverage_penalty": 0.5}, "options.patience"),
        ({"max_decoding_length": 10_000}, "options.max_decoding_length"),
    ],
)
def test_a_refusal_names_the_option_that_is_to_blame(options: dict[str, Any], field: str) -> None:
    size = size_of(make_options(**({"max_decoding_length": 100} | options)), 500, sources=1000)
    with pytest.raises(InvalidRequest, match=r"1,000 sources .* MB for one caller") as refusal:
        size.checked(20 * MB)
    assert refusal.value.field == field
    size_of(make_options(max_decoding_length=5), sources=1000).checked(20 * MB)


def test_a_plain_batch_of_any_length_fits_the_default_memory() -> None:
    plain = DecodingOptions(max_decoding_length=512)
    size = generated_size(plain, source_tokens=512, token_bytes=32, sources=1024)
    size.checked(128 * MB)

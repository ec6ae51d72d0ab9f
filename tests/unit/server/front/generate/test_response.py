import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import TOKENIZER
from tests.unit.server.front.generate.written import written

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.files import FileDigest
from seqserve_server.artifact.manifest import SCORER
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import (
    DeadlinePassed,
    EngineFault,
    QueueFull,
    ServiceError,
    Stage,
)
from seqserve_server.contract.events import Finished, Hypothesis, StopReason, Timeline, TopTokens
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.scoring import weights_of
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.text.splitting import Span

MODEL = echo_model(manifest(version=3), TOKENIZER)
UNK = MODEL.manifest.tokens.unk
SOURCE = TOKENIZER.encode("xyz")


def with_scorer(model: ServedModel) -> ServedModel:
    files = {**model.manifest.files, SCORER: FileDigest(sha256="", bytes=0)}
    return replace(model, manifest=replace(model.manifest, files=files), known_options={})


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text)[:-1]


def packed(*rows: list[float]) -> bytes:
    return array("f", [weight for row in rows for weight in row]).tobytes()


def response(
    *hypotheses: Hypothesis,
    terms: Sequence[generation_pb2.Term] = (),
    replaces: bool = False,
    attends: bool = False,
    aligns: bool = False,
    timeline: Timeline | None = None,
    num_targets: int | None = None,
) -> Any:
    return written(
        MODEL,
        "xyz",
        SOURCE,
        Finished(list(hypotheses)),
        timeline,
        num_targets,
        terms=terms,
        replace_unknowns=replaces,
        return_attention=attends,
        return_alignment=aligns,
    )


def test_hypothesis_carries_scores_and_top_tokens() -> None:
    hypothesis = Hypothesis(
        ids("aä"),
        -1.5,
        StopReason.EOS,
        normalized_score=-0.375,
        token_scores=[-0.5, -0.25, -0.25, -0.5],
        top_tokens=[
            TopTokens.of([(ids("a")[0], -0.5), (ids("b")[0], -1.0)]),
            *[TopTokens.of()] * 3,
        ],
    )
    [found] = response(hypothesis).hypotheses
    assert (found.text, list(found.token_ids)) == ("aä", ids("aä"))
    assert list(found.tokens) == ["a", "Ã", "¤"], "as the vocabulary spells them"
    assert (found.score, found.normalized_score) == (-1.5, -0.375)
    assert list(found.token_scores) == [-0.5, -0.25, -0.25, -0.5]
    assert [len(step.tokens) for step in found.top_tokens] == [2, 0, 0, 0]
    best = found.top_tokens[0]
    assert (list(best.tokens), list(best.token_ids)) == (["a", "b"], ids("ab"))
    assert list(best.scores) == [-0.5, -1.0]


@pytest.mark.parametrize("reason", StopReason, ids=lambda reason: reason.name)
def test_stop_reason_keeps_its_name_on_the_wire(reason: StopReason) -> None:
    [found] = response(Hypothesis(ids("a"), -1.0, reason)).hypotheses
    assert generation_pb2.StopReason.Name(found.stop_reason) == f"STOP_REASON_{reason.name}"


def test_fields_that_were_not_requested_are_unset() -> None:
    found = response(Hypothesis(ids("ab"), None, StopReason.EOS))
    [hypothesis] = found.hypotheses
    fields = {field.name for field, _ in hypothesis.ListFields()}
    assert fields == {"text", "tokens", "token_ids", "stop_reason"}
    assert not found.source_pieces


def test_terms_that_could_not_apply_are_unmet_where_a_text_lacks_them() -> None:
    terms = [generation_pb2.Term(source=text, target=text.upper()) for text in ("x", "y", "z")]
    first, second = response(
        Hypothesis(ids("y"), -1.0, StopReason.EOS, unmet_terms=(0,)),
        Hypothesis(ids("XZ"), -2.0, StopReason.EOS),
        terms=terms,
        num_targets=1,
    ).hypotheses
    assert list(first.unmet_terms) == terms
    assert list(second.unmet_terms) == [terms[1]]


def test_empty_answer_is_a_hypothesis_without_text() -> None:
    [found] = response(Hypothesis([], -1.0, StopReason.EOS), attends=True).hypotheses
    assert (found.text, list(found.tokens), list(found.attention)) == ("", [], [])
    waited_out = Hypothesis([], None, StopReason.TIME_LIMIT)
    [found] = response(waited_out, aligns=True).hypotheses
    assert not found.HasField("alignment") and not found.HasField("confidence")


def test_alignment_has_places_instead_of_weights() -> None:
    rows = [[0.5, 0.25, 0.125, 0.125], [0.0, 0.0, 0.4, 0.6]]
    hypothesis = Hypothesis(ids("ab"), -1.0, StopReason.EOS, attention=packed(*rows))
    [found] = response(hypothesis, aligns=True).hypotheses
    assert not found.attention
    # The end token of the source has no place.
    begins, ends = found.alignment.source_begins, found.alignment.source_ends
    assert [*zip(begins, ends, strict=True)] == [(0, 1), (2, 3)]


def test_text_ends_before_a_stop_sequence_also_within_a_token() -> None:
    hypothesis = Hypothesis(ids("abcd"), -1.0, StopReason.STOP_SEQUENCE, text_length=2)
    [found] = response(hypothesis).hypotheses
    assert found.text == "ab"
    [nothing] = response(hypothesis._replace(text_length=0)).hypotheses
    assert nothing.text == ""
    # What replaces an unknown token may be longer than what was there.
    tokens, attention = [*ids("ab"), UNK, *ids("cd")], packed(*[[0, 1, 0, 0]] * 5)
    replaced = hypothesis._replace(token_ids=tokens, attention=attention, text_length=4)
    [found] = response(replaced, replaces=True).hypotheses
    assert found.text == "abycd"


def test_attention_has_a_row_per_token_and_a_weight_per_source_token() -> None:
    rows = [[0.5, 0.25, 0.125, 0.125], [0.0, 0.0, 1.0, 0.0]]
    hypothesis = Hypothesis(ids("ab"), -1.0, StopReason.EOS, attention=packed(*rows))
    found = response(hypothesis, attends=True)
    assert list(found.source_pieces) == ["x", "y", "z", "</s>"]
    assert [list(row.weights) for row in found.hypotheses[0].attention] == rows
    # With replace_unknowns the engine returns attention too, but the message leaves it out.
    silent = response(hypothesis, replaces=True)
    assert not silent.source_pieces
    assert not silent.hypotheses[0].attention


def test_unknown_token_is_replaced_by_the_source_token_it_attends_to_most() -> None:
    a, b = ids("ab")
    hypothesis = Hypothesis(
        [a, UNK, b, UNK],
        -1.0,
        StopReason.EOS,
        attention=packed([1, 0, 0, 0], [0.1, 0.5, 0.2, 0.2], [1, 0, 0, 0], [0.1, 0, 0.3, 0.6]),
    )
    [plain] = response(hypothesis).hypotheses
    assert list(plain.token_ids) == [a, UNK, b, UNK]
    [found] = response(hypothesis, replaces=True).hypotheses
    # The end token of the source replaces nothing.
    assert found.text == "aybz"
    assert list(found.token_ids) == ids("aybz")
    assert list(found.tokens) == ["a", "y", "b", "z"]


def test_timings_are_the_differences_between_stages() -> None:
    times_s = [time.monotonic() - before_s for before_s in (1.0, 0.9, 0.7, 0.6, 0.2)]
    hypothesis = Hypothesis(ids("a"), -1.0, StopReason.EOS)
    found = response(hypothesis, timeline=Timeline(*times_s)).timings
    stages = (found.queue_ms, found.encode_ms, found.first_token_ms, found.decode_ms)
    assert stages == pytest.approx((100, 200, 400, 500), abs=0.1)
    assert 1000 <= found.total_ms < 1000 + 20_000


def test_attention_weights_state_their_layers() -> None:
    weights = [index / 4 for index in range(2 * 3 * 2 * 4)]
    found = weights_of(array("f", weights).tobytes(), heads=3, queries=2, keys=4)
    assert (found.layers, found.heads, found.queries, found.keys) == (2, 3, 2, 4)
    assert list(found.weights) == weights


XZ: Any = {"text": "xz yz", "tokens": TOKENIZER.encode("xz yz")}
KEPT: Any = {**XZ, "kept": [Span(0, 2)], "keep": ["xz"]}
"""A source whose first word is kept."""


def test_what_the_model_wrote_needs_no_attention() -> None:
    answer = Finished([Hypothesis(ids("b xz"), None, StopReason.EOS)])
    [hypothesis] = written(MODEL, answer=answer, **KEPT).hypotheses
    assert hypothesis.text == "b xz"
    assert [(kept.target_begin, kept.target_end) for kept in hypothesis.kept] == [(2, 4)]


def test_what_the_model_did_not_write_is_placed_by_attention() -> None:
    tokens = ids("b cd")
    answer = Hypothesis(tokens, None, StopReason.EOS)
    source = KEPT["tokens"]
    rows = [[float(place == at) for place in range(len(source))] for at in (4, 2, 0, 1)]
    attended = answer._replace(attention=packed(*rows))
    response = written(
        with_scorer(MODEL), answer=Finished([answer]), attention=Finished([attended]), **KEPT
    )
    assert response.hypotheses[0].text == "b xz"
    assert response.hypotheses[0].kept[0].placement == generation_pb2.PLACEMENT_ALIGNED
    assert not response.hypotheses[0].HasField("alignment")


@pytest.mark.parametrize(
    "fault", [QueueFull("full", 1.0), EngineFault("crashed"), DeadlinePassed(Stage.QUEUE)]
)
def test_a_complete_translation_does_not_fail_for_its_attention(fault: ServiceError) -> None:
    answer = Finished([Hypothesis(ids("b"), None, StopReason.EOS)])
    response = written(with_scorer(MODEL), answer=answer, attention=fault, **KEPT)
    assert response.hypotheses[0].text.split() in (["xz", "b"], ["b", "xz"])
    assert response.hypotheses[0].kept[0].placement == generation_pb2.PLACEMENT_INSERTED


def test_attention_is_fetched_while_others_may_write() -> None:
    top = [TopTokens.of([(5, -0.5)])]
    answer = Finished([Hypothesis(ids("b"), None, StopReason.EOS, top_tokens=top)])
    call = ServerCall(path="", request_id="")
    response = written(
        with_scorer(MODEL),
        answer=answer,
        attention=answer,
        while_fetching=lambda: not call.resources.writing.locked(),
        call=call,
        return_top_tokens=1,
        **KEPT,
    )
    assert response.hypotheses[0].top_tokens


LANGUAGES: Any = {"source_languages": {"en": "e"}, "target_languages": {"de": "d"}}
MODELS = {
    "before": Template(source_prefix=["{source}"], **LANGUAGES),
    "after the end token": Template(source_suffix=["{source}"], **LANGUAGES),
    "in words": Template(text_prefix="{source}: ", **LANGUAGES),
}


@pytest.mark.parametrize("place", MODELS)
def test_a_token_of_the_language_is_no_word_of_the_source(place: str) -> None:
    model = echo_model(replace(manifest(), template=MODELS[place]), TOKENIZER)
    [e], end = ids("e"), TOKENIZER.eos_id
    source = {
        "before": [e, *ids("xyz"), end],
        "after the end token": [*ids("xyz"), end, e],
        "in words": [*ids("e: xyz"), end],
    }[place]
    # It attends to the language, or to the end token, most, and to the y after that.
    rows = [[0.5 if each == ids("y")[0] else 0.9 for each in source]]
    for each in map(source.index, ids("xz")):
        rows[0][each] = 0.1
    hypothesis = Hypothesis([UNK], -1.0, StopReason.EOS, attention=packed(*rows))
    found = written(
        model, "xyz", source, Finished([hypothesis]), replace_unknowns=True, source_language="en"
    )
    assert found.hypotheses[0].text == "y"

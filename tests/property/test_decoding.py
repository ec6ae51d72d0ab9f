"""Every way to decode: in a mix as alone, to the last bit, and as by the reference."""

from collections import Counter
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.reference import Reference
from tests.reference_log_probs import ReferenceLogProbs
from tests.support.process import until
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import KeptRequest, keep
from tests.unit.server.engine.stepper import Notes

from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.events import Hypothesis
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.runtime import Runtime

from .drawn_requests import (
    EOS,
    LIKELY,
    MAX_TARGET,
    MOST_ROWS,
    SETTINGS,
    SHORTLIST,
    VOCABULARY_SIZE,
    option_sets,
    plain,
    running_out,
    sources,
    text_of,
    with_terms,
)
from .simulation import (
    Arrival,
    alone,
    arrivals_of,
    assert_as_alone,
    assert_mixed_as_alone,
    make_engine,
)

# Sums of float32 in another order differ by less; what is nearer than that may go either way.
NEAR, ALIKE = 3e-5, 1e-4

simulations = given(
    plan=st.lists(arrivals_of(with_terms()), min_size=2, max_size=12),
    workers=st.integers(1, 2),
    slots=st.integers(MOST_ROWS, 7),
    budget_tokens=st.sampled_from([1, 20, 512]),
)


def opened(folder: Path) -> Runtime:
    return Runtime(folder, Manifest.load(folder), Provider.CPU, threads=1)


ROW_SCALED = pytest.param("tiny_row_scaled_artifact", marks=pytest.mark.parity)


@pytest.fixture(
    scope="module", params=["tiny_artifact", "tiny_int8_artifact", ROW_SCALED, "tiny_ssru_artifact"]
)
def every(request: pytest.FixtureRequest) -> Runtime:
    """Models of other precisions and decoders."""
    return opened(request.getfixturevalue(request.param))


@settings(SETTINGS, max_examples=10)
@simulations
def test_mixed_requests_decode_as_alone(
    every: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    if not every.can_score:
        # Coverage needs attention, which the scorer graph computes.
        plan = [replace(each, options=replace(each.options, coverage_penalty=0.0)) for each in plan]
    assert_mixed_as_alone(every, plan, workers, slots, budget_tokens)


@settings(SETTINGS, max_examples=20)
@given(
    plan=st.lists(arrivals_of(plain()), min_size=1, max_size=14),
    workers=st.integers(1, 2),
    slots=st.integers(1, 3),
    budget_tokens=st.sampled_from([1, 20, 512]),
)
def test_requests_in_few_slots_decode_as_alone(
    tiny_runtime: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    assert_mixed_as_alone(tiny_runtime, plan, workers, slots, budget_tokens)


@pytest.fixture(scope="module", params=["tiny_artifact", "tiny_int8_artifact"])
def listed(request: pytest.FixtureRequest) -> Runtime:
    """A model whose sources may become few tokens, some of which it often chooses."""
    runtime = opened(request.getfixturevalue(request.param))
    runtime.shortlist = SHORTLIST
    return runtime


@settings(SETTINGS, max_examples=6)
@simulations
def test_mixed_requests_decode_as_alone_with_and_without_a_shortlist(
    listed: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    assert_mixed_as_alone(listed, plan, workers, slots, budget_tokens)


@settings(SETTINGS, max_examples=20)
@given(source=sources, options=with_terms())
def test_a_shortlist_and_the_same_tokens_allowed_give_the_same(
    listed: Runtime, source: tuple[int, ...], options: DecodingOptions
) -> None:
    assume(not options.vocabulary)
    needed = {EOS, *options.end_ids, *options.prefix, *chain(*options.terms)}
    tokens = SHORTLIST.candidates(source, needed, VOCABULARY_SIZE).tolist()
    allowed = replace(options, vocabulary=tuple(tokens), shortlist=False)
    found = alone(listed, source, replace(options, shortlist=True))
    assert repr(found) == repr(alone(listed, source, allowed))
    assert {token for one in found.hypotheses for token in one.token_ids} <= set(tokens)


requests = given(source=sources, options=option_sets() | option_sets() | running_out())


@pytest.fixture(scope="module", params=["tiny", "tiny_ssru"])
def twins(request: pytest.FixtureRequest) -> tuple[Runtime, Transformer]:
    """A model as an artifact and in torch, with attention or a recurrent decoder."""
    folder, model = (f"{request.param}_{name}" for name in ("artifact", "model"))
    return opened(request.getfixturevalue(folder)), request.getfixturevalue(model)


@settings(SETTINGS, max_examples=35)
@requests
def test_request_decodes_as_the_reference(
    twins: tuple[Runtime, Transformer], source: tuple[int, ...], options: DecodingOptions
) -> None:
    runtime, model = twins
    found = alone(runtime, source, options)
    ought = Reference(ReferenceLogProbs(model, list(source), options), text_of)
    if ought.margin > NEAR:
        assert len(found.hypotheses) == len(ought.answer.hypotheses)
        for one, other in zip(found.hypotheses, ought.answer.hypotheses, strict=True):
            assert_alike(one, other)


def assert_alike(one: Hypothesis, other: Hypothesis) -> None:
    assert one.token_ids == other.token_ids
    assert (one.stop_reason, one.text_length) == (other.stop_reason, other.text_length)
    assert one.score == pytest.approx(other.score, abs=ALIKE)
    assert one.normalized_score == pytest.approx(other.normalized_score, abs=ALIKE)
    assert one.token_scores == pytest.approx(other.token_scores, abs=ALIKE, nan_ok=True)
    assert len(one.top_tokens) == len(other.top_tokens)
    for found, ought in zip(one.top_tokens, other.top_tokens, strict=True):
        assert found.token_ids == ought.token_ids
        scores = list(ought.log_probabilities)
        assert list(found.log_probabilities) == pytest.approx(scores, abs=ALIKE)


@settings(SETTINGS, max_examples=15)
@given(
    plan=st.lists(arrivals_of(plain() | with_terms()), min_size=1, max_size=30),
    workers=st.integers(1, 3),
)
def test_threads_decode_as_alone_and_leave_nothing_behind(
    tiny_runtime: Runtime, plan: list[Arrival], workers: int
) -> None:
    notes = Notes()
    engine = make_engine(tiny_runtime, keep, notes, workers=workers, slots=MOST_ROWS * workers)
    engine.start()
    requests, seconds = [arrival.request() for arrival in plan], list[KeptRequest]()
    for request in requests:
        engine.submit(request)
    kept = list[tuple[KeptRequest, Arrival]]()
    for request, arrival in zip(requests, plan, strict=True):
        if arrival.cancelled_after is not None:
            engine.cancel(request)
        else:
            kept.append((request, arrival))
    for request, _ in kept:
        answer = request.result
        if request.generate.lacks_attention(request.timeline):
            seconds.append(KeptRequest(replace(request.generate, answer=answer)))
            engine.submit(seconds[-1])
            request.events[-1] = seconds[-1].last
    assert_as_alone(tiny_runtime, kept)
    until(lambda: not (engine.slots_in_use or engine.queue_depth))
    engine.stop()
    assert_idle(engine)
    counted = Counter([*notes.cancellations, *(request for request, _ in notes.ends)])
    assert counted == Counter([*requests, *seconds]), "not counted once each"


def test_options_often_take_effect(tiny_offline: LocalEngine) -> None:
    """Where they took none, comparing would prove nothing."""
    answers = tiny_offline.decode([[token, token + 1, EOS] for token in range(4, 64)])
    outputs = [answer.best.token_ids for answer in answers]
    assert sum(bool(set(tokens) & set(LIKELY)) for tokens in outputs) > 0.9 * len(outputs)
    assert sum("fcc" in text_of(tokens) for tokens in outputs) > 0.2 * len(outputs)


@pytest.mark.parametrize("artifact", ["tiny_artifact", "tiny_int8_artifact", ROW_SCALED])
def test_answers_are_worth_comparing(
    artifact: str, tiny_offline: LocalEngine, request: pytest.FixtureRequest
) -> None:
    """Rows of one and the same answer could be swapped unseen."""
    sources = [[token, token + 1, EOS] for token in range(4, 84)]
    with LocalEngine(request.getfixturevalue(artifact), slots=8) as engine:
        answers = engine.decode(sources)
    assert len({tuple(answer.best.token_ids) for answer in answers}) > 60
    lengths = {len(answer.best.token_ids) for answer in answers}
    assert len(lengths) > 5, "targets end at few places"
    assert MAX_TARGET in lengths, "none is cut off"
    steps = [pair for answer in answers for pair in pairwise(answer.best.token_ids)]
    assert sum(a == b for a, b in steps) < 0.4 * len(steps), "they repeat one token"
    pairs = zip(answers, tiny_offline.decode(sources), strict=True)
    rounded = sum(one.best.score != other.best.score for one, other in pairs)
    assert rounded == (0 if artifact == "tiny_artifact" else len(sources)), "nothing is rounded"

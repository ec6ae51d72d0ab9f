"""Every way to decode: in a mix as alone, to the last bit, and as by the reference."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.reference import Reference
from tests.reference_log_probs import ReferenceLogProbs
from tests.unit.server.engine.requests import KeptRequest

from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.events import Finished, Hypothesis, Progress, StopReason
from seqserve_server.contract.limits import EngineLimits, Provider, QueueLimits
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.local_engine import deliver, generate
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.request import Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.scorer import Scorer
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.engine.worker import Worker

EOS, VOCABULARY_SIZE = 2, 384
MAX_SOURCE, MAX_TARGET, MOST_ROWS = 24, 20, 4
# Sums of float32 in another order differ by less; what is nearer than that may go either way.
NEAR, ALIKE = 3e-5, 1e-4

# The tiny model chooses these most: options forbid and force them.
LIKELY = [19, 172, 275, 101, 226, 375, 152, 15, 346, 192, 235, 214]

SETTINGS = settings(derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


def text_of(tokens: Sequence[int]) -> str:
    """Returns a text of few letters, so that stop sequences turn up often, also across tokens."""
    return "".join("abcdefg"[token % 7] * (1 + token % 3) for token in tokens)


likely = st.sampled_from(LIKELY)
sources = st.lists(st.integers(4, VOCABULARY_SIZE - 1), max_size=MAX_SOURCE - 1).map(
    lambda tokens: (*tokens, EOS)
)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 50]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    seed=st.integers(0, 2**64 - 1),
)

vocabularies = st.sampled_from([{*LIKELY, *range(EOS, VOCABULARY_SIZE, gap)} for gap in (2, 40)])
few_tokens = st.sets(likely, min_size=1, max_size=3)


SHORTLIST = Shortlist.of(
    [EOS, *LIKELY[:3]],
    {token: [token, *LIKELY[token % 9 :][:3]] for token in range(4, VOCABULARY_SIZE)},
)


def mostly(value: object, *strategies: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Draws the default in two cases of three."""
    return st.just(value) | st.just(value) | st.one_of(*strategies)


@st.composite
def beams(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(2, MOST_ROWS))
    return {
        "beam_size": size,
        "num_hypotheses": draw(st.integers(1, size)),
        "patience": draw(mostly(1.0, st.sampled_from([0.7, 2.0]))),
        "coverage_penalty": draw(st.sampled_from([0.2, 1.0, 0.0])),
    }


@st.composite
def option_sets(draw: st.DrawFn) -> DecodingOptions:
    kind = draw(st.sampled_from(["draft", "alternatives", "beam", "samples", "greedy"]))
    longest = draw(st.integers(1, MAX_TARGET))
    drafts = st.lists(likely, min_size=1, max_size=3)
    prefix = tuple(draw(drafts if kind == "draft" else mostly([], drafts)))[: longest - 1]
    ends = draw(mostly([], st.lists(likely, min_size=1, max_size=2, unique=True)))
    stops = draw(mostly([], st.lists(st.text("cdef", min_size=1, max_size=4), max_size=2)))
    vocabulary = set() if kind == "draft" else draw(mostly(set(), vocabularies, few_tokens))
    options = DecodingOptions(
        max_decoding_length=longest,
        min_decoding_length=draw(mostly(0, st.integers(0, longest))),
        force_end_token=kind != "alternatives" and draw(mostly(False, st.just(True))),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0, 1.5])),
        repetition_penalty=draw(mostly(1.0, st.sampled_from([0.7, 1.1, 3.0]))),
        no_repeat_ngram_size=draw(mostly(0, st.integers(1, 3))),
        suppressed=tuple(
            draw(mostly([], st.lists(st.lists(likely, min_size=1, max_size=3).map(tuple))))
        ),
        end_ids=tuple(token for token in ends if token not in prefix),
        stops=tuple(stop for stop in stops if stop not in text_of(prefix)),
        prefix=prefix,
        vocabulary=tuple(sorted({*vocabulary, EOS, *ends, *prefix} if vocabulary else ())),
        return_scores=draw(mostly(True, st.booleans())),
        return_token_scores=draw(st.booleans()),
        return_top_tokens=draw(mostly(0, st.integers(1, 4))),
        shortlist=draw(mostly(True, st.booleans())),
    )
    if kind in ("beam", "draft"):
        beta = draw(st.sampled_from([0.3, 0.9])) if kind == "draft" and prefix else 0.0
        return replace(options, prefix_bias_beta=beta, **draw(beams()))
    if kind == "samples":
        count = draw(st.integers(1, 3))
        return replace(options, sampling=draw(samplings), num_hypotheses=count)
    if kind == "alternatives":
        size = draw(st.integers(1, 2))
        return replace(
            options,
            return_alternatives=True,
            beam_size=size,
            num_hypotheses=draw(st.integers(1, MOST_ROWS // size)),
            min_alternative_expansion_prob=draw(mostly(0.0, st.sampled_from([0.01, 0.1]))),
        )
    return options


@st.composite
def running_out(draw: st.DrawFn) -> DecodingOptions:
    """Draws so few tokens, each allowed so seldom, that soon none is left."""
    options = draw(option_sets())
    tokens = {EOS, *options.end_ids, *draw(few_tokens)}
    return replace(
        options,
        vocabulary=tuple(sorted(tokens)),
        no_repeat_ngram_size=draw(st.integers(1, 2)),
        min_decoding_length=draw(st.integers(0, options.max_decoding_length)),
        prefix_bias_beta=0.0,
    )


@st.composite
def with_terms(draw: st.DrawFn) -> DecodingOptions:
    """Draws what the reference does not know too: terms of a beam."""
    options = draw(option_sets())
    is_apart = options.prefix_bias_beta or options.return_alternatives or options.vocabulary
    if options.beam_size == 1 or is_apart:
        return options
    if options.suppressed or options.end_ids or options.stops:
        return options
    terms = draw(mostly([], st.lists(st.lists(likely, min_size=1, max_size=2), max_size=2)))
    return replace(options, terms=tuple(map(tuple, terms)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request of a simulation."""

    source: tuple[int, ...]
    options: DecodingOptions
    streamed: bool = False
    gap_turns: int = 0
    """Turns of the workers between the arrival before and this one."""
    cancelled_after: int | None = None
    """Turns after which it is cancelled."""


arrivals = st.builds(
    Arrival,
    source=sources,
    options=with_terms(),
    streamed=st.booleans(),
    gap_turns=st.integers(0, 4),
    cancelled_after=st.none() | st.none() | st.integers(0, 8),
)


def make_engine(runtime: Runtime, *, workers: int, slots: int) -> Engine:
    limits = EngineLimits(
        workers=workers, slots=slots, max_queue=100, max_source_tokens_per_step=30
    )
    return Engine(runtime, limits, deliver, Observer(), text_of)


def alone(runtime: Runtime, source: tuple[int, ...], options: DecodingOptions) -> Finished:
    """Decodes one source in an engine that has never run another."""
    engine = make_engine(runtime, workers=1, slots=options.rows)
    engine.start()
    [answer] = generate(engine, [GenerateSpec(source=list(source), options=options)])
    engine.stop()
    return answer


class Simulation:
    """Requests that arrive, are cancelled and are answered, turn by turn."""

    def __init__(self, runtime: Runtime, workers: int, slots: int, budget_tokens: int) -> None:
        self.scheduler = Scheduler(
            QueueLimits(max_queue=1000), workers=workers, slots=workers * slots
        )
        self.workers = [
            Worker(runtime, self.scheduler, slots, budget_tokens, Observer(), text_of, idle_s=0.0)
            for _ in range(workers)
        ]
        self.score_queue = ScoreQueue(QueueLimits(max_queue=1000))
        self.scorer = Scorer(runtime, self.score_queue, idle_s=0.0)
        self.requests: list[KeptRequest] = []
        self.cancellations: list[tuple[int, KeptRequest]] = []
        # The second request of an answer that lacks attention, and the first one.
        self.seconds: dict[Request, KeptRequest] = {}
        self.turns = 0

    def arrive(self, arrival: Arrival) -> None:
        spec = GenerateSpec(
            source=list(arrival.source), options=arrival.options, streamed=arrival.streamed
        )
        request = KeptRequest(spec)
        self.requests.append(request)
        self.scheduler.submit(request)
        if arrival.cancelled_after is not None:
            self.cancellations.append((self.turns + arrival.cancelled_after, request))

    def turn(self) -> None:
        for when, request in self.cancellations:
            if when == self.turns:
                self.scheduler.cancel(request)
        for worker in self.workers:
            for request, event in worker.step():
                assert isinstance(request, KeptRequest)
                if isinstance(event, Finished) and request.generate.lacks_attention(
                    request.timeline
                ):
                    second = Request(replace(request.generate, answer=event))
                    self.seconds[second] = request
                    self.score_queue.submit(second)
                else:
                    request.receive(event)
        for second, event in self.scorer.step():
            self.seconds.pop(second).receive(event)
        self.turns += 1

    @property
    def is_over(self) -> bool:
        return not (self.scheduler.running or self.scheduler.queue_depth or self.seconds)

    def run(self, plan: Sequence[Arrival]) -> None:
        for arrival in plan:
            for _ in range(arrival.gap_turns):
                self.turn()
            self.arrive(arrival)
        while not self.is_over:
            assert self.turns < 1000, "a request does not end"
            self.turn()

    def assert_empty(self) -> None:
        assert self.is_over
        for worker in self.workers:
            worker.assert_idle()


def assert_as_alone(runtime: Runtime, simulation: Simulation, plan: Sequence[Arrival]) -> None:
    for request, arrival in zip(simulation.requests, plan, strict=True):
        is_finished = bool(request.events) and isinstance(request.events[-1], Finished)
        assert is_finished or arrival.cancelled_after is not None, "a request was lost"
        if not is_finished:
            continue
        # As text, in which what is not a number is like itself and every bit of others is seen.
        assert repr(request.result) == repr(alone(runtime, arrival.source, arrival.options))
        assert_streamed(request, arrival)


def assert_streamed(request: KeptRequest, arrival: Arrival) -> None:
    """Tokens come as they are decoded; the last one of an answer comes with the answer."""
    *progress, answer = request.events
    assert isinstance(answer, Finished)
    tokens = [
        token for event in progress if isinstance(event, Progress) for token in event.token_ids
    ]
    if not arrival.streamed or arrival.options.rows > 1:
        assert not tokens
    elif answer.best.stop_reason is StopReason.STOP_SEQUENCE:
        kept = answer.best.token_ids
        assert tokens[: len(kept)] == kept[: len(tokens)]
    else:
        ends = arrival.options.force_end_token or answer.best.stop_reason is StopReason.EOS
        assert tokens == answer.best.token_ids[: None if ends else -1]


def assert_mixed_as_alone(
    runtime: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    simulation = Simulation(runtime, workers, slots, budget_tokens)
    simulation.run(plan)
    simulation.assert_empty()
    assert_as_alone(runtime, simulation, plan)


simulations = given(
    plan=st.lists(arrivals, min_size=2, max_size=12),
    workers=st.integers(1, 2),
    slots=st.integers(MOST_ROWS, 7),
    budget_tokens=st.sampled_from([1, 20, 512]),
)


@settings(SETTINGS, max_examples=10)
@simulations
def test_mixed_requests_decode_as_alone(
    tiny_runtime: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    assert_mixed_as_alone(tiny_runtime, plan, workers, slots, budget_tokens)


def opened(folder: Path) -> Runtime:
    return Runtime(folder, Manifest.load(folder), Provider.CPU, threads=1)


@pytest.fixture(scope="module")
def rounded(tiny_int8_artifact: Path) -> Runtime:
    return opened(tiny_int8_artifact)


@settings(SETTINGS, max_examples=4)
@simulations
def test_mixed_requests_decode_as_alone_where_all_is_rounded(
    rounded: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    assert_mixed_as_alone(rounded, plan, workers, slots, budget_tokens)


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


@pytest.fixture(scope="module")
def recurrent(tiny_ssru_artifact: Path) -> Runtime:
    return opened(tiny_ssru_artifact)


@settings(SETTINGS, max_examples=10)
@simulations
def test_mixed_requests_decode_as_alone_where_the_decoder_is_recurrent(
    recurrent: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    assert_mixed_as_alone(recurrent, plan, workers, slots, budget_tokens)


requests = given(source=sources, options=option_sets() | option_sets() | running_out())


@settings(SETTINGS, max_examples=35)
@requests
def test_request_decodes_as_the_reference(
    tiny_runtime: Runtime,
    tiny_model: Transformer,
    source: tuple[int, ...],
    options: DecodingOptions,
) -> None:
    assert_as_reference(tiny_runtime, tiny_model, source, options)


@settings(SETTINGS, max_examples=35)
@requests
def test_request_decodes_as_the_reference_where_the_decoder_is_recurrent(
    recurrent: Runtime,
    tiny_ssru_model: Transformer,
    source: tuple[int, ...],
    options: DecodingOptions,
) -> None:
    assert_as_reference(recurrent, tiny_ssru_model, source, options)


def assert_as_reference(
    runtime: Runtime, model: Transformer, source: tuple[int, ...], options: DecodingOptions
) -> None:
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
        assert [token for token, _ in found] == [token for token, _ in ought]
        scores = [score for _, score in ought]
        assert [score for _, score in found] == pytest.approx(scores, abs=ALIKE)


def numbered(number: int) -> DecodingOptions:
    """Returns one of 64 sets of options, no two alike."""
    kinds = [
        DecodingOptions(max_decoding_length=MAX_TARGET),
        DecodingOptions(
            max_decoding_length=MAX_TARGET, beam_size=4, num_hypotheses=2, terms=((226, 15), (19,))
        ),
        DecodingOptions(
            max_decoding_length=15,
            beam_size=3,
            patience=2.0,
            length_penalty=0.5,
            coverage_penalty=0.5,
        ),
        DecodingOptions(
            max_decoding_length=MAX_TARGET,
            sampling=Sampling(1.0, 0, 0.9, 0.0, number),
            num_hypotheses=3,
        ),
    ]
    if number >= 32:
        kinds[0] = replace(kinds[0], num_hypotheses=3, return_alternatives=True)
    choices = [
        {"repetition_penalty": 1.3, "return_top_tokens": 3},
        {"no_repeat_ngram_size": 2, "min_decoding_length": 12, "return_attention": True},
        {"prefix": (172, 19), "return_token_scores": True},
        {"stops": ("fcc", "ffd"), "suppressed": ((19, 275), (226,))},
    ]
    options = kinds[number % 4]
    for place, choice in enumerate(choices):
        if number // 4 >> place & 1:
            options = replace(options, **choice)
    return options


def test_64_ways_to_decode_at_once_give_what_each_gives_alone(tiny_runtime: Runtime) -> None:
    plan = [((4 + 3 * number, 5 + number, EOS), numbered(number)) for number in range(64)]
    assert len({options for _, options in plan}) == 64
    engine = make_engine(tiny_runtime, workers=2, slots=24)
    found: dict[int, list[Finished]] = {}

    def call(part: int) -> None:
        specs = [GenerateSpec(source=list(one), options=options) for one, options in plan[part::4]]
        found[part] = generate(engine, specs)

    threads = [threading.Thread(target=call, args=(part,)) for part in range(4)]
    engine.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = [found[number % 4][number // 4] for number in range(len(plan))]
    engine.stop()
    assert (engine.slots_in_use, engine.queue_depth) == (0, 0)
    for (source, options), answer in zip(plan, answers, strict=True):
        assert repr(answer) == repr(alone(tiny_runtime, source, options))
        for one in answer.hypotheses:
            assert bool(one.attention) == bool(options.return_attention and one.token_ids)


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 11])
def test_what_is_cancelled_leaves_its_neighbours_and_its_slots_alone(
    tiny_runtime: Runtime, turns: int
) -> None:
    beam = DecodingOptions(
        max_decoding_length=MAX_TARGET, beam_size=4, min_decoding_length=12, no_repeat_ngram_size=2
    )
    samples = replace(beam, beam_size=1, num_hypotheses=3, sampling=Sampling(1.0, 0, 1.0, 0.0, 5))
    held = DecodingOptions(max_decoding_length=MAX_TARGET, min_decoding_length=MAX_TARGET)
    plan = [
        Arrival(source=(30, 31, EOS), options=replace(beam, beam_size=3), cancelled_after=turns),
        Arrival(source=(40, EOS), options=beam, cancelled_after=turns + 1),
        Arrival(source=(50, 51, 52, EOS), options=samples, cancelled_after=turns),
        Arrival(source=(55, EOS), options=held, cancelled_after=turns),
        Arrival(source=(60, EOS), options=replace(beam, beam_size=1)),
        Arrival(source=(70, 71, EOS), options=samples, gap_turns=1),
        Arrival(source=(80, EOS), options=beam),
    ]
    simulation = Simulation(tiny_runtime, 1, 12, 512)
    simulation.run(plan)
    simulation.assert_empty()
    assert [bool(request.events) for request in simulation.requests] == [False] * 4 + [True] * 3
    assert_as_alone(tiny_runtime, simulation, plan)


@pytest.fixture(scope="module")
def answers(tiny_runtime: Runtime) -> Iterator[list[Finished]]:
    options = DecodingOptions(max_decoding_length=MAX_TARGET)
    yield [alone(tiny_runtime, (token, token + 1, EOS), options) for token in range(4, 64)]


def test_options_often_take_effect(answers: list[Finished]) -> None:
    """Where they took none, comparing would prove nothing."""
    outputs = [answer.best.token_ids for answer in answers]
    assert sum(bool(set(tokens) & set(LIKELY)) for tokens in outputs) > 0.9 * len(outputs)
    assert sum("fcc" in text_of(tokens) for tokens in outputs) > 0.2 * len(outputs)
    reasons = [answer.best.stop_reason for answer in answers]
    assert {StopReason.EOS, StopReason.LENGTH} == set(reasons)

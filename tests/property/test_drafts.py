"""A request with a draft gets the answer of one without, whatever the draft and its neighbours."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from seqserve_server.contract.events import Finished
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine import runtime
from seqserve_server.engine.decoding import drafts
from seqserve_server.engine.local_engine import LocalEngine, generate
from seqserve_server.engine.observer import StatsRecorder

from .drawn_requests import EOS, MAX_TARGET, SETTINGS, VOCABULARY_SIZE, sources


@dataclass(frozen=True)
class Guess:
    """How a draft differs from the answer."""

    seed: int
    wrong: float
    """Share of its tokens that are others."""
    kept: slice
    """What it has of the answer."""
    times: int

    def of(self, answer: Finished) -> tuple[int, ...]:
        tokens = answer.best.token_ids
        changed = [
            (self.seed + 31 * at) % VOCABULARY_SIZE
            if (self.seed * (at + 7)) % 100 < 100 * self.wrong
            else token
            for at, token in enumerate(tokens)
        ]
        return (*(changed[self.kept] * self.times), EOS)


guesses = st.builds(
    Guess,
    seed=st.integers(0, 1000),
    wrong=st.sampled_from([0.0, 0.0, 0.1, 0.3, 1.0]),
    kept=st.sampled_from([slice(None), slice(None, 6), slice(3, None), slice(0)]),
    times=st.integers(1, 2),
)
PLAIN = DecodingOptions(max_decoding_length=MAX_TARGET)
options = st.sampled_from(
    [
        PLAIN,
        PLAIN,
        replace(PLAIN, return_scores=False),
        replace(PLAIN, return_token_scores=True),
        replace(PLAIN, force_end_token=True, max_decoding_length=9),
        replace(PLAIN, prefix=(20, 30)),
        replace(PLAIN, end_ids=(EOS, 60, 61, 62, 63)),
        replace(PLAIN, min_decoding_length=4),
        replace(PLAIN, no_repeat_ngram_size=2),
        replace(PLAIN, repetition_penalty=1.3),
        replace(PLAIN, return_top_tokens=3),
        replace(PLAIN, vocabulary=tuple(range(2, 90))),
        replace(PLAIN, beam_size=3),
        replace(PLAIN, sampling=Sampling(1.0, 5, 1.0, 0.0, 3), num_hypotheses=2),
    ]
)


@pytest.fixture(scope="module", params=["tiny_artifact", "tiny_int8_artifact"])
def offline(request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "_MIN_DRAFTED_BYTES", 0)
        patch.setattr(drafts, "_MAX_ROWS", 8)
        with LocalEngine(request.getfixturevalue(request.param), slots=8) as offline:
            assert offline.runtime.draft_reader is not None
            offline.runtime.draft_reader.open()
            yield offline


@settings(SETTINGS, max_examples=examples(40).max_examples)
@given(plan=st.lists(st.tuples(sources, options, guesses), min_size=1, max_size=6))
def test_drafts_change_no_answer(
    offline: LocalEngine, plan: list[tuple[tuple[int, ...], DecodingOptions, Guess]]
) -> None:
    alone = [offline.decode([list(source)], asked)[0] for source, asked, _ in plan]
    specs = [
        GenerateSpec(source=list(source), options=asked, draft=guess.of(answer))
        for (source, asked, guess), answer in zip(plan, alone, strict=True)
    ]
    found = generate(offline._engine, specs)
    assert repr(found) == repr(alone)


def test_right_drafts_are_read(offline: LocalEngine) -> None:
    recorder = StatsRecorder()
    for worker in offline._engine._workers:
        worker._observer = recorder
    sources = [[token, token + 1, EOS] for token in range(4, 24)]
    answers = offline.decode(sources, PLAIN)
    found = offline.decode(sources, PLAIN, [(*each.best.token_ids, EOS) for each in answers])
    assert found == answers
    totals = recorder.snapshot().totals
    assert 60 < totals["accepted_draft_tokens"] == totals["drafted_tokens"]

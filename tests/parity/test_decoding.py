"""Every way to decode gives here what it gives in CTranslate2 and in Hugging Face's transformers.

Where they differ by design:

* CTranslate2 and we count a prefix as part of the length by which a score is divided, transformers
  does not. All three count the end token.
* Of an alternative, CTranslate2 divides only what comes after its first token, and by that length;
  we divide all of it, as everywhere. Which of a beam comes out best may then be another one.
  CTranslate2 lets no alternative end with its first token, and crashes where not even the best
  first token is as probable as was asked for; here that one always goes on.
* CTranslate2 takes padding for source words that nothing attends to when it adds what is covered,
  so for that its sources go one by one.
* In a beam, transformers changes log-probabilities where we change the scores before: what it
  forbids leaves its probability to nobody unless ``renormalize_logits`` is set, and a repetition
  penalty acts otherwise. In greedy search and in sampling it changes scores too.
* transformers' own rule for the end of a beam search is another; with ``early_stopping=True`` it is
  ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from bench.huggingface import marian_of
from bench.marian import MARIAN_BASE, marian_base, write
from bench.peers import CTranslate2Converter
from transformers import GenerationConfig

from seqserve_export.restore import restore
from seqserve_model.transformer import Transformer
from seqserve_server.contract.events import Finished
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.offline import Offline

ROOT = Path(__file__).parents[2]
ARTIFACT = ROOT / "models" / "en-de" / "1"
LONGEST, SENTENCES = 64, 100
DRAWS = 10_000
# Sums in another order may turn a near tie; one sentence in a hundred is far more than seen.
MOST_DIFFERENT = SENTENCES // 100

pytestmark = pytest.mark.parity

Rows = list[list[int]]
Common = Sequence[int]
"""What the model says most, most often first."""


def draws_alike(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Tells whether two samples of one size may be of one distribution.

    By the chi-square test; of samples that are, it takes 1 in 1000 for others. The critical value
    is that of Wilson and Hilferty 1931, "The Distribution of Chi-Square".
    """
    assert len(ours) == len(theirs) == DRAWS
    here, there = Counter(ours), Counter(theirs)
    often = [word for word in here | there if here[word] + there[word] >= 20]
    pairs = [(here[word], there[word]) for word in often]
    rare = (DRAWS - sum(a for a, _ in pairs), DRAWS - sum(b for _, b in pairs))
    pairs += [rare] if sum(rare) else []
    freedom = len(pairs) - 1
    assert freedom > 1, "there is hardly anything to draw"
    statistic = sum((a - b) ** 2 / (a + b) for a, b in pairs)
    step = 2 / (9 * freedom)
    return statistic < freedom * (1 - step + 3.0902 * math.sqrt(step)) ** 3


def test_draws_of_another_distribution_are_told_from_these() -> None:
    random = np.random.default_rng(1)
    shares = random.dirichlet(np.full(50, 0.5))
    hotter = shares**0.9 / (shares**0.9).sum()
    first, second = (random.choice(50, DRAWS, p=shares).tolist() for _ in "ab")
    assert draws_alike(first, second)
    assert not draws_alike(first, random.choice(50, DRAWS, p=hotter).tolist())


def first_words(engine: Offline, source: list[int], sampling: Sampling) -> list[int]:
    """Draws the first word of a target many times over."""
    options = DecodingOptions(max_decoding_length=1, num_hypotheses=25, sampling=sampling)
    eos, words = engine.manifest.tokens.eos, list[int]()
    for seed in range(DRAWS // 25):
        drawing = replace(options, sampling=sampling._replace(seed=seed))
        [answer] = engine.decode([source], drawing)
        words += [(one.token_ids or [eos])[0] for one in answer.hypotheses]
    return words


class CTranslate2:
    """The shipped model's weights there and here."""

    def __init__(self, folder: Path) -> None:
        CTranslate2Converter(restore(ARTIFACT)).convert(str(folder))
        self.theirs = ctranslate2.Translator(
            str(folder), compute_type="float32", inter_threads=1, intra_threads=2
        )
        self.ours = Offline(ARTIFACT, workers=2, slots=64)
        lines = (ROOT / "bench" / "sentences.txt").read_text(encoding="utf-8").splitlines()
        self.sources = [self.ours.tokenizer.encode(line) for line in lines[:SENTENCES]]
        options = DecodingOptions(max_decoding_length=LONGEST)
        greedy = self.ours.decode(self.sources, options)
        counts = Counter(word for answer in greedy for word in answer.best.token_ids)
        self.common = [word for word, _ in counts.most_common(12)]

    def translate(self, options: DecodingOptions) -> list[Any]:
        found: list[Any] = self.theirs.translate_batch(
            named(self.sources),
            named([options.prefix] * len(self.sources)) if options.prefix else None,
            max_batch_size=options.needs_attention or options.return_alternatives,
            max_input_length=0,
            return_attention=options.needs_attention,
            return_scores=True,
            beam_size=options.beam_size,
            patience=options.patience,
            length_penalty=options.length_penalty,
            coverage_penalty=options.coverage_penalty,
            num_hypotheses=options.num_hypotheses,
            return_alternatives=options.return_alternatives,
            min_alternative_expansion_prob=options.min_alternative_expansion_prob,
            prefix_bias_beta=options.prefix_bias_beta,
            max_decoding_length=options.max_decoding_length,
            min_decoding_length=options.min_decoding_length,
            repetition_penalty=options.repetition_penalty,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            suppress_sequences=named(options.suppressed) or None,
            end_token=named([options.end_ids])[0] or None,
        )
        return found


def named(rows: Sequence[Sequence[int]]) -> list[list[str]]:
    return [[f"t{word}" for word in row] for row in rows]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CTranslate2]:
    peer = CTranslate2(tmp_path_factory.mktemp("converted") / "model")
    yield peer
    peer.theirs.unload_model()
    peer.ours.close()


WAYS: dict[str, Callable[[Common], dict[str, Any]]] = {
    "greedy": lambda common: {},
    "beam of 2": lambda common: {"beam_size": 2},
    "beam of 5": lambda common: {"beam_size": 5, "num_hypotheses": 5},
    "beam of 32": lambda common: {"beam_size": 32, "num_hypotheses": 32},
    "no length penalty": lambda common: {"beam_size": 5, "length_penalty": 0.0},
    "some length penalty": lambda common: {
        "beam_size": 5,
        "length_penalty": 0.6,
        "num_hypotheses": 3,
    },
    "much length penalty": lambda common: {
        "beam_size": 8,
        "length_penalty": 1.5,
        "num_hypotheses": 4,
    },
    "patience": lambda common: {"beam_size": 5, "patience": 2.0, "num_hypotheses": 5},
    "impatience": lambda common: {"beam_size": 4, "patience": 0.5, "num_hypotheses": 2},
    "short": lambda common: {"max_decoding_length": 6},
    "short beam": lambda common: {
        "max_decoding_length": 6,
        "beam_size": 5,
        "num_hypotheses": 2,
    },
    "long": lambda common: {"min_decoding_length": 20},
    "long beam": lambda common: {"min_decoding_length": 20, "beam_size": 4},
    "no word twice": lambda common: {"no_repeat_ngram_size": 1, "min_decoding_length": 20},
    "no two words twice": lambda common: {"no_repeat_ngram_size": 2, "min_decoding_length": 20},
    "no three words twice": lambda common: {
        "no_repeat_ngram_size": 3,
        "min_decoding_length": 12,
        "beam_size": 3,
    },
    "repetition penalty": lambda common: {"repetition_penalty": 1.3},
    "repetition reward": lambda common: {"repetition_penalty": 0.8},
    "repetition penalty in a beam": lambda common: {
        "repetition_penalty": 1.3,
        "beam_size": 4,
        "num_hypotheses": 2,
    },
    "words suppressed": lambda common: {"suppressed": ((common[0],), (common[2],))},
    "sequences suppressed": lambda common: {
        "suppressed": ((common[0],), (common[1], common[2]), (common[3], common[1], common[4])),
        "beam_size": 4,
    },
    "end token": lambda common: {"end_ids": (common[1],)},
    "end tokens": lambda common: {"end_ids": tuple(common[:2]), "beam_size": 3},
    "many end tokens": lambda common: {"end_ids": tuple(common), "beam_size": 2},
    "end tokens held back": lambda common: {
        "end_ids": tuple(common),
        "beam_size": 4,
        "num_hypotheses": 2,
        "min_decoding_length": 8,
    },
    "prefix": lambda common: {"prefix": (common[5], common[3])},
    "prefix of a beam": lambda common: {
        "prefix": (common[5], common[3]),
        "beam_size": 4,
        "num_hypotheses": 3,
        "length_penalty": 0.5,
    },
    "prefix in the length": lambda common: {
        "prefix": (common[5], common[3]),
        "beam_size": 3,
        "min_decoding_length": 9,
        "max_decoding_length": 12,
    },
    "prefix that must not be repeated": lambda common: {
        "prefix": (common[5], common[3]),
        "beam_size": 2,
        "no_repeat_ngram_size": 1,
        "repetition_penalty": 1.2,
        "min_decoding_length": 9,
    },
    "prefix that is preferred a little": lambda common: {
        "prefix": (common[5], common[3]),
        "prefix_bias_beta": 0.3,
        "beam_size": 4,
    },
    "prefix that is preferred": lambda common: {
        "prefix": (common[5], common[3]),
        "prefix_bias_beta": 0.9,
        "beam_size": 4,
        "num_hypotheses": 4,
    },
    "coverage": lambda common: {"coverage_penalty": 0.2, "beam_size": 5, "num_hypotheses": 3},
    "much coverage": lambda common: {
        "coverage_penalty": 1.0,
        "length_penalty": 0.0,
        "beam_size": 5,
        "num_hypotheses": 3,
    },
    "all together": lambda common: {
        "prefix": (common[5],),
        "beam_size": 4,
        "num_hypotheses": 4,
        "patience": 2.0,
        "length_penalty": 0.3,
        "repetition_penalty": 1.1,
        "no_repeat_ngram_size": 3,
        "suppressed": ((common[0],), (common[1], common[2])),
        "min_decoding_length": 4,
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_ctranslate2_gives_the_same_hypotheses_and_scores(peer: CTranslate2, way: str) -> None:
    options = DecodingOptions(**{"max_decoding_length": LONGEST} | WAYS[way](peer.common))
    different = 0
    pairs = zip(peer.ours.decode(peer.sources, options), peer.translate(options), strict=True)
    for ours, theirs in pairs:
        if named([one.token_ids for one in ours.hypotheses]) == theirs.hypotheses:
            found = [one.normalized_score for one in ours.hypotheses]
            assert found == pytest.approx(theirs.scores, abs=1e-4)
        else:
            different += 1
    assert different <= MOST_DIFFERENT


ALTERNATIVES: dict[str, Callable[[Common], dict[str, Any]]] = {
    "greedy": lambda common: {"num_hypotheses": 3},
    "greedy after a prefix": lambda common: {
        "num_hypotheses": 5,
        "prefix": (common[5], common[3]),
    },
    "probable": lambda common: {"num_hypotheses": 6, "min_alternative_expansion_prob": 0.05},
    "beam": lambda common: {"num_hypotheses": 3, "beam_size": 4, "length_penalty": 0.0},
    "beam after a prefix": lambda common: {
        "num_hypotheses": 3,
        "beam_size": 2,
        "length_penalty": 0.0,
        "prefix": (common[5], common[3]),
    },
    "probable of a beam": lambda common: {
        "num_hypotheses": 6,
        "beam_size": 2,
        "length_penalty": 0.0,
        "min_alternative_expansion_prob": 0.05,
    },
}


@pytest.mark.parametrize("way", ALTERNATIVES)
def test_ctranslate2_gives_the_same_alternatives(peer: CTranslate2, way: str) -> None:
    chosen = ALTERNATIVES[way](peer.common)
    begun = len(chosen.get("prefix", ()))
    options = DecodingOptions(
        max_decoding_length=LONGEST,
        min_decoding_length=begun + 1,
        return_alternatives=True,
        return_token_scores=True,
        **chosen,
    )
    different, counts = 0, set()
    pairs = zip(peer.ours.decode(peer.sources, options), peer.translate(options), strict=True)
    for ours, theirs in pairs:
        counts.add(len(theirs.hypotheses))
        if named([one.token_ids for one in ours.hypotheses]) != theirs.hypotheses:
            different += 1
            continue
        for one, score in zip(ours.hypotheses, theirs.scores, strict=True):
            first, *others = one.token_scores[begun:]
            divided = sum(others) / len(others) ** options.length_penalty
            assert first + divided == pytest.approx(score, abs=1e-4)
    assert different <= MOST_DIFFERENT
    assert len(counts) > 1 or not options.min_alternative_expansion_prob


@pytest.mark.parametrize("beam_size", [1, 3])
def test_ctranslate2_gives_the_same_attention(peer: CTranslate2, beam_size: int) -> None:
    options = DecodingOptions(
        max_decoding_length=LONGEST,
        beam_size=beam_size,
        num_hypotheses=beam_size,
        return_attention=True,
    )
    compared, answers = 0, peer.ours.decode(peer.sources, options)
    for source, ours, theirs in zip(peer.sources, answers, peer.translate(options), strict=True):
        rows = zip(ours.hypotheses, theirs.hypotheses, theirs.attention, strict=True)
        for one, words, weights in rows:
            if named([one.token_ids]) == [words]:
                found = np.frombuffer(one.attention, np.float32).reshape(-1, len(source))
                np.testing.assert_allclose(found, np.array(weights), atol=1e-5)
                compared += 1
    assert compared >= (SENTENCES - MOST_DIFFERENT) * beam_size


def test_ctranslate2_gives_known_targets_the_same_scores(peer: CTranslate2) -> None:
    options = DecodingOptions(max_decoding_length=LONGEST)
    answers = peer.ours.decode(peer.sources, options)
    # Of another sentence, so that most of it is improbable.
    targets = [answer.best.token_ids for answer in answers[1:] + answers[:1]]
    found = peer.theirs.score_batch(named(peer.sources), named(targets), max_input_length=0)
    eos, bos = peer.ours.manifest.tokens.eos, peer.ours.manifest.tokens.bos
    for source, target, theirs in zip(peer.sources, targets, found, strict=True):
        read = np.array([[bos, *target, eos]])
        length = np.array([len(source)], np.int32)
        [ours] = peer.ours.runtime.score(np.array([source]), length, read, ["log_probabilities"])
        assert ours[0].tolist() == pytest.approx(theirs.log_probs, abs=1e-3)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (2.0, 20, 1.0), (1.5, 50, 0.9)]
)
def test_ctranslate2_draws_from_the_same_distribution(
    peer: CTranslate2, temperature: float, top_k: int, top_p: float
) -> None:
    source = peer.sources[3]
    ctranslate2.set_random_seed(3)
    found = peer.theirs.translate_batch(
        named([source]) * DRAWS,
        max_batch_size=100,
        beam_size=1,
        max_decoding_length=1,
        sampling_temperature=temperature,
        sampling_topk=top_k,
        sampling_topp=top_p,
    )
    theirs = [int((result.hypotheses[0] or ["t2"])[0][1:]) for result in found]
    ours = first_words(peer.ours, source, Sampling(temperature, top_k, top_p, 0.0, 0))
    assert draws_alike(ours, theirs)


MARIAN = replace(
    MARIAN_BASE,
    vocabulary_size=400,
    width=32,
    heads=2,
    feed_forward_width=64,
    encoder_layers=2,
    decoder_layers=2,
    max_source_length=24,
    max_target_length=24,
)


@torch.no_grad()
def shaken() -> Transformer:
    """Makes a model of which no weight is zero or one, and that ends now and then."""
    model, generator = marian_base(MARIAN), torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    model.target_embedding.weight[MARIAN.eos_id] *= 6
    return model


class HuggingFace:
    """A small model of Marian's kind there and here."""

    def __init__(self, repository: Path) -> None:
        model = shaken()
        self.theirs = marian_of(model)
        self.ours = Offline(write(model, repository), slots=32)
        eos = MARIAN.eos_id
        self.sources = [[*range(4 + n, 5 + n + n % 9), eos] for n in range(0, 3 * SENTENCES, 3)]

    def settings(self, **options: Any) -> GenerationConfig:
        return GenerationConfig(
            pad_token_id=MARIAN.pad_id,
            eos_token_id=MARIAN.eos_id,
            decoder_start_token_id=MARIAN.bos_id,
            **{"do_sample": False, "num_beams": 1, "max_new_tokens": 20} | options,
        )

    @torch.inference_mode()
    def generate(self, source: list[int], prefix: Sequence[int] = (), **options: Any) -> Any:
        begun = torch.tensor([[MARIAN.bos_id, *prefix]])
        return self.theirs.generate(
            torch.tensor([source]),
            self.settings(**options),
            attention_mask=torch.ones(1, len(source), dtype=torch.long),
            decoder_input_ids=begun,
            return_dict_in_generate=True,
            output_scores=True,
        )

    def hypotheses(self, found: Any) -> Rows:
        """Gives words up to the end token, which begin after the token that begins."""
        rows = [row[1:] for row in found.sequences.tolist()]
        return [row[: row.index(MARIAN.eos_id)] if MARIAN.eos_id in row else row for row in rows]


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HuggingFace]:
    torch.set_num_threads(1)
    peer = HuggingFace(tmp_path_factory.mktemp("marian"))
    yield peer
    peer.ours.close()


def words_of(answer: Finished) -> Rows:
    return [hypothesis.token_ids for hypothesis in answer.hypotheses]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"length_penalty": 0.6}, {"length_penalty": 0.6}),
        ({"length_penalty": 2.0, "num_hypotheses": 4}, {"length_penalty": 2.0}),
        ({"beam_size": 2}, {"num_beams": 2}),
        ({"max_decoding_length": 5}, {"max_new_tokens": 5}),
        ({"min_decoding_length": 12}, {"min_new_tokens": 12}),
        ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
        ({"suppressed": ((123,), (25, 128))}, {"bad_words_ids": [[123], [25, 128]]}),
    ],
    ids=str,
)
def test_transformers_finds_the_same_beams(
    marian: HuggingFace, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    options = DecodingOptions(
        **{"max_decoding_length": 20, "beam_size": 4, "num_hypotheses": 2} | ours
    )
    asked = {"num_beams": 4, "early_stopping": True, "renormalize_logits": True} | theirs
    different = 0
    answers = marian.ours.decode(marian.sources, options)
    for source, answer in zip(marian.sources, answers, strict=True):
        found = marian.generate(source, num_return_sequences=options.num_hypotheses, **asked)
        if words_of(answer) == marian.hypotheses(found):
            scores = [one.normalized_score for one in answer.hypotheses]
            assert scores == pytest.approx(found.sequences_scores.tolist(), abs=1e-4)
        else:
            different += 1
    assert different <= MOST_DIFFERENT
    assert len({tuple(one) for answer in answers for one in words_of(answer)}) > 25


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
        ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
        ({"min_decoding_length": 15}, {"min_new_tokens": 15}),
        ({"prefix": (50, 60)}, {"prefix": (50, 60), "max_new_tokens": 18}),
    ],
    ids=str,
)
def test_transformers_gives_the_same_greedy_words(
    marian: HuggingFace, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    options = DecodingOptions(max_decoding_length=20, **ours)
    answers = marian.ours.decode(marian.sources, options)
    found = [marian.hypotheses(marian.generate(source, **theirs)) for source in marian.sources]
    different = sum(words_of(a) != b for a, b in zip(answers, found, strict=True))
    assert different <= MOST_DIFFERENT


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.5, 0, 1.0, 0.0),
        (2.0, 10, 1.0, 0.0),
        (1.0, 0, 0.8, 0.0),
        (1.0, 0, 1.0, 0.1),
        (1.5, 30, 0.9, 0.05),
    ],
)
def test_transformers_draws_from_the_same_distribution(
    marian: HuggingFace, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    source = marian.sources[5]
    torch.manual_seed(5)
    found = marian.generate(
        source,
        do_sample=True,
        num_return_sequences=DRAWS,
        max_new_tokens=1,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p or None,
    )
    theirs = found.sequences[:, 1].tolist()
    ours = first_words(marian.ours, source, Sampling(temperature, top_k, top_p, min_p, 0))
    assert draws_alike(ours, theirs)

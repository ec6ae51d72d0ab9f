"""Every way to decode gives the same as in CTranslate2 and transformers, and greedily in torch.

They differ by design in these points:

* CTranslate2 and seqserve count a prefix as part of the length by which a score is divided,
  transformers does not. All three count the end token.
* CTranslate2 divides the score of an alternative without its first token, by the length without it;
  seqserve divides all of it, as everywhere. So another hypothesis of a beam may come out best.
  CTranslate2 lets no alternative end with its first token, and crashes where even the best first
  token is less probable than the minimum; seqserve always keeps the first alternative.
* CTranslate2's coverage penalty counts padding as source tokens without attention, so sources go
  to it one by one.
* In a beam, transformers changes log-probabilities where seqserve changes logits: other tokens do
  not share the probability of suppressed ones unless ``renormalize_logits`` is set, and a
  repetition penalty acts otherwise. In greedy search and sampling it changes logits too.
* Without ``early_stopping`` a beam search of transformers ends by the rule ``false``.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from bench.drivers.ctranslate2 import CTranslate2Converter
from bench.drivers.transformers import TorchDriver, marian_of
from bench.models import MARIAN_BASE, marian_base, write_unproven
from tests.step_graphs import steps_only
from transformers import GenerationConfig

from seqserve_export.restore import restore
from seqserve_model.transformer import Transformer
from seqserve_server.contract.events import Finished
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.local_engine import LocalEngine

ROOT = Path(__file__).parents[2]
ARTIFACT = ROOT / "models" / "en-de" / "1"
MAX_LENGTH, SENTENCES = 64, 100
NUM_SAMPLES = 10_000
AT_ONCE = 25
"""Samples of a request."""
# Sums in another order may turn a near tie; one sentence in a hundred is far more than observed.
MAX_DIFFERENT = SENTENCES // 100

pytestmark = pytest.mark.parity


def are_of_one_distribution(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Returns whether two samples of one size may come from one distribution.

    By the chi-square test; it rejects 1 in 1000 pairs that do. The critical value is that of Wilson
    and Hilferty 1931, "The Distribution of Chi-Square".
    """
    assert len(ours) == len(theirs) == NUM_SAMPLES
    here, there = Counter(ours), Counter(theirs)
    frequent = [token for token in here | there if here[token] + there[token] >= 20]
    pairs = [(here[token], there[token]) for token in frequent]
    rare = (NUM_SAMPLES - sum(a for a, _ in pairs), NUM_SAMPLES - sum(b for _, b in pairs))
    pairs += [rare] if sum(rare) else []
    freedom = len(pairs) - 1
    assert freedom > 1, "there are too few tokens to sample"
    statistic = sum((a - b) ** 2 / (a + b) for a, b in pairs)
    step = 2 / (9 * freedom)
    return statistic < freedom * (1 - step + 3.0902 * math.sqrt(step)) ** 3


def test_the_chi_square_test_rejects_samples_of_a_hotter_distribution() -> None:
    random = np.random.default_rng(1)
    shares = random.dirichlet(np.full(50, 0.5))
    hotter = shares**0.9 / (shares**0.9).sum()
    first, second = (random.choice(50, NUM_SAMPLES, p=shares).tolist() for _ in "ab")
    assert are_of_one_distribution(first, second)
    assert not are_of_one_distribution(first, random.choice(50, NUM_SAMPLES, p=hotter).tolist())


def sample_first_tokens(engine: LocalEngine, source: list[int], sampling: Sampling) -> list[int]:
    options = DecodingOptions(max_decoding_length=1, num_hypotheses=AT_ONCE, sampling=sampling)
    eos, tokens = engine.manifest.tokens.eos, list[int]()
    for seed in range(NUM_SAMPLES // AT_ONCE):
        [answer] = engine.decode([source], replace(options, sampling=sampling._replace(seed=seed)))
        tokens += [(one.token_ids or [eos])[0] for one in answer.hypotheses]
    return tokens


SAME = (
    *("beam_size", "patience", "length_penalty", "coverage_penalty", "num_hypotheses"),
    *("return_alternatives", "min_alternative_expansion_prob", "prefix_bias_beta"),
    *("max_decoding_length", "min_decoding_length", "repetition_penalty", "no_repeat_ngram_size"),
)
"""Options of one name in both."""


class CTranslate2:
    """The shipped model, in CTranslate2 and in seqserve."""

    def __init__(self, folder: Path) -> None:
        CTranslate2Converter(restore(ARTIFACT)).convert(str(folder))
        self.theirs = ctranslate2.Translator(
            str(folder), compute_type="float32", inter_threads=1, intra_threads=1
        )
        self.ours = LocalEngine(ARTIFACT, workers=2, slots=64)
        lines = (ROOT / "bench" / "sentences.txt").read_text(encoding="utf-8").splitlines()
        self.sources = [self.ours.tokenizer.encode(line) for line in lines[:SENTENCES]]
        options = DecodingOptions(max_decoding_length=MAX_LENGTH)
        greedy = self.ours.decode(self.sources, options)
        counts = Counter(token for answer in greedy for token in answer.best.token_ids)
        self._frequent = [token for token, _ in counts.most_common(12)]

    def options(self, way: dict[str, Any], **more: Any) -> DecodingOptions:
        """Makes the options of one way to decode; see ``WAYS`` for its tokens."""

        def tokens_of(ranks: Sequence[int]) -> tuple[int, ...]:
            return tuple(self._frequent[rank] for rank in ranks)

        options = {"max_decoding_length": MAX_LENGTH} | way | more
        for name in {"prefix", "end_ids"} & way.keys():
            options[name] = tokens_of(way[name])
        if "suppressed" in way:
            options["suppressed"] = tuple(map(tokens_of, way["suppressed"]))
        return DecodingOptions(**options)

    def translate(self, options: DecodingOptions) -> list[Any]:
        found: list[Any] = self.theirs.translate_batch(
            named(self.sources),
            named([options.prefix] * len(self.sources)) if options.prefix else None,
            max_batch_size=options.needs_attention or options.return_alternatives,
            max_input_length=0,
            return_attention=options.needs_attention,
            return_scores=True,
            **{name: getattr(options, name) for name in SAME},
            suppress_sequences=named(options.suppressed) or None,
            end_token=named([options.end_ids])[0] or None,
        )
        return found


def named(rows: Sequence[Sequence[int]]) -> list[list[str]]:
    return [[f"t{token}" for token in row] for row in rows]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CTranslate2]:
    peer = CTranslate2(tmp_path_factory.mktemp("converted") / "model")
    yield peer
    peer.theirs.unload_model()
    peer.ours.close()


def test_torch_gives_the_same_tokens(peer: CTranslate2) -> None:
    torch.set_num_threads(1)
    options = DecodingOptions(max_decoding_length=MAX_LENGTH)
    ours = [answer.best.token_ids for answer in peer.ours.decode(peer.sources, options)]
    assert TorchDriver(restore(ARTIFACT), 8, MAX_LENGTH).decode(peer.sources) == ours


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam of 2": {"beam_size": 2},
    "beam of 5": {"beam_size": 5, "num_hypotheses": 5},
    "beam of 32": {"beam_size": 32, "num_hypotheses": 32},
    "no length penalty": {"beam_size": 5, "length_penalty": 0.0},
    "weak length penalty": {"beam_size": 5, "length_penalty": 0.6, "num_hypotheses": 3},
    "strong length penalty": {"beam_size": 8, "length_penalty": 1.5, "num_hypotheses": 4},
    "patience": {"beam_size": 5, "patience": 2.0, "num_hypotheses": 5},
    "low patience": {"beam_size": 4, "patience": 0.5, "num_hypotheses": 2},
    "maximum length": {"max_decoding_length": 6},
    "maximum length of a beam": {"max_decoding_length": 6, "beam_size": 5, "num_hypotheses": 2},
    "minimum length": {"min_decoding_length": 20},
    "minimum length of a beam": {"min_decoding_length": 20, "beam_size": 4},
    "no token twice": {"no_repeat_ngram_size": 1, "min_decoding_length": 20},
    "no two tokens twice": {"no_repeat_ngram_size": 2, "min_decoding_length": 20},
    "no three tokens twice": {"no_repeat_ngram_size": 3, "min_decoding_length": 12, "beam_size": 3},
    "repetition penalty": {"repetition_penalty": 1.3},
    "repetition reward": {"repetition_penalty": 0.8},
    "repetition penalty in a beam": {
        "repetition_penalty": 1.3,
        "beam_size": 4,
        "num_hypotheses": 2,
    },
    "tokens suppressed": {"suppressed": ((0,), (2,))},
    "sequences suppressed": {"suppressed": ((0,), (1, 2), (3, 1, 4)), "beam_size": 4},
    "end token": {"end_ids": (1,)},
    "end tokens": {"end_ids": (0, 1), "beam_size": 3},
    "many end tokens": {"end_ids": tuple(range(12)), "beam_size": 2},
    "end tokens and a minimum length": {
        "end_ids": tuple(range(12)),
        "beam_size": 4,
        "num_hypotheses": 2,
        "min_decoding_length": 8,
    },
    "prefix": {"prefix": (5, 3)},
    "prefix of a beam": {
        "prefix": (5, 3),
        "beam_size": 4,
        "num_hypotheses": 3,
        "length_penalty": 0.5,
    },
    "prefix with length limits": {
        "prefix": (5, 3),
        "beam_size": 3,
        "min_decoding_length": 9,
        "max_decoding_length": 12,
    },
    "prefix without repetition": {
        "prefix": (5, 3),
        "beam_size": 2,
        "no_repeat_ngram_size": 1,
        "repetition_penalty": 1.2,
        "min_decoding_length": 9,
    },
    "weakly preferred prefix": {"prefix": (5, 3), "prefix_bias_beta": 0.3, "beam_size": 4},
    "strongly preferred prefix": {
        "prefix": (5, 3),
        "prefix_bias_beta": 0.9,
        "beam_size": 4,
        "num_hypotheses": 4,
    },
    "coverage penalty": {"coverage_penalty": 0.2, "beam_size": 5, "num_hypotheses": 3},
    "strong coverage penalty": {
        "coverage_penalty": 1.0,
        "length_penalty": 0.0,
        "beam_size": 5,
        "num_hypotheses": 3,
    },
    "many options at once": {
        "prefix": (5,),
        "beam_size": 4,
        "num_hypotheses": 4,
        "patience": 2.0,
        "length_penalty": 0.3,
        "repetition_penalty": 1.1,
        "no_repeat_ngram_size": 3,
        "suppressed": ((0,), (1, 2)),
        "min_decoding_length": 4,
    },
}
"""Options of each way. Numbers in ``prefix``, ``end_ids`` and ``suppressed`` are ranks of tokens:
0 is the token that the model generates most often."""


@pytest.mark.parametrize("way", WAYS)
def test_ctranslate2_gives_the_same_hypotheses_and_scores(peer: CTranslate2, way: str) -> None:
    options = peer.options(WAYS[way])
    different = 0
    pairs = zip(peer.ours.decode(peer.sources, options), peer.translate(options), strict=True)
    for ours, theirs in pairs:
        if named([one.token_ids for one in ours.hypotheses]) == theirs.hypotheses:
            found = [one.normalized_score for one in ours.hypotheses]
            assert found == pytest.approx(theirs.scores, abs=1e-4)
        else:
            different += 1
    assert different <= MAX_DIFFERENT


ALTERNATIVES: dict[str, dict[str, Any]] = {
    "greedy": {"num_hypotheses": 3},
    "greedy after a prefix": {"num_hypotheses": 5, "prefix": (5, 3)},
    "minimum probability": {"num_hypotheses": 6, "min_alternative_expansion_prob": 0.05},
    "beam": {"num_hypotheses": 3, "beam_size": 4, "length_penalty": 0.0},
    "beam after a prefix": {
        "num_hypotheses": 3,
        "beam_size": 2,
        "length_penalty": 0.0,
        "prefix": (5, 3),
    },
    "minimum probability of a beam": {
        "num_hypotheses": 6,
        "beam_size": 2,
        "length_penalty": 0.0,
        "min_alternative_expansion_prob": 0.05,
    },
}


@pytest.mark.parametrize("way", ALTERNATIVES)
def test_ctranslate2_gives_the_same_alternatives(peer: CTranslate2, way: str) -> None:
    forced = len(ALTERNATIVES[way].get("prefix", ()))
    returned = {"return_alternatives": True, "return_token_scores": True}
    options = peer.options(ALTERNATIVES[way], min_decoding_length=forced + 1, **returned)
    different, counts = 0, set()
    pairs = zip(peer.ours.decode(peer.sources, options), peer.translate(options), strict=True)
    for ours, theirs in pairs:
        counts.add(len(theirs.hypotheses))
        if named([one.token_ids for one in ours.hypotheses]) != theirs.hypotheses:
            different += 1
            continue
        for one, score in zip(ours.hypotheses, theirs.scores, strict=True):
            first, *others = one.token_scores[forced:]
            divided = sum(others) / len(others) ** options.length_penalty
            assert first + divided == pytest.approx(score, abs=1e-4)
    assert different <= MAX_DIFFERENT
    assert len(counts) > 1 or not options.min_alternative_expansion_prob


@pytest.mark.parametrize("beam_size", [1, 3])
def test_ctranslate2_gives_the_same_attention(peer: CTranslate2, beam_size: int) -> None:
    way = {"beam_size": beam_size, "num_hypotheses": beam_size, "return_attention": True}
    options = peer.options(way)
    compared, answers = 0, peer.ours.decode(peer.sources, options)
    for source, ours, theirs in zip(peer.sources, answers, peer.translate(options), strict=True):
        rows = zip(ours.hypotheses, theirs.hypotheses, theirs.attention, strict=True)
        for one, tokens, weights in rows:
            if named([one.token_ids]) == [tokens]:
                found = np.frombuffer(one.attention, np.float32).reshape(-1, len(source))
                np.testing.assert_allclose(found, np.array(weights), atol=1e-5)
                compared += 1
    assert compared >= (SENTENCES - MAX_DIFFERENT) * beam_size


def test_ctranslate2_gives_the_same_scores_of_known_targets(peer: CTranslate2) -> None:
    options = DecodingOptions(max_decoding_length=MAX_LENGTH)
    answers = peer.ours.decode(peer.sources, options)
    # The target of another sentence, so that most of its tokens are improbable.
    targets = [answer.best.token_ids for answer in answers[1:] + answers[:1]]
    scores = peer.theirs.score_batch(named(peer.sources), named(targets), max_input_length=0)
    eos, bos = peer.ours.manifest.tokens.eos, peer.ours.manifest.tokens.bos
    for source, target, theirs in zip(peer.sources, targets, scores, strict=True):
        whole = np.array([[bos, *target, eos]])
        length = np.array([len(source)], np.int32)
        [ours] = peer.ours.runtime.score(np.array([source]), length, whole, ["log_probabilities"])
        assert ours[0].tolist() == pytest.approx(theirs.log_probs, abs=1e-3)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (2.0, 20, 1.0), (1.5, 50, 0.9)]
)
def test_ctranslate2_samples_from_the_same_distribution(
    peer: CTranslate2, temperature: float, top_k: int, top_p: float
) -> None:
    source = peer.sources[3]
    ctranslate2.set_random_seed(3)
    found = peer.theirs.translate_batch(
        named([source]) * (NUM_SAMPLES // AT_ONCE),
        max_batch_size=AT_ONCE,
        beam_size=1,
        num_hypotheses=AT_ONCE,
        max_decoding_length=1,
        sampling_temperature=temperature,
        sampling_topk=top_k,
        sampling_topp=top_p,
    )
    theirs = [int((one or ["t2"])[0][1:]) for result in found for one in result.hypotheses]
    ours = sample_first_tokens(peer.ours, source, Sampling(temperature, top_k, top_p, 0.0, 0))
    assert are_of_one_distribution(ours, theirs)


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
def random_marian() -> Transformer:
    """Makes a model without weights of zero or one, whose targets end now and then."""
    model, generator = marian_base(MARIAN), torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    model.target_embedding.weight[MARIAN.eos_id] *= 6
    return model


class HuggingFace:
    """A small model of Marian's architecture, in transformers and in seqserve."""

    def __init__(self, repository: Path) -> None:
        model = random_marian()
        self.theirs = marian_of(model)
        with steps_only():
            artifact = write_unproven(model, repository, "marian-base")
        self.ours = LocalEngine(artifact, slots=32)
        eos = MARIAN.eos_id
        self.sources = [[*range(4 + n, 5 + n + n % 9), eos] for n in range(0, 3 * SENTENCES, 3)]

    def _config(self, **options: Any) -> GenerationConfig:
        return GenerationConfig(
            pad_token_id=MARIAN.pad_id,
            eos_token_id=MARIAN.eos_id,
            decoder_start_token_id=MARIAN.bos_id,
            **{"do_sample": False, "num_beams": 1, "max_new_tokens": 20} | options,
        )

    @torch.inference_mode()
    def generate(
        self, sources: Sequence[list[int]], prefix: Sequence[int] = (), **options: Any
    ) -> Any:
        """Generates for sources of one length, which need no padding."""
        return self.theirs.generate(
            torch.tensor(sources),
            self._config(**options),
            attention_mask=torch.ones(len(sources), len(sources[0]), dtype=torch.long),
            decoder_input_ids=torch.tensor([[MARIAN.bos_id, *prefix]] * len(sources)),
            return_dict_in_generate=True,
            output_scores=True,
        )

    def generate_all(self, **options: Any) -> list[tuple[list[list[int]], list[float]]]:
        """Returns the outputs for each source, and their scores if they are of a beam search.

        An output is the tokens between the begin token and the end token.
        """
        found: dict[int, tuple[list[list[int]], list[float]]] = {}
        count = options.get("num_return_sequences", 1)
        places = sorted(range(len(self.sources)), key=lambda place: len(self.sources[place]))
        for _, group in groupby(places, key=lambda place: len(self.sources[place])):
            group = list(group)
            answer = self.generate([self.sources[place] for place in group], **options)
            rows = [row[1:] for row in answer.sequences.tolist()]
            outputs = [row[: (*row, MARIAN.eos_id).index(MARIAN.eos_id)] for row in rows]
            scores = answer.sequences_scores.tolist() if "num_beams" in options else []
            for index, place in enumerate(group):
                some = slice(index * count, (index + 1) * count)
                found[place] = outputs[some], scores[some]
        return [found[place] for place in range(len(self.sources))]


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HuggingFace]:
    torch.set_num_threads(1)
    peer = HuggingFace(tmp_path_factory.mktemp("marian"))
    yield peer
    peer.ours.close()


def outputs_of(answer: Finished) -> list[list[int]]:
    return [hypothesis.token_ids for hypothesis in answer.hypotheses]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"length_penalty": 0.6}, {"length_penalty": 0.6}),
        ({"length_penalty": 2.0, "num_hypotheses": 4}, {"length_penalty": 2.0}),
        ({"length_penalty": -1.0}, {"length_penalty": -1.0}),
        ({"early_stopping": "true", "length_penalty": 0.0}, {"length_penalty": 0.0}),
        ({"early_stopping": "false", "num_hypotheses": 4}, {"early_stopping": False}),
        ({"early_stopping": "never", "num_hypotheses": 4}, {"early_stopping": "never"}),
        (
            {"early_stopping": "false", "length_penalty": -1.0, "num_hypotheses": 4},
            {"early_stopping": False, "length_penalty": -1.0},
        ),
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
    settings = {"num_beams": 4, "early_stopping": True, "renormalize_logits": True} | theirs
    different = 0
    answers = marian.ours.decode(marian.sources, options)
    found = marian.generate_all(num_return_sequences=options.num_hypotheses, **settings)
    for answer, (outputs, expected) in zip(answers, found, strict=True):
        if outputs_of(answer) == outputs:
            scores = [one.normalized_score for one in answer.hypotheses]
            assert scores == pytest.approx(expected, abs=1e-4, rel=1e-6)
        else:
            different += 1
    assert different <= MAX_DIFFERENT
    assert len({tuple(one) for answer in answers for one in outputs_of(answer)}) > 25


def test_the_end_of_a_search_decides_what_it_finds(marian: HuggingFace) -> None:
    """Else the comparison with each rule proves nothing."""
    beam = DecodingOptions(max_decoding_length=20, beam_size=4, num_hypotheses=4)
    found = {
        rule: marian.ours.decode(marian.sources, replace(beam, early_stopping=rule))
        for rule in ("true", "false", "never")
    }
    for one, other, least in (("true", "false", 30), ("false", "never", 10)):
        pairs = zip(found[one], found[other], strict=True)
        assert sum(outputs_of(a) != outputs_of(b) for a, b in pairs) >= least


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
def test_transformers_gives_the_same_greedy_tokens(
    marian: HuggingFace, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    options = DecodingOptions(max_decoding_length=20, **ours)
    answers = marian.ours.decode(marian.sources, options)
    pairs = zip(answers, marian.generate_all(**theirs), strict=True)
    different = sum(outputs_of(answer) != outputs for answer, (outputs, _) in pairs)
    assert different <= MAX_DIFFERENT


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
def test_transformers_samples_from_the_same_distribution(
    marian: HuggingFace, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    source = marian.sources[5]
    torch.manual_seed(5)
    found = marian.generate(
        [source],
        do_sample=True,
        num_return_sequences=NUM_SAMPLES,
        max_new_tokens=1,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p or None,
    )
    theirs = found.sequences[:, 1].tolist()
    ours = sample_first_tokens(marian.ours, source, Sampling(temperature, top_k, top_p, min_p, 0))
    assert are_of_one_distribution(ours, theirs)

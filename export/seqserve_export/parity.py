"""Proves an artifact: runs it and the torch model on the same sentences, and compares.

Three things must agree: the tokens of greedy search, the log-probabilities of these tokens from
the scorer graph, and the scores from the decoder graph. Torch computes at the artifact's precision
here. In int8 a last bit may still decide between two steps: how much that moves the model's own
answers is measured then, and bounds by how much the artifact's may differ. The cost of rounding is
measured against the model at full precision: by BLEU, chrF and top-1 agreement.

The steps of the artifact, its scorer and the torch model each take as much memory as the weights,
so they come one after another. Torch reads the targets that the artifact chose: they are greedy
where each of their tokens is the best in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from seqserve_export.forced import Reading, agreement, read_targets
from seqserve_export.self_test import Candidate, choose_self_test
from seqserve_export.sensitivity import mean_difference, sensitivity
from seqserve_export.tolerance import TOLERANCES
from seqserve_model.allocator import give_back_freed_memory
from seqserve_model.data import Pair
from seqserve_model.evaluate import score
from seqserve_model.search import batches_by_length, greedy_in_batches
from seqserve_model.transformer import Transformer
from seqserve_server.contract.events import Finished, StopReason
from seqserve_server.contract.limits import is_small
from seqserve_server.contract.manifest import Manifest, SelfTest, Verification
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.provider import Provider
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.engine.offline import Offline
from seqserve_server.engine.session import SCORER, open_session

_ROWS = 16
_MAX_SCORED_LOGITS = 1 << 24
"""Of one run of the scorer graph: 64 MB, and it holds a few times as much."""

OpenModel = Callable[[], Transformer]
"""Gives a model in evaluation mode. Called anew whenever it is needed, so that it is in memory only
then."""


class Proof(NamedTuple):
    """What comes of a proof."""

    verification: Verification
    self_test: SelfTest | None


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Sentences, and what the artifact made of them."""

    sources: list[list[int]]
    answers: list[Finished]
    targets: list[list[int]]
    """The tokens of each answer, with the end token where it has one."""


def verify(
    open_model: OpenModel,
    folder: Path,
    pairs: Sequence[Pair],
    *,
    data: str,
    threads: int = 1,
    open_original: OpenModel | None = None,
    max_decoding_length: int | None = None,
) -> Proof:
    """Runs the model and its artifact on the same sentences; what comes of it is judged apart.

    Args:
        open_model: Gives the model at the artifact's precision.
        folder: Of the artifact.
        pairs: Sentences; they are scored if all of them have a target.
        data: Names the pairs in the report.
        threads: Within a step.
        open_original: Gives the model at full precision, where that differs.
        max_decoding_length: Target tokens, at most; the model's own limit where not given.
    """
    manifest = Manifest.load(folder)
    tokenizer = Tokenizer.of_artifact(folder, manifest)
    max_length = max_decoding_length or manifest.limits.max_target_length
    decoded = _decode(folder, pairs, max_length, threads)
    give_back_freed_memory()
    scored = _score(folder, manifest, decoded, threads)
    give_back_freed_memory()
    tolerance = TOLERANCES[manifest.precision]
    model = open_model()
    readings = read_targets(model, decoded.sources, decoded.targets)
    mean, moved = mean_difference(scored, readings), None
    if mean > tolerance.mean_logprob_difference:
        moved = sensitivity(model, decoded.sources, decoded.targets, readings)
    del model
    whole = readings
    if open_original is not None:
        whole = read_targets(open_original(), decoded.sources, decoded.targets)
    is_equal = [_is_best(*each) for each in zip(readings, decoded.targets, strict=True)]
    translations = [tokenizer.decode(answer.best.token_ids) for answer in decoded.answers]
    scores: dict[str, Any] = dict.fromkeys(_SCORES) | dict.fromkeys(_SIGNATURES, "")
    if all(pair.target for pair in pairs):
        best = _greedy(open_original or open_model, decoded, whole, max_length)
        scores = _scores(pairs, [tokenizer.decode(ids) for ids in best], translations)
    verification = Verification(
        data=data,
        sentences=len(pairs),
        sentences_equal=sum(is_equal),
        top1_agreement=round(agreement(whole, decoded.targets), 4),
        tokens=sum(len(answer.best.token_ids) for answer in decoded.answers),
        # Not max(), which ignores NaN.
        max_logprob_difference=float(np.max(_differences(readings, scored, decoded))),
        mean_logprob_difference=mean,
        logprob_sensitivity=moved,
        **scores,
        torch=torch.__version__,
        onnxruntime=version("onnxruntime"),
    )
    candidates = [
        Candidate(pair.source, translation, reading.margins)
        for pair, translation, reading, answer, is_same in zip(
            pairs, translations, readings, decoded.answers, is_equal, strict=True
        )
        if is_same and answer.best.stop_reason is StopReason.EOS
    ]
    return Proof(verification, choose_self_test(candidates))


def _decode(folder: Path, pairs: Sequence[Pair], max_length: int, threads: int) -> _Decoded:
    with Offline(folder, threads=threads, slots=_ROWS, packs=is_small(folder)) as artifact:
        sources = [artifact.encode(pair.source) for pair in pairs]
        answers = artifact.decode(sources, DecodingOptions(max_decoding_length=max_length))
        end = artifact.manifest.tokens.eos
    targets = [[*answer.best.token_ids, end][:max_length] for answer in answers]
    return _Decoded(sources, answers, targets)


def _score(folder: Path, manifest: Manifest, decoded: _Decoded, threads: int) -> list[NDArray[Any]]:
    """Lets the scorer graph score all targets; gives the log-probability of each token, ``[T]``."""
    graph = open_session(folder, SCORER, manifest, Provider.CPU, threads, packs=is_small(folder))
    special, vocabulary_size = manifest.tokens, manifest.architecture.vocabulary_size
    longest = max(map(len, decoded.targets))
    rows = min(_ROWS, max(1, _MAX_SCORED_LOGITS // (longest * vocabulary_size)))
    found: dict[int, NDArray[Any]] = {}
    for batch in tqdm(list(batches_by_length(decoded.targets, rows)), desc="scoring", unit="batch"):
        sources = [decoded.sources[index] for index in batch]
        targets = [[special.bos, *decoded.targets[index]] for index in batch]
        inputs = {
            "source": _padded(sources, special.pad),
            "source_lengths": np.array([len(ids) for ids in sources], np.int32),
            "target": _padded(targets, special.pad),
        }
        [scored] = graph.run(["log_probabilities"], inputs)
        for row, index in enumerate(batch):
            # A copy: what ONNX Runtime returned keeps all memory of the session.
            found[index] = scored[row, : len(decoded.targets[index])].copy()
    return [found[index] for index in range(len(decoded.targets))]


def _padded(rows: Sequence[list[int]], pad: int) -> NDArray[Any]:
    width = max(map(len, rows))
    return np.array([row + [pad] * (width - len(row)) for row in rows], np.int64)


def _differences(
    readings: Sequence[Reading], scored: Sequence[NDArray[Any]], decoded: _Decoded
) -> list[float]:
    """Compares log-probabilities of the tokens that the artifact chose."""
    differences = []
    for reading, ours, answer in zip(readings, scored, decoded.answers, strict=True):
        expected, total = reading.log_probabilities, answer.best.score
        assert total is not None
        differences.append(float(np.abs(expected - ours).max()))
        # The decoder graph gives only the sum: its difference is spread over the tokens.
        differences.append(abs(float(expected.sum()) - total) / len(expected))
    return differences


def _is_best(reading: Reading, target: list[int]) -> bool:
    return bool((reading.best == target).all())


def _greedy(
    open_model: OpenModel, decoded: _Decoded, readings: Sequence[Reading], max_length: int
) -> list[list[int]]:
    """Decodes greedily with torch, where that gives anything but what the artifact chose."""
    found = [answer.best.token_ids for answer in decoded.answers]
    others = [
        index
        for index, reading in enumerate(readings)
        if not _is_best(reading, decoded.targets[index])
    ]
    if others:
        sources = [decoded.sources[index] for index in others]
        rows = greedy_in_batches(open_model(), sources, max_length, _ROWS)
        for index, row in zip(others, rows, strict=True):
            found[index] = row
    return found


_SCORES = ("bleu_torch", "bleu_artifact", "chrf_torch", "chrf_artifact")
_SIGNATURES = ("bleu_signature", "chrf_signature")


def _scores(pairs: Sequence[Pair], of_torch: list[str], of_artifact: list[str]) -> dict[str, Any]:
    """Scores both against the targets."""
    references = [pair.target for pair in pairs]
    ours, theirs = score(of_torch, references), score(of_artifact, references)
    return {
        "bleu_torch": round(ours.bleu, 2),
        "bleu_artifact": round(theirs.bleu, 2),
        "chrf_torch": round(ours.chrf, 2),
        "chrf_artifact": round(theirs.chrf, 2),
        "bleu_signature": ours.bleu_signature,
        "chrf_signature": ours.chrf_signature,
    }

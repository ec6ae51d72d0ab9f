"""Proves an artifact: runs it and the torch model on the same sentences, and compares.

Three things must agree: the tokens of greedy search, the log-probabilities of these tokens from
the scorer graph, and the scores from the decoder graph. Torch computes at the artifact's precision
here. In int8 a last bit may still decide between two steps: how much that moves the model's own
answers is measured then, and bounds by how much the artifact's may differ. The cost of rounding is
measured against the model at full precision: by BLEU, chrF and top-1 agreement.

The steps of the artifact, its scorer and the torch model each take as much memory as the weights,
so they come one after another. Torch reads the targets that the artifact chose: they are greedy
where each of their tokens is the best in its place, or ties with it at fp32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from seqserve_export.tolerance import TOLERANCES, mean_difference, sensitivity
from seqserve_model.batches import padded
from seqserve_model.cpu import trim_memory
from seqserve_model.data import Pair
from seqserve_model.decoding import (
    TargetScores,
    agreement,
    batches_by_length,
    greedy_in_batches,
    score_targets,
)
from seqserve_model.evaluate import score
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import SCORER, Manifest, is_small
from seqserve_server.artifact.records import SelfTest, Verification
from seqserve_server.contract.events import Finished, StopReason
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.session import open_session
from seqserve_server.text.tokenizer import Tokenizer


class Candidate(NamedTuple):
    """A sentence with a target that ends, and that torch and the artifact decode alike."""

    source: str
    target: str
    margins: NDArray[Any]
    """By how much each token's logit leads over the second, ``[T]``; the end token is the last."""


def choose_self_test(candidates: Sequence[Candidate]) -> SelfTest | None:
    """Chooses the sentence with the largest of the smallest margins; None without sentences.

    It has a target that is not empty and not shorter than the median.
    """
    usable = [candidate for candidate in candidates if len(candidate.margins) > 1]
    if not usable:
        return None
    min_length = median(len(candidate.margins) for candidate in usable)
    long = [candidate for candidate in usable if len(candidate.margins) >= min_length]
    surest = max(long, key=lambda candidate: float(candidate.margins.min()))
    return SelfTest(source=surest.source, target=surest.target)


_ROWS = 16
_MAX_SCORED_LOGITS = 1 << 24
"""Maximum of one run of the scorer graph: 64 MB, and it needs a few times as much."""

OpenModel = Callable[[], Transformer]
"""Opens a model in evaluation mode. Called when the model is needed, so it uses memory only
then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The sentences of a proof."""

    pairs: Sequence[Pair]
    """They are scored if all of them have a target."""
    name: str
    """Names them in the manifest."""
    max_decoding_length: int | None = None
    """Target tokens, at most; the model's own limit if None."""
    threads: int = 1
    """Within a step."""


class Proof(NamedTuple):
    """The measurements of a proof, and the sentence that it chose for the self-test."""

    verification: Verification
    self_test: SelfTest | None


@dataclass(frozen=True, slots=True)
class _Decoded:
    sources: list[list[int]]
    answers: list[Finished]
    targets: list[list[int]]
    """The tokens of each answer, with the end token where it has one."""


def verify(
    open_model: OpenModel,
    folder: Path,
    held_out: HeldOut,
    open_original: OpenModel | None = None,
) -> Proof:
    """Runs the model and its artifact on the same sentences; the caller judges the result.

    Args:
        open_model: Opens the model at the artifact's precision.
        open_original: Opens the model at full precision, where that differs.
    """
    manifest = Manifest.load(folder)
    tokenizer = Tokenizer.of_artifact(folder, manifest)
    max_length = held_out.max_decoding_length or manifest.limits.max_target_length
    decoded = _decode(folder, held_out, max_length)
    trim_memory()
    log_probabilities = _score(folder, manifest, decoded, held_out.threads)
    trim_memory()
    model, logprob_sensitivity = open_model(), None
    tolerance = TOLERANCES[manifest.precision]
    scores = score_targets(model, decoded.sources, decoded.targets)
    mean = mean_difference(log_probabilities, scores)
    if mean > tolerance.mean_logprob_difference:
        logprob_sensitivity = sensitivity(model, decoded.sources, decoded.targets, scores)
    del model
    original_scores = scores
    if open_original is not None:
        original_scores = score_targets(open_original(), decoded.sources, decoded.targets)
    translations = [tokenizer.decode(answer.best.token_ids) for answer in decoded.answers]
    quality: dict[str, Any] = dict.fromkeys(_SCORES) | dict.fromkeys(_SIGNATURES, "")
    if all(pair.target for pair in held_out.pairs):
        best = _greedy(
            open_original or open_model, decoded, original_scores, max_length, tolerance.tie
        )
        quality = _quality(held_out, [tokenizer.decode(ids) for ids in best], translations)
    is_equal, is_original = (
        [_is_best(target, tolerance.tie) for target in each] for each in (scores, original_scores)
    )
    verification = Verification(
        data=held_out.name,
        sentences=len(held_out.pairs),
        sentences_equal=sum(is_equal),
        top1_agreement=round(agreement(original_scores, tolerance.tie), 4),
        tokens=sum(len(answer.best.token_ids) for answer in decoded.answers),
        # Not max(), which ignores NaN.
        max_logprob_difference=float(np.max(_differences(scores, log_probabilities, decoded))),
        mean_logprob_difference=mean,
        logprob_sensitivity=logprob_sensitivity,
        sentences_as_original=sum(is_original),
        **quality,
        torch=torch.__version__,
        onnxruntime=version("onnxruntime"),
    )
    candidates = [
        Candidate(pair.source, translation, target_scores.margins)
        for pair, translation, target_scores, answer, is_same in zip(
            held_out.pairs, translations, scores, decoded.answers, is_equal, strict=True
        )
        if is_same and answer.best.stop_reason is StopReason.EOS
    ]
    return Proof(verification, choose_self_test(candidates))


_MIN_UNCHANGED = 0.95
"""Share of sentences that rounding should leave as they are."""


def report(verification: Verification) -> None:
    """Prints the results of a proof, and a warning where rounding changes many sentences."""
    count, unchanged = verification.sentences, verification.sentences_as_original
    print(
        f"sentences equal       {verification.sentences_equal} of {count}\n"
        f"as at full precision  {unchanged} of {count},"
        f" {verification.top1_agreement:.2%} of the tokens\n"
        f"log-probs differ by   {verification.max_logprob_difference:.2e} at most"
    )
    if verification.bleu_signature:
        print(f"BLEU torch, artifact  {verification.bleu_torch}, {verification.bleu_artifact}")
        print(f"chrF torch, artifact  {verification.chrf_torch}, {verification.chrf_artifact}")
    if unchanged is not None and unchanged < _MIN_UNCHANGED * count:
        print(
            f"warning: rounding changes {count - unchanged:,} of {count:,} sentences, more than"
            f" {1 - _MIN_UNCHANGED:.0%}: calibrate on text like yours (--calibration of an export,"
            " --data of an import), or keep --precision fp32"
        )


def _decode(folder: Path, held_out: HeldOut, max_length: int) -> _Decoded:
    packs = is_small(folder)
    with LocalEngine(folder, threads=held_out.threads, slots=_ROWS, packs=packs) as artifact:
        sources = [artifact.encode(pair.source) for pair in held_out.pairs]
        answers = artifact.decode(sources, DecodingOptions(max_decoding_length=max_length))
        end = artifact.manifest.tokens.eos
    targets = [[*answer.best.token_ids, end][:max_length] for answer in answers]
    return _Decoded(sources, answers, targets)


def _score(folder: Path, manifest: Manifest, decoded: _Decoded, threads: int) -> list[NDArray[Any]]:
    graph = open_session(folder, SCORER, manifest, Provider.CPU, threads, packs=is_small(folder))
    special, vocabulary_size = manifest.tokens, manifest.architecture.vocabulary_size
    longest = max(map(len, decoded.targets))
    rows = min(_ROWS, max(1, _MAX_SCORED_LOGITS // (longest * vocabulary_size)))
    log_probabilities: dict[int, NDArray[Any]] = {}
    for batch in tqdm(
        list(batches_by_length(decoded.targets, rows)), desc="scoring", unit="batch", disable=None
    ):
        source, lengths = padded([decoded.sources[index] for index in batch], special.pad)
        targets = [[special.bos, *decoded.targets[index]] for index in batch]
        inputs = {
            "source": source.numpy(),
            "source_lengths": lengths.int().numpy(),
            "target": padded(targets, special.pad)[0].numpy(),
        }
        [scored] = graph.run(["log_probabilities"], inputs)
        for row, index in enumerate(batch):
            # A copy: what ONNX Runtime returned keeps all memory of the session.
            log_probabilities[index] = scored[row, : len(decoded.targets[index])].copy()
    return [log_probabilities[index] for index in range(len(decoded.targets))]


def _differences(
    scores: Sequence[TargetScores], log_probabilities: Sequence[NDArray[Any]], decoded: _Decoded
) -> list[float]:
    differences = []
    for expected, ours, answer in zip(scores, log_probabilities, decoded.answers, strict=True):
        theirs, total = expected.log_probabilities, answer.best.score
        assert total is not None
        differences.append(float(np.abs(theirs - ours).max()))
        # The decoder graph gives only the sum: its difference is spread over the tokens.
        differences.append(abs(float(theirs.sum()) - total) / len(theirs))
    return differences


def _is_best(scores: TargetScores, tie: float) -> bool:
    return bool((scores.behind <= tie).all())


def _greedy(
    open_model: OpenModel,
    decoded: _Decoded,
    scores: Sequence[TargetScores],
    max_length: int,
    tie: float,
) -> list[list[int]]:
    """Decodes greedily with torch, where that gives anything but what the artifact chose."""
    outputs = [answer.best.token_ids for answer in decoded.answers]
    others = [index for index, target in enumerate(scores) if not _is_best(target, tie)]
    if others:
        sources = [decoded.sources[index] for index in others]
        rows = greedy_in_batches(open_model(), sources, max_length, _ROWS)
        for index, row in zip(others, rows, strict=True):
            outputs[index] = row
    return outputs


_SCORES = ("bleu_torch", "bleu_artifact", "chrf_torch", "chrf_artifact")
_SIGNATURES = ("bleu_signature", "chrf_signature")


def _quality(held_out: HeldOut, of_torch: list[str], of_artifact: list[str]) -> dict[str, Any]:
    references = [pair.target for pair in held_out.pairs]
    ours, theirs = score(of_torch, references), score(of_artifact, references)
    return {
        "bleu_torch": round(ours.bleu, 2),
        "bleu_artifact": round(theirs.bleu, 2),
        "chrf_torch": round(ours.chrf, 2),
        "chrf_artifact": round(theirs.chrf, 2),
        "bleu_signature": ours.bleu_signature,
        "chrf_signature": ours.chrf_signature,
    }

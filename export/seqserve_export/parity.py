"""Proves an artifact: runs it and the torch model on the same sentences, and compares.

Three things must agree: the tokens of greedy search, the log-probabilities of these tokens from
the scorer graph, and the scores from the decoder graph. Torch computes at the artifact's precision
here, so that rounding explains no difference. The cost of rounding is measured against the model at
full precision: by BLEU, chrF and top-1 agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from seqserve.errors import SeqserveError
from seqserve_model.batches import padded
from seqserve_model.config import TransformerConfig
from seqserve_model.data import Pair
from seqserve_model.evaluate import score
from seqserve_model.search import batches_by_length, greedy_in_batches
from seqserve_model.transformer import Transformer
from seqserve_server.contract.events import Finished
from seqserve_server.contract.manifest import Verification
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.offline import Offline

_MAX_BATCH_ROWS = 32
_MAX_BATCH_LOGITS = 1 << 27
"""Half a gigabyte; both sides hold a few times as much."""


class ParityError(SeqserveError):
    """The artifact and the torch model differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an artifact may differ from its model."""

    logprob_difference: float
    equal_share: float  # of sentences with equal tokens; near ties may fall either way
    bleu_loss: float
    top1_agreement: float


TOLERANCES = {
    "fp32": Tolerance(
        logprob_difference=1e-3, equal_share=0.998, bleu_loss=0.05, top1_agreement=0.999
    ),
    # Sums that differ in the last bit may round a value to the next of 255 steps, which deep
    # post-norm networks amplify: a change of 1e-6 in the embeddings of Firefox's English→Portuguese
    # model changes log-probabilities by 0.45 at most, by 0.04 in one token of a hundred.
    "int8": Tolerance(logprob_difference=1.0, equal_share=0.9, bleu_loss=0.2, top1_agreement=0.97),
}
"""By precision."""


def verify(
    model: Transformer,
    folder: Path,
    pairs: Sequence[Pair],
    *,
    data: str,
    threads: int = 1,
    original: Transformer | None = None,
    max_decoding_length: int | None = None,
) -> Verification:
    """Runs the model and its artifact on the same sentences; :func:`judge` judges the results.

    Args:
        model: At the artifact's precision.
        folder: Of the artifact.
        pairs: Sentences; they are scored if all of them have a target.
        data: Names the pairs in the report.
        threads: Within a step.
        original: The model at full precision, where that differs.
        max_decoding_length: Target tokens, at most; the model's own limit where not given.
    """
    max_length = max_decoding_length or model.config.max_target_length
    full = original or model
    with Offline(folder, threads=threads) as artifact:
        sources = [artifact.encode(pair.source) for pair in pairs]
        found = artifact.decode(sources, DecodingOptions(max_decoding_length=max_length))
        differences: list[float] = []
        agreeing: list[bool] = []
        logits = (max_length + 1) * model.config.vocabulary_size
        rows = min(_MAX_BATCH_ROWS, max(1, _MAX_BATCH_LOGITS // logits))
        batches = list(batches_by_length(sources, rows))
        for batch in tqdm(batches, desc="verifying", unit="batch"):
            chosen = _Chosen.of(model.config, [(sources[i], found[i]) for i in batch], max_length)
            differences += _differences(model, artifact, chosen)
            agreeing += _agreeing(full, chosen)
        best = tokens = greedy_in_batches(model, sources, max_length, _MAX_BATCH_ROWS)
        if full is not model:
            best = greedy_in_batches(full, sources, max_length, _MAX_BATCH_ROWS)
        decode = artifact.tokenizer.decode
        translations = [decode(answer.best.token_ids) for answer in found]
        scores = _scores(pairs, [decode(ids) for ids in best], translations)
    equal = sum(ids == answer.best.token_ids for ids, answer in zip(tokens, found, strict=True))
    return Verification(
        data=data,
        sentences=len(pairs),
        sentences_equal=equal,
        top1_agreement=round(float(np.mean(agreeing)), 4),
        tokens=sum(len(ids) for ids in tokens),
        # Not max(), which ignores NaN.
        max_logprob_difference=float(np.max(differences)),
        **scores,
        torch=torch.__version__,
        onnxruntime=version("onnxruntime"),
    )


def _scores(pairs: Sequence[Pair], of_torch: list[str], of_artifact: list[str]) -> dict[str, Any]:
    """Scores both against the targets; None where a pair has none."""
    references = [pair.target for pair in pairs]
    if not all(references):
        values = ("bleu_torch", "bleu_artifact", "chrf_torch", "chrf_artifact")
        return dict.fromkeys(values) | {"bleu_signature": "", "chrf_signature": ""}
    ours, theirs = score(of_torch, references), score(of_artifact, references)
    return {
        "bleu_torch": round(ours.bleu, 2),
        "bleu_artifact": round(theirs.bleu, 2),
        "chrf_torch": round(ours.chrf, 2),
        "chrf_artifact": round(theirs.chrf, 2),
        "bleu_signature": ours.bleu_signature,
        "chrf_signature": ours.chrf_signature,
    }


def judge(verification: Verification, precision: str) -> None:
    """Refuses an artifact that differs too much from its model.

    Raises:
        ParityError: It does; the message names the difference and the tolerance.
    """
    tolerance = TOLERANCES[precision]
    share = verification.sentences_equal / verification.sentences
    checks = [
        ("max log-probability difference", verification.max_logprob_difference,
         "at most", tolerance.logprob_difference),
        ("share of equal sentences", -share, "at least", -tolerance.equal_share),
        ("top-1 agreement", -verification.top1_agreement, "at least", -tolerance.top1_agreement),
    ]  # fmt: skip
    if verification.bleu_torch is not None and verification.bleu_artifact is not None:
        loss = verification.bleu_torch - verification.bleu_artifact
        checks.insert(1, ("BLEU lost", loss, "at most", tolerance.bleu_loss))
    for name, value, bound, limit in checks:
        if not value <= limit:  # also if it is NaN
            raise ParityError(
                f"{name} is {abs(value):.6g}, {bound} {abs(limit):.6g} is allowed for {precision};"
                " nothing was written"
            )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Sources and the targets that the artifact chose for them, as padded tensors."""

    source: Tensor  # [B, S]
    source_lengths: Tensor  # [B]
    target: Tensor  # [B, T + 1], the begin token first
    ended: list[list[int]]  # each target with its end token, where it has one
    scores: list[float]

    @classmethod
    def of(
        cls, config: TransformerConfig, chosen: list[tuple[list[int], Finished]], max_length: int
    ) -> _Chosen:
        ended = [[*answer.best.token_ids, config.eos_id][:max_length] for _, answer in chosen]
        source, source_lengths = padded([ids for ids, _ in chosen], config.pad_id)
        target, _ = padded([[config.bos_id, *ids] for ids in ended], config.pad_id)
        scores = [answer.best.score for _, answer in chosen if answer.best.score is not None]
        return cls(source, source_lengths, target, ended, scores)


@torch.inference_mode()
def _differences(model: Transformer, artifact: Offline, chosen: _Chosen) -> list[float]:
    """Compares log-probabilities of the tokens that the artifact chose."""
    target = chosen.target
    logits = model(chosen.source, chosen.source_lengths, target[:, :-1])  # [B, T, V]
    ours = logits.log_softmax(-1).gather(2, target[:, 1:, None])[:, :, 0].numpy()
    [scored] = artifact.runtime.score(
        chosen.source.numpy(),
        chosen.source_lengths.numpy().astype(np.int32),
        target.numpy(),
        ["log_probabilities"],
    )
    differences = []
    for row, (ids, score_) in enumerate(zip(chosen.ended, chosen.scores, strict=True)):
        expected = ours[row, : len(ids)]
        differences.append(float(np.abs(expected - scored[row, : len(ids)]).max()))
        # The decoder graph gives only the sum: its difference is spread over the tokens.
        differences.append(abs(float(expected.sum()) - score_) / len(ids))
    return differences


@torch.inference_mode()
def _agreeing(model: Transformer, chosen: _Chosen) -> list[bool]:
    """Checks for each token of the artifact whether the model would have chosen it there."""
    best = model(chosen.source, chosen.source_lengths, chosen.target[:, :-1]).argmax(-1)  # [B, T]
    same = best == chosen.target[:, 1:]
    return [bool(same[row, i]) for row, ids in enumerate(chosen.ended) for i in range(len(ids))]

"""The proof: the torch model and the artifact are both really run, and compared.

Three things are compared over real sentences: the tokens that greedy search gives, one by one;
the log-probabilities of the same tokens, through the teacher-forced graph; and the sums that the
step graph itself kept while decoding. BLEU and chrF of both say what any difference is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from seqserve.errors import SeqserveError
from seqserve_model.data import Pair
from seqserve_model.evaluate import score
from seqserve_model.search import batches_by_length, greedy, padded
from seqserve_model.transformer import Transformer
from seqserve_server.engine.request import Finished
from seqserve_server.manifest import Verification
from seqserve_server.offline import Offline

_BATCH_ROWS = 32


class ParityError(SeqserveError):
    """The artifact does not give what the torch model gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an artifact may differ from its model."""

    logit_difference: float
    equal_share: float
    """Of sentences whose tokens are all the same; near ties may fall either way."""
    bleu_loss: float


TOLERANCES = {
    "fp32": Tolerance(logit_difference=1e-3, equal_share=0.998, bleu_loss=0.05),
}
"""By precision."""


def verify(
    model: Transformer, folder: Path, pairs: Sequence[Pair], *, data: str, threads: int = 1
) -> Verification:
    """Runs the model and its artifact on the same sentences.

    Args:
        model: In evaluation mode.
        folder: Of the artifact.
        pairs: Real sentences with references.
        data: Name of the data, for the report.
        threads: Of torch and of the artifact.

    Returns:
        What came out; :func:`judge` says whether that is good enough.
    """
    with Offline(folder, threads=threads) as artifact:
        sources = [artifact.encode(pair.source) for pair in pairs]
        found = artifact.decode(sources)
        expected: list[tuple[int, list[int]]] = []
        differences: list[float] = []
        batches = list(batches_by_length(sources, _BATCH_ROWS))
        for batch in tqdm(batches, desc="verifying", unit="batch"):
            source = padded([sources[i] for i in batch], model.config.pad_id)
            tokens_of = greedy(model, *source, model.config.max_target_length)
            expected += zip(batch, tokens_of, strict=True)
            chosen = [(sources[i], found[i]) for i in batch]
            differences += _differences(model, artifact, chosen)
        tokens = [ids for _, ids in sorted(expected)]
        decode, references = artifact.tokenizer.decode, [pair.target for pair in pairs]
        of_torch = score([decode(ids) for ids in tokens], references)
        of_artifact = score([decode(answer.token_ids) for answer in found], references)
    equal = sum(ids == answer.token_ids for ids, answer in zip(tokens, found, strict=True))
    return Verification(
        data=data,
        sentences=len(pairs),
        sentences_equal=equal,
        tokens=sum(len(ids) for ids in tokens),
        # Not max(), which passes over what is not a number.
        largest_logit_difference=float(np.max(differences)),
        bleu_torch=round(of_torch.bleu, 2),
        bleu_artifact=round(of_artifact.bleu, 2),
        chrf_torch=round(of_torch.chrf, 2),
        chrf_artifact=round(of_artifact.chrf, 2),
        bleu_signature=of_torch.bleu_signature,
        chrf_signature=of_torch.chrf_signature,
        torch=torch.__version__,
        onnxruntime=version("onnxruntime"),
    )


def judge(verification: Verification, precision: str) -> None:
    """Refuses an artifact that differs too much from its model.

    Raises:
        ParityError: It does; the message has both numbers.
    """
    tolerance = TOLERANCES[precision]
    share = verification.sentences_equal / verification.sentences
    loss = verification.bleu_torch - verification.bleu_artifact
    checks = [
        ("largest logit difference", verification.largest_logit_difference,
         "at most", tolerance.logit_difference),
        ("BLEU lost", loss, "at most", tolerance.bleu_loss),
        ("share of equal sentences", -share, "at least", -tolerance.equal_share),
    ]  # fmt: skip
    for name, value, bound, limit in checks:
        if not value <= limit:  # also where it is not a number
            raise ParityError(
                f"{name} is {abs(value):.6g}, {bound} {abs(limit):.6g} is allowed for {precision};"
                " nothing was written"
            )


@torch.inference_mode()
def _differences(
    model: Transformer, artifact: Offline, chosen: list[tuple[list[int], Finished]]
) -> list[float]:
    """Compares log-probabilities of the tokens that the artifact chose."""
    config = model.config
    source, source_lengths = padded([ids for ids, _ in chosen], config.pad_id)
    ended = [[*answer.token_ids, config.eos_id][: config.max_target_length] for _, answer in chosen]
    target, _ = padded([[config.bos_id, *ids] for ids in ended], config.pad_id)
    logits = model(source, source_lengths, target[:, :-1])  # [B, T, V]
    ours = logits.log_softmax(-1).gather(2, target[:, 1:, None])[:, :, 0].numpy()
    [taught] = artifact.runtime.teach(
        source.numpy(),
        source_lengths.numpy().astype(np.int32),
        target.numpy(),
        ["log_probabilities"],
    )
    differences = []
    for row, (ids, (_, answer)) in enumerate(zip(ended, chosen, strict=True)):
        expected = ours[row, : len(ids)]
        differences.append(float(np.abs(expected - taught[row, : len(ids)]).max()))
        # The step graph tells only the sum: its difference, spread over the tokens.
        differences.append(abs(float(expected.sum()) - answer.score) / len(ids))
    return differences

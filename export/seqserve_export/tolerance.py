"""How far an artifact may differ from its model, and the check that refuses one that does."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqserve.errors import SeqserveError
from seqserve_model.decoding import TargetScores, score_targets
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.records import Verification

_CHANGE = 3e-7
"""Relative, of each number of an embedding, up or down: two or three times the last bit of fp32, by
which sums in another order differ. The effect grows in proportion."""


def sensitivity(
    model: Transformer,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    scores: Sequence[TargetScores],
) -> float:
    """Measures by how much the log-probability of a token moves on average.

    Args:
        model: In evaluation mode.
        sources: Token ids, the end token last.
        targets: The targets of :func:`seqserve_model.decoding.score_targets`. scores: Its
        result for the unchanged model.
    """
    random = torch.Generator().manual_seed(1)

    def change(module: nn.Module, inputs: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
        signs = torch.randint(0, 2, embedded.shape, generator=random) * 2 - 1
        return embedded * (1 + _CHANGE * signs)

    with ExitStack() as hooks:
        for embedding in {model.source_embedding, model.target_embedding}:
            hooks.callback(embedding.register_forward_hook(change).remove)
        changed = score_targets(model, sources, targets)
    return mean_difference([target.log_probabilities for target in scores], changed)


def mean_difference(log_probabilities: Sequence[Any], scores: Sequence[TargetScores]) -> float:
    """Averages the differences of log-probabilities ``[T]`` of targets over all tokens."""
    pairs = zip(log_probabilities, scores, strict=True)
    return float(
        np.mean(np.concatenate([np.abs(ours - theirs.log_probabilities) for ours, theirs in pairs]))
    )


class ParityError(SeqserveError):
    """The artifact and the torch model differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an artifact may differ from its model."""

    logprob_difference: float  # of any token
    mean_logprob_difference: float  # where the model itself is not more sensitive than that
    equal_share: float  # of sentences with equal tokens
    bleu_loss: float
    top1_agreement: float
    tie: float = 0.0  # between two tokens, of which either may be chosen
    spare_logprob_difference: float = 0.0  # of all tokens together; of many it is next to nothing


TOLERANCES = {
    "fp32": Tolerance(
        logprob_difference=1e-3,
        mean_logprob_difference=1e-4,
        equal_share=0.998,
        bleu_loss=0.05,
        top1_agreement=0.999,
        # As much as one logit may move; coarser precisions have a lower share instead.
        tie=1e-3,
    ),
    # The step between fp16 numbers is 8,192 times that of fp32: differences of 1e-5, as fp32 has
    # them, become 0.1, and more tokens nearly tie.
    "fp16": Tolerance(
        logprob_difference=0.1,
        mean_logprob_difference=0.01,
        equal_share=0.95,
        bleu_loss=0.1,
        top1_agreement=0.99,
    ),
    # Sums that differ in the last bit may round a value to the next of 255 steps, which deep
    # post-norm networks amplify: a change of 1e-6 in the embeddings of Firefox's English→Portuguese
    # model changes log-probabilities by 0.45 at most, by 0.04 in one token of a hundred.
    "int8": Tolerance(
        logprob_difference=1.0,
        mean_logprob_difference=1e-3,
        equal_share=0.9,
        bleu_loss=0.2,
        top1_agreement=0.97,
        # One value that falls to another step may change a whole sentence.
        spare_logprob_difference=1.0,
    ),
}
"""By precision."""
_MAX_TIMES_SENSITIVITY = 3
"""The mean difference may be so many times what a change of last bits makes."""


def check_tolerance(verification: Verification, precision: str) -> None:
    """Refuses an artifact that differs too much from its model.

    Raises:
        ParityError: It does; the message names the difference and the tolerance.
    """
    tolerance = TOLERANCES[precision]
    share = verification.sentences_equal / verification.sentences
    sensitive = _MAX_TIMES_SENSITIVITY * (verification.logprob_sensitivity or 0.0)
    spare = tolerance.spare_logprob_difference / max(1, verification.tokens)
    mean = verification.mean_logprob_difference or 0.0
    checks = [
        ("max log-probability difference", verification.max_logprob_difference,
         "at most", tolerance.logprob_difference),
        ("mean log-probability difference", mean,
         "at most", max(tolerance.mean_logprob_difference, sensitive) + spare),
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

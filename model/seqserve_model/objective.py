"""What a training minimises, and how fast: its loss and its learning rate.

The loss is cross-entropy with label smoothing over the real target tokens. The learning rate grows
linearly, then falls with the inverse square root of the step. An optional linear decay to zero over
the last steps lets a training of fixed length end well.

Source: Vaswani et al. 2017, §5.3 and §5.4; Szegedy et al. 2016, §7.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from seqserve_model.batches import Batch
from seqserve_model.transformer import Transformer


def batch_loss(model: Transformer, batch: Batch, *, label_smoothing: float) -> Tensor:
    """Computes the loss of a batch, a scalar in nats, summed over its target tokens.

    ``label_smoothing`` is the probability that is spread over all tokens; 0 gives the plain
    negative log-likelihood.
    """
    logits = model(batch.source, batch.source_lengths, batch.target_in)  # [B, T, V]
    # To drop the padding, a hundredth of the tokens, a GPU would first have to count it.
    return F.cross_entropy(
        logits.flatten(0, 1),
        batch.target_out.flatten(),
        ignore_index=model.config.pad_id,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


def learning_rate(
    step: int, *, peak: float, warmup_steps: int, decay_steps: int, max_steps: int
) -> float:
    """Gives the learning rate of a step, counted from 1 to ``max_steps``.

    It is ``peak`` at the end of the warm-up; ``decay_steps`` of 0 means no decay.
    """
    warmup = max(1, warmup_steps)
    rate = peak * min(step / warmup, math.sqrt(warmup / step))
    if decay_steps:
        rate *= min(1.0, max(0.0, max_steps + 1 - step) / decay_steps)
    return rate

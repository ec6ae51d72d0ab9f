"""The training loss: cross-entropy with label smoothing over the real target tokens.

Source: Vaswani et al. 2017, §5.4; Szegedy et al. 2016, §7.
"""

from __future__ import annotations

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

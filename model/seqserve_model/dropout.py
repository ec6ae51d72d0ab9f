"""Dropout from random bytes: the same regularisation as ``nn.Dropout``, cheaper on a CPU.

torch's CPU generator draws one Bernoulli number after the other on one core: 7 ms for an
activation of 2,000 x 256, a tenth of a training step on one core and more on several. Bytes from
numpy take a tenth of that. The probability is rounded to 1/256, and the scale follows it.

Source: Srivastava et al. 2014, "Dropout"; Vaswani et al. 2017, §5.4.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

_LEVELS = 256


class ByteDropout(nn.Module):
    """Sets activations to zero at random while training."""

    def __init__(self, probability: float) -> None:
        """Takes the probability of a zero."""
        super().__init__()
        self.threshold = round(probability * _LEVELS)

    def forward(self, x: Tensor) -> Tensor:
        """Drops and rescales; the identity outside of training."""
        if not self.training or not self.threshold:
            return x
        # Seeded by torch, so torch's generator alone decides a training and its resumption.
        seed = int(torch.randint(2**62, (1,)))
        random = np.random.Generator(np.random.SFC64(seed))
        drawn = torch.frombuffer(bytearray(random.bytes(x.numel())), dtype=torch.uint8)
        kept = (drawn >= self.threshold).view(x.shape)
        return x * (kept * (_LEVELS / (_LEVELS - self.threshold)))


def use_byte_dropout(model: nn.Module) -> None:
    """Puts :class:`ByteDropout` in the place of every ``nn.Dropout`` of a model on the CPU."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(module, name, ByteDropout(child.p).train(child.training))

"""Speeds up training on a CPU: dropout from random bytes, and memory that is kept.

torch's CPU generator draws one Bernoulli number after the other on one core: 7 ms for an
activation of 2,000 x 256, a tenth of a training step on one core and more on several. Bytes from
numpy take a tenth of that. The probability is rounded to 1/256, and the scale follows it.

Each step allocates and frees the same hundreds of megabytes. glibc returns large blocks at once,
and the kernel zeroes every new one page by page: a sixth of the time of a step. Where one stage of
an export follows another, it keeps hundreds of megabytes in small blocks.

Source: Srivastava et al. 2014, "Dropout"; Vaswani et al. 2017, §5.4.
"""

import ctypes
import gc
import sys

import numpy as np
import torch
from torch import Tensor, nn

from seqserve_server.process.processes import malloc_trim

_LEVELS = 256
# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_STEP_BYTES = 1 << 29


class ByteDropout(nn.Module):
    """Sets activations to zero at random while training."""

    def __init__(self, probability: float) -> None:
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
    """Puts :class:`ByteDropout` in place of every ``nn.Dropout`` of a model on the CPU."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(module, name, ByteDropout(child.p).train(child.training))


def keep_freed_memory() -> bool:
    """Asks glibc to keep freed memory; returns False without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    wishes = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, _STEP_BYTES))
    return all([mallopt(name, value) == 1 for name, value in wishes])


def trim_memory() -> None:
    """Frees what only reference cycles keep, and asks glibc to return all that is freed.

    The second does nothing without glibc.
    """
    gc.collect()
    trim = malloc_trim()
    if trim is not None:
        trim(0)

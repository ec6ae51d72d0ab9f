"""How far two computations of the same numbers may differ, whatever the CPU.

A CPU decides in which order a sum is added, so no tolerance can be read off from one of them.
Identities of the mathematics are therefore checked in float64, where rounding is far below any
mistake. Where a side computes in float32, the bound follows from the size of its sums.

Source: Higham and Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis": the error
of n rounded additions grows like √n, except with a negligible probability.
"""

import math

import torch
from torch import Tensor

from seqserve_model.config import TransformerConfig

FLOAT64_TOLERANCE = 1e-10
"""A million times the spacing of float64, a thousandth of what a float32 can resolve."""


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Checks an identity of float64 tensors."""
    assert found.dtype == expected.dtype == torch.float64, "take the fixture `double`"
    torch.testing.assert_close(found, expected, atol=FLOAT64_TOLERANCE, rtol=FLOAT64_TOLERANCE)


def assert_close(found: Tensor, expected: Tensor, bound: float) -> None:
    """Checks that no two numbers differ by more than ``bound``; their types may."""
    torch.testing.assert_close(found, expected, atol=bound, rtol=0, check_dtype=False)


def rounding(terms: int, magnitude: float) -> float:
    """Bounds how far two float32 results of the same sums differ.

    Args:
        terms: Number of terms on the longest path from the inputs to a result.
        magnitude: Largest absolute value on that path.
    """
    return 2 * torch.finfo(torch.float32).eps * math.sqrt(terms) * magnitude


def path_terms(config: TransformerConfig) -> int:
    """Counts the terms of all sums on the longest path from a source to a logit."""
    longest = max(config.max_source_length, config.max_target_length)
    attention = 2 * config.width + config.head_size + longest
    feed_forward = config.width + config.feed_forward_width
    encoder = config.encoder_layers * (attention + feed_forward)
    decoder = config.decoder_layers * (2 * attention + feed_forward)
    return encoder + decoder + config.width

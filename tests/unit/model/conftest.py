"""Tiny models for tests: small enough that a pass costs a millisecond."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqserve_model.config import TransformerConfig
from seqserve_model.transformer import Transformer

TINY: dict[str, Any] = {
    "vocabulary_size": 24,
    "width": 16,
    "heads": 4,
    "feed_forward_width": 20,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.0,
    "relative_distance": 3,
    "relative_buckets": 8,
    "relative_bucket_distance": 10,
    "max_source_length": 14,
    "max_target_length": 12,
}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def double() -> Iterator[None]:
    """Makes float64 the default type of new tensors and weights."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def shake(module: nn.Module) -> None:
    """Moves every weight, so that no bias is zero and no norm is one and none can go missing."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))


def make_config(**changes: Any) -> TransformerConfig:
    """Makes a tiny configuration, some of its values changed."""
    return TransformerConfig(**TINY | changes)


def make_model(**changes: Any) -> Transformer:
    """Makes a tiny model in evaluation mode, some values of its configuration changed."""
    torch.manual_seed(0)
    model = Transformer(make_config(**changes)).eval()
    shake(model)
    return model


def make_tokens(*shape: int) -> Tensor:
    """Draws token ids of a shape, none of them special."""
    return torch.randint(4, TINY["vocabulary_size"], shape)

"""Checkpoints of every family, made once for all tests."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

MakeCheckpoint = Callable[..., tuple[Any, Path]]

MARIAN_SEED = 12
"""Of the Marian that is imported whole."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeCheckpoint:
    """Makes a model of transformers by family and seed, and its folder. Not to be changed."""
    from tests import checkpoints

    @cache
    def make(family: str, seed: int = 0) -> tuple[Any, Path]:
        folder = tmp_path_factory.mktemp(f"{family}-{seed}")
        model = checkpoints.make(family, seed)
        checkpoints.save(model, folder)
        return model, folder

    return make

"""Checkpoints of every family, made once for all tests."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.unit.model.conftest import one_thread as one_thread

MakeCheckpoint = Callable[..., tuple[Any, Path]]
CopyCheckpoint = Callable[[str, int], Path]

MARIAN_SEED = 12
"""Of the Marian that is imported whole."""


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


@pytest.fixture
def copy_checkpoint(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> CopyCheckpoint:
    """Copies the folder of a family and seed, for a test to change."""
    return lambda *given: Path(shutil.copytree(make_checkpoint(*given)[1], tmp_path / "copy"))


def change_json(path: Path, **changes: Any) -> None:
    """Gives fields of a file other values."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))

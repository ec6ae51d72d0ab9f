import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.step_graphs import steps_only
from tests.tiny import SENTENCES

from seqserve_export import artifact
from seqserve_export.artifact import Description
from seqserve_export.pipeline import write_artifact
from seqserve_export.quantization import precision_of
from seqserve_model.data import Pair
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer


def opened(folder: Path) -> Runtime:
    """Opens an artifact as an engine does, on one core."""
    return Runtime(folder, Manifest.load(folder), Provider.CPU, threads=1)


@pytest.fixture
def exported(
    tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_description: Description
) -> Callable[[Transformer], Path]:
    """Exports a model without a scorer and without a proof."""

    def export(model: Transformer) -> Path:
        with steps_only():
            return write_artifact(lambda: model, tiny_tokenizer, tmp_path, tiny_description, None)

    return export


@pytest.fixture
def traced_already(
    tiny_artifact: Path,
    tiny_fp16_artifact: Path,
    tiny_int8_artifact: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Takes the graphs of the tiny model from its artifacts, which saves tracing them again."""
    artifacts = {"fp32": tiny_artifact, "fp16": tiny_fp16_artifact, "int8": tiny_int8_artifact}

    def copy(model: Transformer, folder: Path) -> list[str]:
        source = artifacts[precision_of(model)]
        names = [*(file.name for file in source.glob("*.onnx")), "weights.bin"]
        for name in names:
            shutil.copy(source / name, folder)
        return names

    monkeypatch.setattr(artifact, "write_graphs", copy)


@pytest.fixture(scope="session")
def pairs() -> list[Pair]:
    """Sentences and what the model is sure not to make of them."""
    return [Pair(sentence, sentence.upper()) for sentence in SENTENCES[:45]]

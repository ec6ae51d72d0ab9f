"""A LoRA of PEFT is merged into the weights of its base; what cannot be merged is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tests.unit.import_.conftest import MakeCheckpoint

from seqserve_import import importing
from seqserve_import.adapter import AdaptedCheckpoint
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.files import CheckpointError
from seqserve_import.importing import import_checkpoint
from seqserve_import.loading import load, open_checkpoint
from seqserve_import.options import ImportOptions

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "base_model_name_or_path": "org/base"}
QUERY = "decoder.layers.0.self_attn.q_proj"
UP = "encoder.layers.0.fc1"
PREFIX = "base_model.model.model."


def write(folder: Path, weights: dict[str, Any], **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | changes))
    save_file({PREFIX + name: np.ascontiguousarray(w) for name, w in weights.items()},
              folder / "adapter_model.safetensors")  # fmt: skip
    return folder


def factors(base: Path, module: str, rank: int, seed: int = 0) -> dict[str, np.ndarray]:
    rows, columns = load_file(base / "model.safetensors")[f"model.{module}.weight"].shape
    draw = np.random.default_rng(seed)
    return {
        f"{module}.lora_A.weight": draw.normal(size=(rank, columns)).astype(np.float32),
        f"{module}.lora_B.weight": draw.normal(size=(rows, rank)).astype(np.float32),
    }


@pytest.fixture
def base(make_checkpoint: MakeCheckpoint) -> Path:
    return make_checkpoint("bart", 1)[1]


def merged(base: Path, folder: Path, changes: dict[str, np.ndarray]) -> Checkpoint:
    """Writes the checkpoint that an adapter should make of its base."""
    folder.mkdir()
    for file in base.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(base / "model.safetensors")
    for name, change in changes.items():
        weights[name] = (weights.get(name, 0) + change).astype(np.float32)
    save_file(weights, folder / "model.safetensors")
    return Checkpoint(folder)


@pytest.mark.parametrize(
    ("changes", "scales"),
    [
        ({}, (6 / 2, 6 / 3)),
        ({"use_rslora": True, "fan_in_fan_out": True}, (6 / 2**0.5, 6 / 3**0.5)),
        ({"alpha_pattern": {"fc1": 1.5, "q_proj": 8}}, (8 / 2, 1.5 / 3)),
        ({"alpha_pattern": {f"^model.{UP}": 9, "layers.0.fc1": 1, "j": 5}}, (6 / 2, 9 / 3)),
    ],
)
def test_updates_are_added(
    tmp_path: Path, base: Path, changes: dict[str, Any], scales: tuple[float, float]
) -> None:
    weights = factors(base, QUERY, 2) | factors(base, UP, 3)
    bias = np.linspace(0, 1, weights[f"{UP}.lora_B.weight"].shape[0], dtype=np.float32)
    adapter = write(
        tmp_path / "adapter",
        weights | {f"{UP}.base_layer.bias": bias},
        rank_pattern={"fc1": 3},
        **changes,
    )
    adapted = load(AdaptedCheckpoint(base, adapter)).model.state_dict()
    old = load_file(base / "model.safetensors")[f"model.{UP}.bias"]
    expected = {f"model.{UP}.bias": bias - old}
    for module, scale in zip((QUERY, UP), scales, strict=True):
        up, down = (weights[f"{module}.lora_{side}.weight"].astype(np.float64) for side in "BA")
        expected[f"model.{module}.weight"] = scale * np.einsum("or,ri->oi", up, down)
    theirs = load(merged(base, tmp_path / "merged", expected)).model.state_dict()
    torch.testing.assert_close(adapted, theirs, atol=1e-5, rtol=1e-5)


def test_an_output_that_was_trained_leaves_the_embeddings_as_they_are(
    tmp_path: Path, make_checkpoint: MakeCheckpoint
) -> None:
    base = make_checkpoint("bart", 3)[1]
    table = load_file(base / "model.safetensors")["model.shared.weight"]
    adapter = write(tmp_path / "adapter", factors(base, QUERY, 2), modules_to_save=["lm_head"])
    file = adapter / "adapter_model.safetensors"
    save_file(load_file(file) | {"base_model.model.lm_head.weight": 2 * table}, file)
    before, after = (load(open_checkpoint(base, path)).model for path in (None, adapter))
    assert before.config.tied_output
    assert not after.config.tied_output
    output = after.output_projection.weight
    torch.testing.assert_close(output, 2 * before.target_embedding.weight)
    torch.testing.assert_close(after.target_embedding.weight, before.target_embedding.weight)


def test_the_imported_model_is_the_adapted_one(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = write(tmp_path / "formal", factors(base, QUERY, 2))
    written: list[Any] = []

    def write_artifact(*arguments: Any, **_: Any) -> Path:
        written[:] = arguments
        return tmp_path

    monkeypatch.setattr(importing, "write_artifact", write_artifact)
    options = ImportOptions(
        folder=base, adapter=adapter, name="m", model_repository=tmp_path / "models", sentences=4
    )
    assert import_checkpoint(options) == tmp_path
    open_model, _, _, description, _ = written
    adapted = load(AdaptedCheckpoint(base, adapter)).model.state_dict()
    torch.testing.assert_close(open_model().state_dict(), adapted, atol=0, rtol=0)
    command = description.provenance.command
    assert command.startswith(f"seqserve import {base.name} --adapter formal")


SQUARE = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("changes", "weights", "message"),
    [
        ({"peft_type": "IA3"}, {}, r"config\.json: peft_type is not LORA; .* \(it is 'IA3'\)"),
        ({"use_dora": True}, {}, "use_dora is not merged here; merge the two with merge_and"),
        ({"lora_bias": True}, {}, "lora_bias is not merged here"),
        ({"trainable_token_indices": [3]}, {}, "trainable_token_indices is not merged here"),
        ({"init_lora_weights": "pissa_niter_4"}, {}, "init_lora_weights changes the base model"),
        ({"alpha_pattern": {"(a+)+": 2}}, {}, "alpha_pattern has a pattern that is not a name"),
        ({"rank_pattern": {"fc1": "2"}}, {}, "rank_pattern is not a mapping to numbers"),
        ({"r": 3}, {}, r"lora_A\.weight and its lora_B have the shapes .* do not fit r = 3 and"),
        ({"r": 0}, {}, "do not fit r = 0"),
        ({}, {"other.lora_A.weight": SQUARE, "other.lora_B.weight": SQUARE}, "does not have"),
        ({}, {f"{UP}.lora_A.weight": SQUARE}, "is without its lora_B"),
        ({}, {f"{UP}.lora_B.weight": SQUARE}, "is without its lora_A"),
        ({}, {f"{UP}.lora_magnitude_vector.weight": SQUARE}, "does not have"),
        ({}, {"shared.lora_embedding_A": SQUARE}, "does not have"),
        ({}, {"shared.weight": SQUARE}, r"shared\.weight is a table of tokens; merge the two"),
        ({}, {f"{UP}.bias": SQUARE}, r"fc1\.bias has the shape \[2, 2\], and model"),
    ],
)
def test_what_cannot_be_merged_is_named(
    tmp_path: Path, base: Path, changes: Any, weights: Any, message: str
) -> None:
    adapter = write(tmp_path / "adapter", factors(base, QUERY, 2) | weights, **changes)
    with pytest.raises(CheckpointError, match=message):
        AdaptedCheckpoint(base, adapter)


def test_a_folder_that_is_no_adapter_is_named(tmp_path: Path, base: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"is not an adapter of PEFT; it has no adapter_config"
    ):
        open_checkpoint(base, tmp_path)
    adapter = write(tmp_path, {})
    with pytest.raises(CheckpointError, match="holds no weights of LoRA"):
        open_checkpoint(base, adapter)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(CheckpointError, match=r"adapter_model\.bin may hold more than weights"):
        open_checkpoint(base, adapter)
    (tmp_path / "marian").mkdir()
    (tmp_path / "marian/model.bin").write_bytes(b"\6\0\0\0")
    (tmp_path / "marian/shared_vocabulary.txt").write_text("a\n")
    with pytest.raises(CheckpointError, match="takes no --adapter; only a folder of Hugging Face"):
        open_checkpoint(tmp_path / "marian", adapter)

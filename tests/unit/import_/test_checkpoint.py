import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.files import CheckpointError

WEIGHTS = {"a.weight": torch.arange(6.0).view(2, 3), "b.bias": torch.tensor([0.5, -2.0])}


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))


def write(folder: Path, kind: str, weights: dict[str, Tensor] = WEIGHTS) -> Path:
    """Writes the same weights as one kind of file."""
    write_json(folder / "config.json", {"model_type": "marian"})
    whole = folder / ("model.safetensors" if kind.startswith("safe") else "pytorch_model.bin")
    if "shards" in kind:
        weight_map = {name: f"part-{at}{whole.suffix}" for at, name in enumerate(weights)}
        for name, file in weight_map.items():
            save({name: weights[name]}, folder / file, kind)
        write_json(Path(f"{whole}.index.json"), {"metadata": {}, "weight_map": weight_map})
    else:
        save(weights, whole, kind)
    return folder


def save(weights: dict[str, Tensor], path: Path, kind: str) -> None:
    if path.suffix == ".safetensors":
        save_file(weights, path)
    else:
        torch.save(weights, path, _use_new_zipfile_serialization="old" not in kind)


@pytest.mark.parametrize("kind", ["safetensors", "safe shards", "bin", "bin shards", "old bin"])
def test_weights_are_read_from_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    checkpoint = Checkpoint(write(tmp_path, kind))
    assert checkpoint.names == set(WEIGHTS)
    for name, weight in WEIGHTS.items():
        assert checkpoint.shape(name) == tuple(weight.shape)
        assert torch.equal(checkpoint.tensor(name), weight)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_each_weight_is_mapped_for_as_long_as_it_is_used(tmp_path: Path, kind: str) -> None:
    checkpoint = Checkpoint(write(tmp_path, kind))

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    assert mappings() == 0
    weights = [checkpoint.tensor(name) for name in WEIGHTS]
    assert mappings() == 2
    del weights[0]
    assert mappings() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_precision_are_read_as_fp32(tmp_path: Path, dtype: torch.dtype) -> None:
    write(tmp_path, "safetensors", {name: weight.to(dtype) for name, weight in WEIGHTS.items()})
    tensor = Checkpoint(tmp_path).tensor("b.bias")
    assert tensor.dtype == torch.float32
    assert torch.equal(tensor, WEIGHTS["b.bias"])


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "safetensors", {"a.weight": torch.ones(2, dtype=torch.int8)})
    with pytest.raises(CheckpointError, match=r"a\.weight is of type torch\.int8; use the check"):
        Checkpoint(tmp_path).tensor("a.weight")


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_equal_weights_are_found(tmp_path: Path, kind: str) -> None:
    rows = torch.randn(40_000, 2)
    other = rows.clone()
    other[-1, 1] += 1.0
    weights = {"first": rows, "copy": rows.clone(), "other": other, "short": rows[1:].clone()}
    checkpoint = Checkpoint(write(tmp_path, kind, weights))
    equal = {name: checkpoint.are_equal("first", name) for name in weights}
    assert equal == {"first": True, "copy": True, "other": False, "short": False}


def test_settings_of_generation_go_before_those_of_the_network(tmp_path: Path) -> None:
    write(tmp_path, "safetensors")
    write_json(tmp_path / "config.json", {"num_beams": 4, "eos_token_id": 2, "model_type": "t5"})
    write_json(tmp_path / "generation_config.json", {"num_beams": 6, "pad_token_id": 1})
    generation = Checkpoint(tmp_path).generation
    names = ("num_beams", "eos_token_id", "pad_token_id")
    assert [generation.number(name) for name in names] == [6, 2, 1]


class _Evil:
    def __reduce__(self) -> Any:
        return print, ("code of the file has run",)


def test_a_pickle_runs_no_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "bin", {"a.weight": _Evil()})  # type: ignore[dict-item]
    with pytest.raises(CheckpointError, match=r"is damaged, or holds more than weights"):
        Checkpoint(tmp_path)
    assert "has run" not in capfd.readouterr().out


def test_names_that_are_no_texts_are_read_as_texts(tmp_path: Path) -> None:
    numbered: Any = {7: torch.ones(2)}
    assert Checkpoint(write(tmp_path, "bin", numbered)).names == {"7"}


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("safetensors", "model.safetensors", "cut off", r"model\.safetensors: cannot be"),
        ("bin", "pytorch_model.bin", "PK\3\4 cut off", r"pytorch_model\.bin: cannot be read as"),
        ("safe shards", "part-1.safetensors", None, r"part-1\.safetensors"),
        ("safe shards", "model.safetensors.index.json", "{}", "has no weight_map"),
        ("bin", "config.json", None, r"config\.json: is missing"),
        ("bin", "config.json", "{,", r"config\.json: is not JSON"),
        ("bin", "config.json", "[1]", r"config\.json: is not a JSON ob"),
        ("bin", "generation_config.json", "nonsense", r"generation_config\.json: is not JSON"),
        ("bin", "pytorch_model.bin", None, "is not a checkpoint; one needs model"),
    ],
)
def test_a_damaged_file_is_named(
    tmp_path: Path, kind: str, name: str, content: str | None, message: str
) -> None:
    path = write(tmp_path, kind) / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("encoder_model.onnx", "encoder_model.onnx is ONNX graphs, .*; import the checkpoint that"),
        ("onnx/decoder_model.onnx", "onnx/decoder_model.onnx is ONNX graphs"),
        ("tf_model.h5", "tf_model.h5 is weights of TensorFlow"),
        ("flax_model.msgpack", "flax_model.msgpack is weights of Flax"),
    ],
)
def test_files_of_another_program_are_named(tmp_path: Path, name: str, message: str) -> None:
    write_json(tmp_path / "config.json", {"model_type": "marian"})
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path)


def test_a_pointer_of_git_lfs_is_no_file(tmp_path: Path) -> None:
    write(tmp_path, "safetensors")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    with pytest.raises(CheckpointError, match=r"safetensors: is a pointer of Git LFS.*git lfs pu"):
        Checkpoint(tmp_path)


def test_an_adapter_is_named_with_its_base(tmp_path: Path) -> None:
    write_json(tmp_path / "adapter_config.json", {"base_model_name_or_path": "google/flan-t5"})
    save_file(WEIGHTS, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"google/flan-t5; import the folder of .* --adapter"):
        Checkpoint(tmp_path)


def test_a_folder_of_the_cache_names_the_one_in_it(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--google--flan" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    write(snapshot, "safetensors")
    with pytest.raises(CheckpointError, match=f"import the checkpoint in it, {snapshot}"):
        Checkpoint(tmp_path / "models--google--flan")


def test_a_name_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a folder; download a checkpoint first"):
        Checkpoint(tmp_path / "Helsinki-NLP")


def test_a_value_of_another_type_is_named(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "config.json", {"d_model": "512", "eos": [0, "a"], "scale": 2})
    assert settings.real("scale") == 2.0
    for read, message in [
        (lambda: settings.number("d_model"), r"d_model is not of type int \(it is '512'\)"),
        (lambda: settings.number("heads"), "heads is missing"),
        (lambda: settings.numbers("eos"), "eos is not a list of whole numbers"),
        (lambda: settings.flag("scale"), "scale is not of type bool"),
        (lambda: settings.texts("eos"), "eos is not a list of texts"),
        (lambda: settings.number_lists("eos"), "eos is not a list of lists of whole numbers"),
    ]:
        with pytest.raises(CheckpointError, match=r"config\.json: " + message):
            read()

"""Folders that were made to harm whoever imports them end in a sentence that names the file.

Each of these would take all memory, or never come to an end, if it were read as it is.
"""

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests import marian_models

from seqserve_import import files
from seqserve_import.files import CheckpointError
from seqserve_import.loading import load, open_checkpoint
from seqserve_import.marian_weights import Npz

_SIDES = ("encoder", "decoder")
CONFIG: dict[str, Any] = {
    "model_type": "bart",
    **dict.fromkeys(("vocab_size", "d_model", "max_position_embeddings"), 8),
    **{f"{side}_{name}": 1 for side in _SIDES for name in ("layers", "attention_heads")},
    **{f"{side}_ffn_dim": 8 for side in _SIDES},
    **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
}
T5: dict[str, Any] = {
    "model_type": "t5",
    **dict.fromkeys(("vocab_size", "d_model", "d_kv", "d_ff"), 8),
    **{"num_layers": 1, "num_heads": 1},
    **{"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
}
DEEP = 200_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of one table, so that its settings are read first."""
    save_file({"model.shared.weight": torch.zeros(8, 8)}, tmp_path / "model.safetensors")
    return tmp_path


def read(folder: Path, **config: Any) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    load(open_checkpoint(folder))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocab_size", 10**12),
        ("vocab_size", -1),
        ("encoder_layers", 10**6),
        ("decoder_layers", 10**6),
        ("d_model", 10**9),
        ("max_position_embeddings", 10**12),
        ("pad_token_id", 10**12),
    ],
)
@pytest.mark.parametrize("model_type", ["bart", "marian", "m2m_100"])
def test_a_size_that_no_model_has_is_refused(
    folder: Path, model_type: str, name: str, value: int
) -> None:
    with pytest.raises(CheckpointError, match=rf"config\.json: {name} is not from 0 to .*{value}"):
        read(folder, **CONFIG | {"model_type": model_type, name: value})


def test_more_tokens_than_embeddings_are_refused_before_they_are_named(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"shared\.weight has the shape \[8, 8\]; by config"):
        read(folder, **CONFIG | {"vocab_size": 1 << 22})


@pytest.mark.parametrize("name", ["vocab_size", "num_layers", "num_decoder_layers", "n_positions"])
def test_a_size_that_no_t5_has_is_refused(folder: Path, name: str) -> None:
    save_file({"shared.weight": torch.zeros(8, 8)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"config\.json: {name} is not from 0 to "):
        read(folder, **T5 | {name: 10**12})


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_deep_json_is_refused(folder: Path, name: str) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / name).write_text('{"a":' + "[" * DEEP + "]" * DEEP + "}")
    with pytest.raises(CheckpointError, match=rf"{name}: is not JSON"):
        load(open_checkpoint(folder))


def test_a_value_of_any_size_is_shown_in_short(folder: Path) -> None:
    value: Any = ["x" * 1000] * 1000
    with pytest.raises(CheckpointError, match="d_model is not of type int") as refused:
        read(folder, **CONFIG | {"d_model": value})
    assert len(str(refused.value)) < 1500


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
def test_what_is_no_file_is_never_opened(folder: Path, name: str, target: str) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / name).unlink(missing_ok=True)
    if target == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to(target)
    with pytest.raises(CheckpointError, match=rf"{name}: is not a regular file"):
        load(open_checkpoint(folder))


def test_a_file_that_is_too_large_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.read_bytes, "__defaults__", (1000,))
    with pytest.raises(CheckpointError, match=r"config\.json: holds more than 1,000 bytes"):
        read(folder, **CONFIG, padding="x" * 1000)


def test_a_table_without_numbers_behind_it_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    endless = torch.zeros(1).expand(1 << 22, 1 << 14)
    torch.save({"model.shared.weight": endless}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"shared\.weight is larger than its stored data"):
        read(folder, **CONFIG)


def laughs(first: str, next_of: str) -> str:
    """Writes a value of a few lines that has nine times as many parts with each of them."""
    lines = [f"a0: &a0 {first}"]
    for n in range(1, 12):
        lines.append(f"a{n}: &a{n} {next_of.format(', '.join([f'*a{n - 1}'] * 9))}")
    return "\n".join([*lines, "models: *a11", ""])


LISTS, MAPPINGS = laughs("[lol, lol]", "[{}]"), laughs("{x: 1}", "{{<<: [{}]}}")


@pytest.mark.parametrize("content", [LISTS, MAPPINGS], ids=["lists", "merged mappings"])
def test_aliases_of_yaml_are_refused(tmp_path: Path, content: str) -> None:
    marian_models.write(tmp_path, marian_models.Shape())
    (tmp_path / "decoder.yml").write_text(content)
    with pytest.raises(CheckpointError, match=r"decoder\.yml: has an alias of YAML \(\*\)"):
        open_checkpoint(tmp_path)


def test_asterisks_that_are_no_aliases_are_read() -> None:
    text = '"*": 0\n"a *b": 1\n? "* c"\n: 2\n'
    assert files.read_mapping(Path("vocab.yml"), text.encode()) == {"*": 0, "a *b": 1, "* c": 2}


def test_deep_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"vocab\.yml: is not YAML"):
        files.read_mapping(tmp_path / "vocab.yml", b"a: " + b"[" * DEEP)


def test_a_compressed_file_is_expanded_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marian_models.write(tmp_path, marian_models.Shape())
    (tmp_path / "vocab.spm").unlink()
    with gzip.open(tmp_path / "vocab.spm.gz", "wb") as file:
        file.write(bytes(1 << 20))
    monkeypatch.setattr(files.read_bytes, "__defaults__", (1 << 16,))
    with pytest.raises(CheckpointError, match=r"vocab\.spm\.gz: holds more than 65,536 bytes"):
        open_checkpoint(tmp_path)


def header(shape: tuple[int, ...]) -> bytes:
    """Writes the header of an array, and none of its numbers."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    return content.getvalue()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda archive: archive.writestr("Wemb.npy", header((10**13,))),
            r"Wemb has the shape \[10000000000000\]",
        ),
        (
            lambda archive: archive.writestr("Wemb.npy", header((1 << 14,)) + bytes(1 << 16)),
            "holds more than 65,536 bytes",
        ),
    ],
    ids=["a header of 40 TB", "a bomb"],
)
def test_arrays_larger_than_their_file_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[zipfile.ZipFile], None],
    message: str,
) -> None:
    monkeypatch.setattr("seqserve_import.marian_weights.MAX_BYTES", 1 << 16)
    with zipfile.ZipFile(tmp_path / "model.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        write(archive)
    with pytest.raises(CheckpointError, match=rf"model\.npz: cannot be read: {message}"):
        Npz(tmp_path / "model.npz")


@pytest.mark.parametrize("name", ["enc-depth", "dec-depth", "dim-emb"])
def test_a_size_that_no_marian_has_is_refused(tmp_path: Path, name: str) -> None:
    shape = marian_models.Shape()
    marian_models.write(tmp_path, shape)
    settings = shape.settings() | {name: 10**12}
    marian_models.write_npz(tmp_path / "model.npz", marian_models.arrays(shape), settings)
    with pytest.raises(CheckpointError, match=rf"{name} is not from 0 to "):
        load(open_checkpoint(tmp_path))


def test_a_number_of_extra_tokens_that_no_model_has_is_refused(folder: Path) -> None:
    save_file({"shared.weight": torch.zeros(8, 8)}, folder / "model.safetensors")
    settings = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 10**12}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: extra_ids is not from 0"):
        read(folder, **T5)

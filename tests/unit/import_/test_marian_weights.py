import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests import marian_models
from tests.marian_models import Shape

from seqserve.errors import SeqserveError
from seqserve_import.files import CheckpointError
from seqserve_import.marian_weights import Bin, Npz

SHAPE = Shape(tied="none")
QUERY = "encoder_l1_self_Wq"


@pytest.fixture(scope="module")
def arrays() -> marian_models.Arrays:
    return marian_models.arrays(SHAPE)


@pytest.fixture
def npz(arrays: marian_models.Arrays, tmp_path: Path) -> Path:
    marian_models.write_npz(tmp_path / "model.npz", arrays, SHAPE.settings())
    return tmp_path / "model.npz"


@pytest.fixture
def bin_file(arrays: marian_models.Arrays, tmp_path: Path) -> Path:
    path = tmp_path / "model.xy.bin"
    marian_models.write_bin(path, arrays, SHAPE.settings(), is_int8=True, limits={QUERY: 5.0})
    return path


@pytest.mark.parametrize("kind", ["npz", "bin"])
def test_floats_are_read_as_they_were_written(
    kind: str, npz: Path, arrays: marian_models.Arrays, tmp_path: Path
) -> None:
    path = tmp_path / "model.float.bin"
    marian_models.write_bin(path, arrays, SHAPE.settings())
    read = Npz(npz) if kind == "npz" else Bin(path)
    assert set(read.shapes) == set(arrays)
    assert b"transformer-heads: 4" in read.settings
    for name, array in arrays.items():
        assert read.shapes[name] == array.shape
        assert np.array_equal(read.tensor(name).numpy(), array)
        assert np.array_equal(read.rows(name, 0, 1).numpy(), array[:1])


def test_eight_bits_are_read_as_floats(bin_file: Path, arrays: marian_models.Arrays) -> None:
    read = Bin(bin_file)
    for name, array in arrays.items():
        assert read.shapes[name] == array.shape
        step = np.abs(array).max() / 127 if array.shape[0] > 1 else 0.0
        assert np.abs(read.tensor(name).numpy() - array).max() <= step * 0.51


def test_largest_inputs_are_known_by_the_weights(
    arrays: marian_models.Arrays, tmp_path: Path
) -> None:
    path, limits = tmp_path / "model.xy.bin", {QUERY: 5.0, "Wemb": 11.0}
    marian_models.write_bin(path, arrays, SHAPE.settings(), is_int8=True, limits=limits)
    read = Bin(path)
    assert read.input_limits == pytest.approx(limits)
    assert not any("QuantMult" in name for name in read.shapes)


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def replaced(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b""), "is not a model of Marian, or damaged"),
        (lambda path: path.write_bytes(b"\6" + b"\0" * 40), "version 6 is not known"),
        (lambda path: cut(path, 300), "is not a model of Marian, or damaged"),
        (lambda path: cut(path, path.stat().st_size - 300), r"is cut off\); copy it again"),
        (lambda path: path.write_bytes(struct.pack("<QQ", 1, 2**62)), "or damaged"),
        (lambda path: replaced(path, b"special:model.yml", b"special:model.yyy"), "has no special"),
        (
            lambda path: replaced(path, struct.pack("<Q", 0x4101), struct.pack("<Q", 0x1801)),
            "is of type 0x1801, packed for one kind of CPU; import the .npz",
        ),
    ],
)
def test_a_damaged_bin_is_named(
    bin_file: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(bin_file)
    with pytest.raises(CheckpointError, match=message) as error:
        Bin(bin_file)
    assert str(bin_file) in str(error.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (lambda path: cut(path, 3000), "cannot be read"),
        (
            lambda path: np.savez(path, a=np.zeros(2)),
            r"has no special:model\.yml; it is not a model",
        ),
        (lambda path: path.write_bytes(b"\x80\x04K\x01."), "cannot be read"),  # a pickle
    ],
)
def test_a_damaged_npz_is_named(npz: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(npz)
    with pytest.raises(CheckpointError, match=message) as error:
        Npz(npz)
    assert str(npz) in str(error.value)


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.xy.bin.gz"
    path.write_bytes(b"\x1f\x8b\x08\0\0")
    with pytest.raises(SeqserveError, match=r"model\.xy\.bin\.gz: cannot be expanded"):
        Bin(path)

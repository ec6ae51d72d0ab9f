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

Damage = Callable[[Path], object]


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
    assert read.shapes == {name: array.shape for name, array in arrays.items()}
    assert b"transformer-heads: 4" in read.settings
    for name, array in arrays.items():
        assert np.array_equal(read.tensor(name).numpy(), array)
        assert np.array_equal(read.rows(name, 0, 1).numpy(), array[:1])


def test_eight_bits_are_read_as_floats(bin_file: Path, arrays: marian_models.Arrays) -> None:
    read = Bin(bin_file)
    assert read.shapes == {name: array.shape for name, array in arrays.items()}
    for name, array in arrays.items():
        step = np.abs(array).max() / 127 if array.shape[0] > 1 else 0.0
        assert np.abs(read.tensor(name).numpy() - array).max() <= step * 0.51


def test_largest_inputs_are_known_by_the_weights(
    arrays: marian_models.Arrays, tmp_path: Path
) -> None:
    path, limits = tmp_path / "model.xy.bin", {QUERY: 5.0, "Wemb": 11.0}
    marian_models.write_bin(path, arrays, SHAPE.settings(), is_int8=True, limits=limits)
    read = Bin(path)
    assert read.input_limits == pytest.approx(limits)
    assert read.shapes.keys() == arrays.keys()


def cut(length: int) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[:length])


def replaced(old: bytes, new: bytes) -> Damage:
    def replace(path: Path) -> None:
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new, 1))

    return replace


def written(content: bytes) -> Damage:
    return lambda path: path.write_bytes(content)


PACKED = replaced(struct.pack("<Q", 0x4101), struct.pack("<Q", 0x1801))


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [
        ("bin", written(b""), "is not a model of Marian, or damaged"),
        ("bin", written(b"\6" + b"\0" * 40), "version 6 is not known"),
        ("bin", cut(300), "is not a model of Marian, or damaged"),
        ("bin", cut(-300), r"is cut off\); copy it again"),
        ("bin", written(struct.pack("<QQ", 1, 2**62)), "or damaged"),
        ("bin", replaced(b"special:model.yml", b"special:model.yyy"), "has no special"),
        ("bin", PACKED, "is of type 0x1801, packed for one kind of CPU; import the .npz"),
        ("npz", written(b""), "cannot be read"),
        ("npz", cut(3000), "cannot be read"),
        (
            "npz",
            lambda path: np.savez(path, a=np.zeros(2)),
            r"has no special:model\.yml; it is not",
        ),
        ("npz", written(b"\x80\x04K\x01."), "cannot be read"),  # a pickle
    ],
)
def test_a_damaged_file_is_named(
    kind: str, npz: Path, bin_file: Path, damage: Damage, message: str
) -> None:
    read, path = {"bin": (Bin, bin_file), "npz": (Npz, npz)}[kind]
    damage(path)
    with pytest.raises(CheckpointError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.xy.bin.gz"
    path.write_bytes(b"\x1f\x8b\x08\0\0")
    with pytest.raises(SeqserveError, match=r"model\.xy\.bin\.gz: cannot be expanded"):
        Bin(path)

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.ctranslate2_files import WIDTH, content_of, variables

from seqserve_import.ctranslate2_weights import ModelBin
from seqserve_import.files import CheckpointError

NAME = "decoder/projection/weight"


def opened(folder: Path, content: bytes) -> ModelBin:
    (folder / "model.bin").write_bytes(content)
    return ModelBin(folder / "model.bin")


def read(folder: Path, array: Any, scale: Any = None) -> torch.Tensor:
    written = {NAME: array} if scale is None else {NAME: array, f"{NAME}_scale": scale}
    return opened(folder, content_of(written)).tensor(NAME)


def test_fused_projections_are_read_apart(tmp_path: Path) -> None:
    written = variables()
    weights = opened(tmp_path, content_of(written))
    attention = "decoder/layer_0/{}/linear_{}[{}]/{}"
    fused = written["decoder/layer_0/self_attention/linear_0/weight"]
    for at, label in enumerate(("query", "key", "value")):
        part = weights.tensor(attention.format("self_attention", 0, label, "weight"))
        np.testing.assert_array_equal(part, fused[at * WIDTH : (at + 1) * WIDTH])
    bias = weights.tensor(attention.format("attention", 1, "value", "bias"))
    np.testing.assert_array_equal(bias, written["decoder/layer_0/attention/linear_1/bias"][WIDTH:])
    assert weights.shapes["decoder/layer_0/attention/linear_0/weight"] == (WIDTH, WIDTH)
    assert weights.attributes["encoder/num_heads"] == 2


def test_rounded_weights_are_what_they_stand_for(tmp_path: Path) -> None:
    exact = np.array([[0.5, -1.0], [2.0, 0.25]], np.float32)
    bits = (exact.view(np.uint32) >> 16).astype(np.uint16)
    for array in (exact, exact.astype(np.float16), bits):
        np.testing.assert_array_equal(read(tmp_path, array), exact)
    rows = np.array([[64, -127], [127, 16]], np.int8)
    scales = np.array([128.0, 64.0], np.float32)
    np.testing.assert_array_equal(read(tmp_path, rows, scales), rows / scales[:, None])
    words = np.array([[512, -1024]], np.int16)
    np.testing.assert_array_equal(read(tmp_path, words, np.float32(256)), words / 256)
    np.testing.assert_allclose(read(tmp_path, words), words / 1000)


def test_an_alias_has_the_weight_and_its_scale(tmp_path: Path) -> None:
    written = {NAME: np.array([[4]], np.int8), f"{NAME}_scale": np.array([8.0], np.float32)}
    weights = opened(tmp_path, content_of(written, {"encoder/embeddings_0/weight": NAME}))
    assert weights.tensor("encoder/embeddings_0/weight").item() == 0.5


def replaced(content: bytes, at: int, kind: str, value: int) -> bytes:
    return content[:at] + struct.pack(kind, value) + content[at + struct.calcsize(kind) :]


VARIABLE = {"a/weight": np.zeros((2, 2), np.float32)}
CONTENT = content_of(VARIABLE)
COUNT = 4 + 2 + 16 + 4
RANK = COUNT + 4 + 2 + 9
PART = CONTENT[COUNT + 4 : -4]
TWICE = replaced(CONTENT[: COUNT + 4], COUNT, "<I", 2) + PART + PART + CONTENT[-4:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is damaged"),
        (b"\x06\x00", "is cut off"),
        (content_of(VARIABLE, version=3), "its version is 3; 4 to 6 can be read"),
        (content_of(VARIABLE, version=7), "its version is 7"),
        (content_of(VARIABLE, revision=9), "its revision is 9"),
        (content_of(VARIABLE, specification="WhisperSpec"), "holds WhisperSpec; of CTranslate2"),
        (replaced(CONTENT, COUNT, "<I", 2**32 - 1), "4,294,967,295 parts cannot follow in"),
        (replaced(CONTENT, RANK, "<B", 200), "a/weight has 200 dimensions"),
        (replaced(CONTENT, RANK + 1, "<I", 2**32 - 1), r"has 16 bytes and the shape \[4294"),
        (replaced(CONTENT, RANK + 1, "<I", 0), r"a/weight has 16 bytes and the shape \[0, 2\]"),
        (replaced(CONTENT, RANK + 9, "<B", 9), "a/weight is of the unknown type 9"),
        (replaced(CONTENT, COUNT + 4, "<H", 60_000), "a name is cut off"),
        (CONTENT[:-12], "a/weight is cut off"),
        (TWICE, "a/weight is there twice"),
        (CONTENT[:-2], "is cut off"),
        (content_of(VARIABLE, {"b": "c"}), "b cannot be an alias of c"),
        (content_of(VARIABLE, {"a/weight": "a/weight"}), "a/weight cannot be an alias of a/weight"),
        (content_of({"a/weight": np.zeros((2, 2), np.int8)}), "a/weight_scale is missing"),
        (content_of({"a/weight": np.zeros((2, 2), np.int32)}), "as AWQ packs weights"),
        (
            content_of({"a/weight": np.zeros((2, 2), np.int8), "a/weight_scale": np.ones(3, "f4")}),
            r"a/weight_scale has the shape \[3\]; the weight has \[2, 2\]",
        ),
        (
            content_of({"encoder/layer_0/self_attention/linear_0/weight": np.ones((8, 4), "f4")}),
            "has 8 rows, which query and key and value cannot share",
        ),
    ],
)
def test_a_file_that_is_damaged_or_of_another_kind_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(CheckpointError, match=rf"model\.bin: .*{message}") as refused:
        opened(tmp_path, content)
    assert "\n" not in str(refused.value)


def test_a_scale_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has a scale that is not above zero"):
        read(tmp_path, np.ones((2, 2), np.int8), np.array([1.0, 0.0], np.float32))

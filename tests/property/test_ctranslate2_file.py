"""A ``model.bin`` with any damage is read as numbers, or refused in one sentence."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.ctranslate2_files import content_of

from seqserve_import.ctranslate2_weights import ModelBin
from seqserve_import.files import CheckpointError

pytestmark = pytest.mark.hypothesis

ALIASES = {"encoder/embeddings_0/weight": "decoder/embeddings/weight"}
CONTENT = content_of(
    {
        "decoder/embeddings/weight": np.ones((5, 4), np.int8),
        "decoder/embeddings/weight_scale": np.ones(5, np.float32),
        "decoder/layer_0/attention/linear_1/weight": np.ones((8, 4), np.float16),
        "decoder/layer_0/attention/linear_1/bias": np.ones(8, np.uint16),
        "encoder/num_heads": np.int16(2),
    },
    ALIASES,
)
PLACES = st.integers(0, len(CONTENT) - 1)


@given(
    end=st.integers(0, len(CONTENT)),
    changes=st.lists(st.tuples(PLACES, st.integers(0, 255)), max_size=4),
    number=st.tuples(PLACES, st.sampled_from([0, 2**16 - 1, 2**31, 2**32 - 1])) | st.none(),
)
@example(end=0, changes=[(1, 0)], number=(148, 2**16 - 1)).via("a scale of nearly zero")
def test_damage_is_refused_or_harmless(
    end: int, changes: list[tuple[int, int]], number: tuple[int, int] | None
) -> None:
    content = bytearray(CONTENT)
    if number:
        content[number[0] : number[0] + 4] = number[1].to_bytes(4, "little")
    for place, value in changes:
        content[place] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bin"
        path.write_bytes(content[:end] if not changes else content)
        try:
            weights = ModelBin(path)
            size = sum(weights.tensor(name).numel() for name in weights.shapes)
        except CheckpointError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 1000
        else:
            assert size <= 2 * len(CONTENT)


def test_the_undamaged_file_is_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bin"
        path.write_bytes(CONTENT)
        assert set(ModelBin(path).shapes) >= set(ALIASES)

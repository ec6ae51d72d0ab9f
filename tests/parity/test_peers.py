"""The shipped model gives the same tokens in seqserve, in torch and in CTranslate2."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bench.drivers.ctranslate2 import CTranslate2Converter, CTranslate2Driver
from bench.drivers.seqserve import SeqserveDriver
from bench.drivers.transformers import TorchDriver

from seqserve_export.restore import restore
from seqserve_model.transformer import Transformer
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
ARTIFACT = ROOT / "models" / "en-de" / "1"
MAX_LENGTH = 64
OPTIONS = DecodingOptions(max_decoding_length=MAX_LENGTH)

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def sources() -> list[list[int]]:
    tokenizer = Tokenizer.load(ARTIFACT / "tokenizer.json")
    lines = (ROOT / "bench" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    return [tokenizer.encode(line) for line in lines]


@pytest.fixture(scope="module")
def ours(sources: list[list[int]]) -> list[list[int]]:
    with SeqserveDriver(ARTIFACT, 8, OPTIONS) as driver:
        return driver.decode(sources)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return restore(ARTIFACT)


def test_torch_gives_the_same_tokens(
    model: Transformer, sources: list[list[int]], ours: list[list[int]]
) -> None:
    torch.set_num_threads(1)
    theirs = TorchDriver(model, 8, MAX_LENGTH).decode(sources)
    assert theirs == ours


def test_ctranslate2_gives_the_same_tokens(
    model: Transformer, sources: list[list[int]], ours: list[list[int]], tmp_path: Path
) -> None:
    folder = tmp_path / "converted"
    CTranslate2Converter(model).convert(str(folder))
    with CTranslate2Driver(folder, "float32", (2, 1), 8, OPTIONS) as driver:
        theirs = driver.decode(sources)
    different = [index for index, row in enumerate(theirs) if row != ours[index]]
    # Sums in another order may turn a near tie: one sentence in a hundred is far more than seen.
    assert len(different) <= len(sources) // 100, different

"""Models that are compared: the newest version, random weights, and the same words everywhere."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bench.drivers.ctranslate2 import CTranslate2Converter, CTranslate2Driver
from bench.drivers.transformers import TorchDriver, TransformersDriver, marian_of
from bench.models import (
    MARIAN_BASE,
    marian_base,
    newest,
    numbered_words,
    random_sources,
    write_unproven,
)
from tests import tiny
from tests.step_graphs import steps_only

from seqserve_model.config import NormPosition, TransformerConfig
from seqserve_model.decoding import greedy_in_batches
from seqserve_model.transformer import Transformer
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.text.tokenizer import Tokenizer

LENGTH = 12
TINY = replace(tiny.cut_down(MARIAN_BASE), vocabulary_size=4000, encoder_layers=2, decoder_layers=2)


def test_newest_is_the_highest_number_of_a_precision(tiny_artifact: Path, tmp_path: Path) -> None:
    for name in ("9", "10"):
        shutil.copytree(tiny_artifact, tmp_path / "any" / name)
    for name in ("README.md", ".hidden"):
        (tmp_path / "any" / name).mkdir()
    assert newest(tmp_path / "any", "fp32").name == "10"
    for folder in ("any", "missing"):
        with pytest.raises(SystemExit, match=f"{folder}: holds no int8 version"):
            newest(tmp_path / folder, "int8")


@pytest.mark.parametrize(
    ("convert", "engine"), [(CTranslate2Converter, "CTranslate2"), (marian_of, "transformers")]
)
def test_a_recurrent_decoder_is_refused_and_marian_named(
    convert: Callable[[Any], Any], engine: str
) -> None:
    model = tiny.make_ssru_model(tiny.make_tokenizer())
    with pytest.raises(ValueError, match=f"{engine} has no decoder with ssru; .* Marian"):
        convert(model)


@torch.no_grad()
def shaken(config: TransformerConfig = TINY) -> Transformer:
    """Moves biases and norms off zero and one, so that none can go missing unnoticed."""
    model = marian_base(config)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parity
def test_transformers_gives_our_words_where_the_end_is_held_back(tmp_path: Path) -> None:
    model = shaken()
    with torch.no_grad():
        model.target_embedding.weight[TINY.eos_id] *= 30
    ours = random_sources(9, config=TINY)
    free = greedy_in_batches(model, ours, LENGTH, 4)
    assert any(len(row) < LENGTH for row in free)  # there is something to hold back
    forced = DecodingOptions(max_decoding_length=LENGTH, min_decoding_length=LENGTH)
    with steps_only():
        artifact = write_unproven(model, tmp_path, "tiny")
    with LocalEngine(artifact, slots=4) as offline:
        expected = [answer.best.token_ids for answer in offline.decode(ours, forced)]
    assert {len(row) for row in expected} == {LENGTH}
    with TransformersDriver(marian_of(model), 4, LENGTH, (2, 1)) as driver:
        assert driver.decode(ours) == expected


def test_transformers_refuses_another_kind() -> None:
    with pytest.raises(ValueError, match="not of Marian's kind"):
        marian_of(Transformer(replace(TINY, norm_position=NormPosition.PRE)))


@pytest.mark.parity
@pytest.mark.parametrize("norm_position", NormPosition)
def test_ctranslate2_gives_our_words(tmp_path: Path, norm_position: NormPosition) -> None:
    model = shaken(replace(TINY, norm_position=norm_position))
    ours = random_sources(9, config=TINY)
    CTranslate2Converter(model).convert(str(tmp_path / "converted"))
    options = DecodingOptions(max_decoding_length=LENGTH)
    with CTranslate2Driver(tmp_path / "converted", "float32", (1, 1), 4, options) as driver:
        assert driver.decode(ours) == greedy_in_batches(model, ours, LENGTH, 4)


def test_targets_vary_and_never_end() -> None:
    rows = TorchDriver(marian_base(TINY), 8, LENGTH).decode(random_sources(8, config=TINY))
    assert {len(row) for row in rows} == {LENGTH}
    assert len({tuple(row) for row in rows}) == 8
    assert sum(len(set(row)) for row in rows) > 8 * LENGTH / 2


def test_sources_are_as_long_as_sentences_and_end() -> None:
    rows = random_sources(200)
    assert rows == random_sources(200)
    assert rows != random_sources(200, seed=8)
    lengths = sorted(map(len, rows))
    assert (lengths[0], lengths[-1]) == (8, 32)
    assert 14 <= lengths[100] <= 18
    assert all(row[-1] == MARIAN_BASE.eos_id and min(row[:-1]) > 3 for row in rows)


def test_words_are_numbered() -> None:
    words = Tokenizer(numbered_words(200))
    assert words.vocabulary_size == 200
    assert words.encode("t4 t199 t17") == [4, 199, 17, words.eos_id]
    assert words.decode([4, 199, 17]) == "t4 t199 t17"

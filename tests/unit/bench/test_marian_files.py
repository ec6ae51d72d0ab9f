from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench.marian_files import CONVENTIONS, words, write_floats, write_vocabulary
from tests.random_weights import random_model

from seqserve_import.loading import load, open_checkpoint
from seqserve_model.config import Activation, DecoderCell, Norm, NormPosition, TransformerConfig
from seqserve_model.transformer import Transformer

CONFIG = TransformerConfig(
    vocabulary_size=100,
    width=16,
    heads=2,
    feed_forward_width=24,
    encoder_layers=2,
    decoder_layers=2,
    max_source_length=8,
    max_target_length=8,
    **CONVENTIONS,
)


@pytest.mark.parametrize("norm_position", NormPosition)
@pytest.mark.parametrize("cell", DecoderCell)
@torch.inference_mode()
def test_what_is_written_is_imported_as_the_same_model(
    cell: DecoderCell, norm_position: NormPosition, tmp_path: Path
) -> None:
    model = random_model(replace(CONFIG, decoder_cell=cell, norm_position=norm_position))
    write_floats(model, tmp_path / "model.npz")
    write_vocabulary(model.config, tmp_path / "vocab.yml")
    imported = load(open_checkpoint(tmp_path)).model
    sources, targets = torch.randint(4, 100, (2, 3, 6))
    lengths = torch.tensor([6, 2, 4])
    logits = imported(sources, lengths, _started(targets, imported))
    expected = model(sources, lengths, _started(targets, model))
    torch.testing.assert_close(logits[..., :100], expected, rtol=0, atol=2e-5)


def _started(targets: torch.Tensor, model: Transformer) -> torch.Tensor:
    return torch.cat((torch.full((3, 1), model.config.bos_id), targets), dim=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"zero_start": False},
        {"norm_epsilon": 1e-5},
        {"norm": Norm.RMS},
        {"tied_output": False},
        {"decoder_heads": 4},
        {"activation": Activation.GELU},
    ],
    ids=str,
)
def test_another_kind_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    model = Transformer(replace(CONFIG, **changes))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not of Marian's kind"):
        write_floats(model, tmp_path / "model.npz")


def test_words_are_numbered_but_those_that_marian_names() -> None:
    assert words(6, eos_id=2, unk_id=3) == ["t0", "t1", "</s>", "<unk>", "t4", "t5"]

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench.base_size_copy import enlarged, give_languages

from seqserve_model.config import TransformerConfig
from seqserve_model.decoding import greedy_in_batches
from seqserve_model.transformer import Transformer

SMALL = TransformerConfig(
    vocabulary_size=96,
    width=32,
    heads=2,
    feed_forward_width=48,
    encoder_layers=2,
    decoder_layers=1,
    max_source_length=16,
    max_target_length=16,
)
LARGE = replace(SMALL, vocabulary_size=160, encoder_layers=3, decoder_layers=3)


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(3)
    model = Transformer(SMALL).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            # So that no bias or norm can go missing unnoticed.
            parameter += 0.1 * torch.randn_like(parameter)
    return model


@torch.no_grad()
def test_logits_stay_and_added_tokens_have_none(model: Transformer) -> None:
    larger = enlarged(model, LARGE).double()
    source = torch.randint(4, SMALL.vocabulary_size, (3, 9))
    target = torch.randint(4, SMALL.vocabulary_size, (3, 7))
    lengths = torch.tensor([9, 4, 6])
    expected, logits = (one(source, lengths, target) for one in (model, larger))
    torch.testing.assert_close(logits[..., : SMALL.vocabulary_size], expected, rtol=0, atol=2e-5)
    assert (logits[..., SMALL.vocabulary_size :] == 0).all()


def test_every_layer_of_the_larger_model_is_computed(model: Transformer) -> None:
    larger = enlarged(model, LARGE)
    assert len(larger.encoder_layers) == len(larger.decoder_layers) == 3
    assert larger.config.width == 2 * SMALL.width
    added = larger.encoder_layers[2].feed_forward
    assert (added.up.weight != 0).all() and (added.down.weight != 0).all()


def test_it_writes_the_same_words(model: Transformer) -> None:
    sources = [[5, 9, 2], [17, 33, 60, 11, 2], [8, 2]]
    expected, targets = (
        greedy_in_batches(one, sources, 12, 3)
        for one in (model.float(), enlarged(model, LARGE).float())
    )
    assert targets == expected


def test_a_copy_has_the_languages_and_the_recommended_options_of_its_model(tmp_path: Path) -> None:
    known = {"name": "en-de", "template": {"source_languages": ["en"]}, "generation": {"keep": []}}
    for name, manifest in (("model", known), ("copy", {"name": "base-int8"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
    give_languages(tmp_path / "model", tmp_path / "copy")
    copied = json.loads((tmp_path / "copy" / "manifest.json").read_text())
    assert copied == known | {"name": "base-int8"}

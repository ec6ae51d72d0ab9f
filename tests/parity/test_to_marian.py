"""Marian decodes a model of ours, written in its files, to the same words."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench.marian_files import CONVENTIONS, write
from bench.models import MARIAN_BASE, marian_base, write_unproven
from tests.native_marian import Marian
from tests.step_graphs import steps_only

from seqserve_model.config import DecoderCell, NormPosition, TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine

LENGTH = 8
"""Tokens of a source with its end; a target has at most as many as Marian allows, three times as
many."""
CONFIG = replace(
    MARIAN_BASE,
    vocabulary_size=1024,
    width=64,
    heads=4,
    feed_forward_width=128,
    encoder_layers=2,
    decoder_layers=2,
    max_target_length=3 * LENGTH,
    **CONVENTIONS,
)

pytestmark = pytest.mark.marian


@torch.no_grad()
def shaken(config: TransformerConfig, end: float) -> Transformer:
    """Moves biases and norms off zero and one, and lets the end token win now and then."""
    model = marian_base(config)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.target_embedding.weight[config.eos_id] *= end
    return model


# Self-attention with the norm before it is left out: there the search of Marian 1.12.42 does not
# normalise keys and values, as its training and its scorer do, and so decodes other words.
@pytest.mark.parametrize(
    ("cell", "norm_position", "end"),
    [
        (DecoderCell.SSRU, NormPosition.PRE, 38),
        (DecoderCell.SSRU, NormPosition.POST, 36),
        (DecoderCell.ATTENTION, NormPosition.POST, 18),
    ],
)
def test_greedy_words_are_marians(
    cell: DecoderCell, norm_position: NormPosition, end: float, tmp_path: Path
) -> None:
    model = shaken(replace(CONFIG, decoder_cell=cell, norm_position=norm_position), end)
    config, draw = model.config, random.Random(1)
    tokens = range(4, config.vocabulary_size)
    sources = [[*draw.choices(tokens, k=LENGTH - 1), config.eos_id] for _ in range(40)]
    # Marian does not write the unknown token.
    options = DecodingOptions(max_decoding_length=3 * LENGTH, suppressed=((config.unk_id,),))
    with steps_only():
        artifact = write_unproven(model, tmp_path, "tiny")
    with LocalEngine(artifact) as engine:
        ours = [answer.best.token_ids for answer in engine.decode(sources, options)]
    native = write(model, tmp_path)
    marian = Marian(native.models["fp32"], tmp_path, native.vocabulary)
    found = marian.translate([words(source[:-1]) for source in sources], "--beam-size", "1")
    assert found == [words(row) for row in ours]
    assert len({*found}) > 30, "targets do not vary"
    assert min(map(len, ours)) < max(map(len, ours)), "no target ends"


def words(ids: list[int]) -> str:
    return " ".join(f"t{id_}" for id_ in ids)

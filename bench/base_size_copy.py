"""A copy of the shipped model at Marian's base size that writes the same words.

Random weights end no sentence, so how requests of different lengths share a server cannot be
measured with them. A trained model can be made larger without changing what it computes: each
dimension occurs twice, added layers add next to nothing, and added tokens are never the likeliest.
All of it is computed nevertheless.

Source: Chen et al. 2016, "Net2Net: Accelerating Learning via Knowledge Transfer", section 2.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.models import MARIAN_BASE, amend, write_unproven
from bench.requests import everyday
from seqserve_export.calibration import calibrate
from seqserve_export.options import Caches, Scales
from seqserve_export.quantization import quantize
from seqserve_export.restore import restore
from seqserve_model.config import PositionScheme, TransformerConfig
from seqserve_model.positions import SinusoidalPositions
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import FILE as MANIFEST
from seqserve_server.text.tokenizer import FILE, Tokenizer

INT8 = "base-int8"
"""Name of the larger model at int8."""
_TIMES = 2
"""How often each dimension occurs."""
_FAINT = 1e-6
"""Added layers are multiplied by it."""


def write(artifact: Path, repository: Path, *, has_floats: bool = True) -> dict[str, Path]:
    """Exports the larger model, unproven, with the model's tokenizer; returns it by precision."""
    model = enlarged(restore(artifact))
    tokenizer = Tokenizer.load(artifact / FILE, model.config.vocabulary_size)
    sources = [tokenizer.encode(text) for text in everyday()]
    integers = quantize(model, calibrate(model, sources), Scales.STATIC, Caches.INT8)
    written = {"int8": write_unproven(integers, repository, INT8, tokenizer)}
    if has_floats:
        written["fp32"] = write_unproven(model, repository, "base-fp32", tokenizer)
    return written


def give_languages(artifact: Path, copy: Path) -> None:
    """Copies the languages of the model and its recommended options."""
    known = json.loads((artifact / MANIFEST).read_text(encoding="utf-8"))
    amend(copy, template=known["template"], generation=known["generation"])


@torch.no_grad()
def enlarged(model: Transformer, size: TransformerConfig = MARIAN_BASE) -> Transformer:
    """Makes a model of twice the width, and of another depth and vocabulary.

    Args:
        model: With layer norms in front of its sublayers, sinusoidal positions and one table of
            embeddings, as the shipped model has them.
        size: Depth and vocabulary of the larger model, no smaller than the model's.
    """
    config = model.config
    twice = {name: _TIMES * getattr(config, name) for name in ("width", "heads")}
    layers = {name: getattr(size, name) for name in ("encoder_layers", "decoder_layers")}
    larger_config = replace(
        config,
        vocabulary_size=size.vocabulary_size,
        feed_forward_width=_TIMES * config.feed_forward_width,
        positions=PositionScheme.LEARNED,
        **twice,
        **layers,
    )
    larger = Transformer(larger_config).eval()
    for layer in [*larger.encoder_layers, *larger.decoder_layers]:
        _fade(layer)
    weights = larger.state_dict()
    for name, weight in model.state_dict().items():
        if weight.dim() == 1:
            weights[name].copy_(weight.repeat(_TIMES))
        elif weight.size(0) != model.config.vocabulary_size:
            # The sum over the input has each of its terms several times.
            weights[name].copy_(weight.repeat(_TIMES, _TIMES) / _TIMES)
    # Embeddings are multiplied by the root of the width, which is larger too.
    table = model.source_embedding.weight.repeat(1, _TIMES) / math.sqrt(_TIMES)
    larger.source_embedding.weight.zero_()
    larger.source_embedding.weight[: len(table)] = table
    for norm in (larger.decoder_norm.weight, larger.decoder_norm.bias):
        assert isinstance(norm, Tensor)
        norm /= math.sqrt(_TIMES)
    for positions, before in (
        (larger.encoder_positions, model.encoder_positions),
        (larger.decoder_positions, model.decoder_positions),
    ):
        # The waves of a larger model would be others.
        assert isinstance(before, SinusoidalPositions) and isinstance(positions.table, Tensor)
        positions.table.copy_(before.table[: len(positions.table)].repeat(1, _TIMES))
    return larger


def _fade(layer: nn.Module) -> None:
    """Makes what a layer adds too small to count.

    No weight is zero or equals another layer's: an artifact would keep one for both, and a model
    could not be restored from it.
    """
    for name, weight in layer.state_dict().items():
        weight += 1e-3 * torch.randn_like(weight)
        if name.split(".")[-2] in ("output", "down"):
            weight *= _FAINT

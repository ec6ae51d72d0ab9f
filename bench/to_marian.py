"""Writes a model of ours in Marian's own files, which ``seqserve import`` reads too.

Its positions, its start and its norms must be those of Marian. Token ids stay; Marian reads and
writes them as numbered words.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.native_marian import NativeModel, in_eight_bits
from bench.numbered_words import write_vocabulary
from seqserve_import.families.marian_native import EPSILON, FIRST_LAYER, weight_names
from seqserve_import.marian.weights import SETTINGS
from seqserve_import.weights import their_name
from seqserve_model.config import (
    Activation,
    DecoderCell,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)
from seqserve_model.transformer import Transformer
from seqserve_server.contract.tokenizer import Tokenizer

CONVENTIONS: dict[str, Any] = {
    "positions": PositionScheme.MARIAN,
    "zero_start": True,
    "norm_epsilon": EPSILON,
}
"""What a model must have besides the defaults for Marian to compute it."""

_KIND = CONVENTIONS | {
    "source_vocabulary_size": 0,
    "attention_width": 0,
    "decoder_heads": 0,
    "decoder_attention_width": 0,
    "decoder_feed_forward_width": 0,
    "norm": Norm.LAYER,
    "embedding_norm": False,
    "projection_bias": True,
    "shared_embeddings": True,
    "tied_output": True,
    "logits_bias": False,
    "scaled_embeddings": True,
}
_ACTIVATIONS = (Activation.RELU, Activation.SWISH)
_OPERATIONS = {NormPosition.PRE: ("n", "da", "n"), NormPosition.POST: ("", "dan", "")}
"""Before, after and above the layers."""
_CELLS = {DecoderCell.ATTENTION: "self-attention", DecoderCell.SSRU: "rnn"}


def write(model: Transformer, place: Path, tokenizer: Tokenizer | None = None) -> NativeModel:
    """Writes a model into a folder, as floats and for the integer kernels.

    Args:
        model: Of Marian's kind.
        place: The folder.
        tokenizer: Of its texts, where these are not numbered words.

    Raises:
        ValueError: The model is of another kind.
        SystemExit: Marian's environment is missing.
    """
    folder = place / "native"
    folder.mkdir()
    floats, vocabulary = folder / "model.npz", folder / "vocab.yml"
    write_floats(model, floats)
    write_vocabulary(model.config, vocabulary)
    return NativeModel(
        folder=folder,
        vocabulary=vocabulary,
        shortlist=None,
        models={"fp32": floats, "int8": in_eight_bits(floats, place)},
        tokenizer=tokenizer,
    )


def write_floats(model: Transformer, path: Path) -> None:
    """Writes the weights and the settings of a model as an ``.npz``.

    Raises:
        ValueError: The model is of another kind.
    """
    config = model.config
    if replace(config, **_KIND) != config or config.activation not in _ACTIVATIONS:
        raise ValueError(f"not of Marian's kind: {config}")
    settings: Any = np.frombuffer(json.dumps(_settings(config)).encode() + b"\0", np.int8)
    np.savez(path, **{**_weights(model), SETTINGS: settings})


def _settings(config: TransformerConfig) -> dict[str, Any]:
    before, after, top = _OPERATIONS[config.norm_position]
    return {
        "type": "transformer",
        "dim-vocabs": [config.vocabulary_size] * 2,
        "dim-emb": config.width,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "tied-embeddings-all": True,
        "transformer-heads": config.heads,
        "transformer-dim-ffn": config.feed_forward_width,
        "transformer-ffn-activation": config.activation.value,
        "transformer-preprocess": before,
        "transformer-postprocess": after,
        "transformer-postprocess-top": top,
        "transformer-decoder-autoreg": _CELLS[config.decoder_cell],
        "dec-cell": "ssru",
        "input-types": [],
        "lemma-dim-emb": 0,
        "version": "v1.12.42",
    }


def _weights(model: Transformer) -> dict[str, NDArray[Any]]:
    """Gives the weights by Marian's names: projections ``[in, out]``, vectors ``[1, width]``."""
    config = model.config
    names = weight_names(config.norm_position, config.decoder_cell)
    found: dict[str, NDArray[Any]] = {
        "decoder_ff_logit_out_b": np.zeros((1, config.vocabulary_size), np.float32)
    }
    for ours, parameter in model.named_parameters():
        weight = parameter.detach().numpy()
        if ours == "source_embedding.weight":
            found["Wemb"] = weight
        else:
            theirs = their_name(ours, names, FIRST_LAYER)
            found[theirs] = np.ascontiguousarray(weight.T) if weight.ndim > 1 else weight[None]
    return found

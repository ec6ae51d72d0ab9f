"""Models in Marian's own files, which ``seqserve import`` reads too.

Ours must have Marian's positions, start and norms. Token ids stay; Marian reads and writes them as
numbered words, since it divides a text at spaces if its vocabulary is a table of words.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.drivers.marian import MarianModel, quantize, student_folder
from seqserve_import.families.marian_native import CELLS, EPSILON, FIRST_LAYER, weight_names
from seqserve_import.loading import their_name
from seqserve_import.marian_weights import SETTINGS, Bin
from seqserve_model.config import (
    Activation,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)
from seqserve_model.transformer import Transformer
from seqserve_server.text.vocabulary import EOS, UNK

CONVENTIONS: dict[str, Any] = {
    "positions": PositionScheme.MARIAN,
    "zero_start": True,
    "norm_epsilon": EPSILON,
}
"""Settings that Marian needs besides the defaults."""

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
_CELLS = {cell: name for name, cell in CELLS.items()}


def student(pair: str, place: Path) -> MarianModel:
    """Returns the model of Firefox of two languages, ``enpt`` or ``pten``; writes to a folder."""
    try:
        folder = student_folder(pair)
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from None
    [vocabulary], [shortlist] = folder.glob("vocab.*.spm"), folder.glob("lex.*.bin")
    floats = place / "model.npz"
    write_student(folder, floats)
    models = {"fp32": floats, "int8": quantize(floats, place)}
    return MarianModel(folder=folder, vocabulary=vocabulary, shortlist=shortlist, models=models)


def write_student(folder: Path, path: Path) -> None:
    """Writes a model of Firefox as floats, because Marian reads nothing else."""
    [model] = folder.glob("model.*.bin")
    student = Bin(model)
    weights = {name: np.ascontiguousarray(student.tensor(name).numpy()) for name in student.shapes}
    settings: Any = np.frombuffer(student.settings + b"\0", np.int8)
    np.savez(path, **{**weights, SETTINGS: settings})


def write(model: Transformer, place: Path) -> MarianModel:
    """Writes a model of ours into a folder, as floats and for the integer kernels."""
    folder = place / "native"
    folder.mkdir()
    floats, vocabulary = folder / "model.npz", folder / "vocab.yml"
    write_floats(model, floats)
    write_vocabulary(model.config, vocabulary)
    models = {"fp32": floats, "int8": quantize(floats, place)}
    return MarianModel(folder=folder, vocabulary=vocabulary, shortlist=None, models=models)


def write_floats(model: Transformer, path: Path) -> None:
    """Writes the weights and the settings of a model as an ``.npz``."""
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
    config = model.config
    names = weight_names(config.norm_position, config.decoder_cell)
    weights: dict[str, NDArray[Any]] = {
        "decoder_ff_logit_out_b": np.zeros((1, config.vocabulary_size), np.float32)
    }
    for ours, parameter in model.named_parameters():
        weight = parameter.detach().numpy()
        if ours == "source_embedding.weight":
            weights["Wemb"] = weight
        else:
            theirs = their_name(ours, names, FIRST_LAYER)
            weights[theirs] = np.ascontiguousarray(weight.T) if weight.ndim > 1 else weight[None]
    return weights


def words(size: int, eos_id: int, unk_id: int) -> list[str]:
    """Lists the words by their ids, ``t17`` for id 17, but for two that Marian names."""
    names = {eos_id: EOS, unk_id: UNK}
    return [names.get(id_, f"t{id_}") for id_ in range(size)]


def write_vocabulary(config: TransformerConfig, path: Path) -> None:
    """Writes the vocabulary of a model as Marian reads it."""
    numbered = words(config.vocabulary_size, config.eos_id, config.unk_id)
    path.write_text(json.dumps({word: id_ for id_, word in enumerate(numbered)}, indent=0))

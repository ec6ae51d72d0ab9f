"""Compares with Marian on random weights of Marian's base shape, in Marian's own files.

``seqserve import`` reads them, so both engines compute one network, which their words show. The end
token never wins: every target has as many tokens as Marian allows, a multiple of its source's.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.beside_marian import compare, print_table, run_import
from bench.comparison import MIN_EQUAL_SHARE
from bench.marian import MARIAN_BASE
from bench.native_marian import NativeModel, in_eight_bits
from seqserve_import.marian.weights import SETTINGS
from seqserve_server.front.cores import available_cores

_SOURCE_TOKENS, _TARGET_TOKENS = 16, 32
_PROVEN = 16
"""Sentences of the proof."""
_CONTROL_TOKENS = ["</s>", "<unk>"]

Array = NDArray[np.float32]


def measure(rows: list[int], rounds: int) -> list[dict[str, Any]]:
    """Measures both engines in turn, and prints each table.

    Args:
        rows: Sources in flight on each core, each number a table.
        rounds: Turns of each engine.

    Raises:
        SystemExit: Marian's environment is missing, or the engines' words differ at fp32.
        CalledProcessError: An import failed.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = write(folder)
        # What random weights lose by rounding says nothing.
        artifacts = {
            precision: run_import(model, folder, precision, _texts(_PROVEN), "bench.unjudged")
            for precision in model.models
        }
        tables = []
        for count in rows:
            cores = available_cores() if count > 1 else 1
            table = compare(
                model,
                artifacts,
                # Two full batches for each worker.
                _texts(max(2 * count * cores, 8)),
                cores=cores,
                rows=count,
                rounds=rounds,
                length=_TARGET_TOKENS,
            )
            print_table("Marian base shape in its own files", table)
            [whole] = [way for way in table["ways"] if way["name"] == "fp32"]
            if whole["seqserve"]["equal_share"] < MIN_EQUAL_SHARE:
                raise SystemExit("the engines' words differ at fp32: not comparable")
            tables.append(table)
        return tables


def write(place: Path) -> NativeModel:
    """Writes a model into a folder.

    Raises:
        SystemExit: Marian's environment is missing.
    """
    folder = place / "native"
    folder.mkdir()
    floats, vocabulary = folder / "model.npz", folder / "vocab.yml"
    size = MARIAN_BASE.vocabulary_size
    words = [*_CONTROL_TOKENS, *(f"t{number}" for number in range(len(_CONTROL_TOKENS), size))]
    vocabulary.write_text(json.dumps({word: id_ for id_, word in enumerate(words)}, indent=0))
    settings: Any = np.frombuffer(json.dumps(_settings()).encode() + b"\0", np.int8)
    np.savez(floats, **{**_weights(), SETTINGS: settings})
    return NativeModel(
        folder=folder,
        vocabulary=vocabulary,
        shortlist=None,
        models={"fp32": floats, "int8": in_eight_bits(floats, place)},
        length_factor=_TARGET_TOKENS / _SOURCE_TOKENS,
    )


def _texts(count: int) -> list[str]:
    draw = random.Random(count)
    numbers = range(len(_CONTROL_TOKENS), MARIAN_BASE.vocabulary_size)
    # The end token is one of the source's.
    return [
        " ".join(f"t{number}" for number in draw.choices(numbers, k=_SOURCE_TOKENS - 1))
        for _ in range(count)
    ]


def _settings() -> dict[str, Any]:
    shape = MARIAN_BASE
    return {
        "type": "transformer",
        "dim-vocabs": [shape.vocabulary_size] * 2,
        "dim-emb": shape.width,
        "enc-depth": shape.encoder_layers,
        "dec-depth": shape.decoder_layers,
        "tied-embeddings-all": True,
        "transformer-heads": shape.heads,
        "transformer-dim-ffn": shape.feed_forward_width,
        "transformer-ffn-activation": "swish",
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-decoder-autoreg": "self-attention",
        "input-types": [],
        "lemma-dim-emb": 0,
        "version": "v1.12.42",
    }


def _weights() -> dict[str, Array]:
    """Draws weights whose greedy targets vary with the source, as :func:`bench.marian.marian_base`.

    Marian stores a projection as ``[in, out]``, a vector as ``[1, width]``.
    """
    draw = np.random.default_rng(7)
    width, inner, size = (
        MARIAN_BASE.width,
        MARIAN_BASE.feed_forward_width,
        MARIAN_BASE.vocabulary_size,
    )

    def normal(rows: int, columns: int) -> Array:
        return draw.standard_normal((rows, columns), np.float32)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Array:
        return normal(rows, columns) * np.float32(scale * (2 / (rows + columns)) ** 0.5)

    table = normal(size, width) * np.float32(width**-0.5)
    # Short vectors have small products with everything.
    table[: len(_CONTROL_TOKENS)] *= 0.1
    found = {"Wemb": table, "decoder_ff_logit_out_b": np.zeros((1, size), np.float32)}
    stacks = {"encoder": MARIAN_BASE.encoder_layers, "decoder": MARIAN_BASE.decoder_layers}
    for stack, layers in stacks.items():
        for layer in (f"{stack}_l{number}" for number in range(1, layers + 1)):
            for kind in ("self", "context")[: 1 + (stack == "decoder")]:
                for role in "qkvo":
                    scale = 0.2 if role == "o" and stack == "decoder" else 1.0
                    found[f"{layer}_{kind}_W{role}"] = matrix(width, width, scale)
                    found[f"{layer}_{kind}_b{role}"] = np.zeros((1, width), np.float32)
                found |= _norm(f"{layer}_{kind}_Wo", width)
            scale = 4.0 if layer == f"decoder_l{layers}" else 1.0
            found[f"{layer}_ffn_W1"] = matrix(width, inner)
            found[f"{layer}_ffn_b1"] = np.zeros((1, inner), np.float32)
            found[f"{layer}_ffn_W2"] = matrix(inner, width, scale)
            found[f"{layer}_ffn_b2"] = np.zeros((1, width), np.float32)
            found |= _norm(f"{layer}_ffn_ffn", width)
    last = f"decoder_l{MARIAN_BASE.decoder_layers}_ffn_ffn_ln_scale"
    # With a tied output and a last norm of ones, a token is most like itself and repeats for ever.
    found[last] = normal(1, width)
    return found


def _norm(prefix: str, width: int) -> dict[str, Array]:
    return {
        f"{prefix}_ln_scale": np.ones((1, width), np.float32),
        f"{prefix}_ln_bias": np.zeros((1, width), np.float32),
    }

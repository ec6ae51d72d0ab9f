"""Small models of Marian with random weights, in its own files."""

import functools
import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import yaml

Arrays = dict[str, np.ndarray[Any, np.dtype[np.float32]]]

SENTENCES = Path(__file__).parents[1] / "bench" / "sentences.txt"
TOKENS = 320
"""Tokens of the vocabulary."""
WIDTH, FEED_FORWARD = 64, 128
ENCODER_LAYERS, DECODER_LAYERS = 2, 1
SETTINGS = "special:model.yml"
_BYTES, _FLOAT32, _INTGEMM8 = 0x101, 0x404, 0x4101
_TABLES = {
    "all": ("Wemb", None),
    "target": ("decoder_Wemb", None),
    "source": ("Wemb", "decoder_ff_logit_out_Wt"),
    "none": ("decoder_Wemb", "decoder_ff_logit_out_Wt"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What models of Marian differ in."""

    norm: str = "post"
    """Where layers are normalised, ``pre`` or ``post``."""
    tied: str = "all"
    """Which tables of tokens are one: ``all``, ``target`` and output, ``source`` and target, or
    ``none``."""
    cell: str = "attention"
    """What a decoder layer reads its target with, ``attention`` or ``ssru``."""
    activation: str = "relu"
    target_tokens: int = TOKENS
    """Tokens of targets; where they are others than those of sources, there are two vocabularies,
    and no table of both is one."""

    def settings(self) -> dict[str, Any]:
        is_pre = self.norm == "pre"
        return {
            "type": "transformer",
            "dim-vocabs": [TOKENS, self.target_tokens],
            "dim-emb": WIDTH,
            "enc-depth": ENCODER_LAYERS,
            "dec-depth": DECODER_LAYERS,
            "tied-embeddings": self.tied == "target",
            "tied-embeddings-src": self.tied == "source",
            "tied-embeddings-all": self.tied == "all",
            "transformer-heads": 4,
            "transformer-dim-ffn": FEED_FORWARD,
            "transformer-ffn-activation": self.activation,
            "transformer-preprocess": "n" if is_pre else "",
            "transformer-postprocess": "da" if is_pre else "dan",
            "transformer-postprocess-top": "n" if is_pre else "",
            "transformer-decoder-autoreg": "rnn" if self.cell == "ssru" else "self-attention",
            "dec-cell": "ssru",
            "input-types": [],
            "lemma-dim-emb": 0,
            "version": "v1.12.42",
        }

    def shapes(self) -> dict[str, tuple[int, int]]:
        source = "Wemb" if self.tied in ("all", "source") else "encoder_Wemb"
        target, output = _TABLES[self.tied]
        size = (self.target_tokens, WIDTH)
        found = {source: (TOKENS, WIDTH), target: size, **({output: size} if output else {})}
        found["decoder_ff_logit_out_b"] = (1, self.target_tokens)
        for layer in range(1, ENCODER_LAYERS + 1):
            found |= self._layer(f"encoder_l{layer}", ("self",))
        for layer in range(1, DECODER_LAYERS + 1):
            own = () if self.cell == "ssru" else ("self",)
            found |= self._layer(f"decoder_l{layer}", (*own, "context"))
            found |= {} if own else self._ssru(f"decoder_l{layer}_rnn")
        if self.norm == "pre":
            for stack in ("encoder", "decoder"):
                found |= {f"{stack}_top_ln_{leaf}": (1, WIDTH) for leaf in ("scale", "bias")}
        return found

    def _layer(self, prefix: str, attentions: tuple[str, ...]) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {
            f"{prefix}_ffn_W1": (WIDTH, FEED_FORWARD),
            f"{prefix}_ffn_b1": (1, FEED_FORWARD),
            f"{prefix}_ffn_W2": (FEED_FORWARD, WIDTH),
            f"{prefix}_ffn_b2": (1, WIDTH),
            **self._norm(f"{prefix}_ffn_ffn"),
        }
        for attention in attentions:
            for role in "qkvo":
                found[f"{prefix}_{attention}_W{role}"] = (WIDTH, WIDTH)
                found[f"{prefix}_{attention}_b{role}"] = (1, WIDTH)
            found |= self._norm(f"{prefix}_{attention}_Wo")
        return found

    def _ssru(self, prefix: str) -> dict[str, tuple[int, int]]:
        return {
            f"{prefix}_W": (WIDTH, WIDTH),
            f"{prefix}_Wf": (WIDTH, WIDTH),
            f"{prefix}_bf": (1, WIDTH),
            **self._norm(prefix if self.norm == "pre" else f"{prefix}_ffn"),
        }

    def _norm(self, prefix: str) -> dict[str, tuple[int, int]]:
        suffix = "_pre" if self.norm == "pre" else ""
        return {f"{prefix}_ln_{leaf}{suffix}": (1, WIDTH) for leaf in ("scale", "bias")}


def arrays(shape: Shape, seed: int = 0) -> Arrays:
    """Draws weights whose greedy targets depend on their sources and vary."""
    draw = np.random.default_rng(seed)
    found: Arrays = {}
    for name, size in shape.shapes().items():
        noise = draw.standard_normal(size).astype(np.float32)
        if "_ln_scale" in name:
            found[name] = 1 + 0.3 * noise
        elif size[0] == 1:
            found[name] = 0.3 * noise
        else:
            found[name] = noise * size[0 if "Wemb" not in name else 1] ** -0.5
    for name in found:
        if "context_Wo" in name and "_ln_" not in name:
            found[name] *= 4
    last = (
        "decoder_top_ln_scale"
        if shape.norm == "pre"
        else f"decoder_l{DECODER_LAYERS}_ffn_ffn_ln_scale"
    )
    # Else each token predicts itself for ever, because the output is tied to the input.
    found[last] = draw.standard_normal((1, WIDTH)).astype(np.float32)
    return found


@functools.cache
def pieces(size: int = TOKENS) -> bytes:
    """Trains a vocabulary as Marian does: the end is 0, the unknown token 1."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES.read_text(encoding="utf-8").splitlines()),
        model_writer=file,
        vocab_size=size,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
        num_threads=1,
    )
    return file.getvalue()


def tokens() -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces())
    return [processor.id_to_piece(number) for number in range(TOKENS)]


def write_npz(path: Path, weights: Arrays, settings: Mapping[str, Any]) -> None:
    """Writes weights and settings as ``marian train`` does."""
    text = np.frombuffer(yaml.safe_dump(dict(settings)).encode() + b"\0", np.int8)
    rows = {name: np.ascontiguousarray(weight) for name, weight in weights.items()}
    np.savez(path, **{**rows, SETTINGS: text})  # type: ignore[arg-type]


def write_bin(
    path: Path,
    weights: Arrays,
    settings: Mapping[str, Any],
    *,
    is_int8: bool = False,
    limits: Mapping[str, float] | None = None,
) -> None:
    """Writes them as Bergamot does, in eight bits if so wanted.

    Args:
        path: The file.
        weights: The weights.
        settings: The settings of the network.
        is_int8: Whether the weights of projections have eight bits.
        limits: The largest inputs of projections, by the names of their weights.
    """
    text = yaml.safe_dump(dict(settings)).encode() + b"\0"
    parts = {SETTINGS: (_BYTES, (len(text),), text)}
    for name, array in weights.items():
        is_projection = array.shape[0] > 1
        if is_int8 and is_projection:
            parts[name] = (_INTGEMM8, array.shape, _integers(name, array))
        else:
            parts[name] = (_FLOAT32, array.shape, array.astype("<f4").tobytes())
    for name, limit in (limits or {}).items():
        weight = "none" if name == "Wemb" else name
        parts[f"{weight}_QuantMultA"] = (_FLOAT32, (1, 1), struct.pack("<f", 127 / limit))
    path.write_bytes(_content(parts))


def _integers(name: str, array: Any) -> bytes:
    scale = np.float32(127 / np.abs(array).max())
    rounded = np.round(array * scale).astype(np.int8)
    ordered = rounded if name.endswith("Wemb") else np.ascontiguousarray(rounded.T)
    return ordered.tobytes() + struct.pack("<f", scale)


def _content(parts: Mapping[str, tuple[int, tuple[int, ...], bytes]]) -> bytes:
    names = [name.encode() + b"\0" for name in parts]
    data = [part + b"\0" * (-len(part) % 256) for _, _, part in parts.values()]
    content = struct.pack("<QQ", 1, len(parts))
    for name, (kind, shape, _), part in zip(names, parts.values(), data, strict=True):
        content += struct.pack("<QQQQ", len(name), kind, len(shape), len(part))
    content += b"".join(names)
    for _, shape, _ in parts.values():
        content += struct.pack(f"<{len(shape)}i", *shape)
    gap = -(len(content) + 8) % 256
    return content + struct.pack("<Q", gap) + b"\0" * gap + b"".join(data)


def write(folder: Path, shape: Shape, seed: int = 0) -> Path:
    """Writes an ``.npz`` and its vocabularies."""
    folder.mkdir(parents=True, exist_ok=True)
    write_npz(folder / "model.npz", arrays(shape, seed), shape.settings())
    if shape.target_tokens == TOKENS:
        (folder / "vocab.spm").write_bytes(pieces())
    else:
        (folder / "srcvocab.spm").write_bytes(pieces())
        (folder / "trgvocab.spm").write_bytes(pieces(shape.target_tokens))
    return folder

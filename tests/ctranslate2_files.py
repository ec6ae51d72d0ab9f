"""Files of CTranslate2, written without it: a small model of any variables, and packages."""

import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqserve_import.tokenizers.pieces_pb2 import Model

Piece = Model.Piece
Variables = dict[str, Any]

TOKENS = ["<unk>", "<blank>", "<s>", "</s>", *(f"▁t{number}" for number in range(4, 20))]
WIDTH, INNER, POSITIONS = 16, 24, 30
_TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")


def variables(seed: int = 0) -> Variables:
    """Draws a model of one layer a stack, with biases, and norms before its layers."""
    draw = np.random.default_rng(seed)

    def noise(*shape: int) -> Any:
        return draw.standard_normal(shape).astype(np.float32) * shape[-1] ** -0.5

    found: Variables = {}

    def linear(name: str, rows: int, columns: int) -> None:
        found[f"{name}/weight"], found[f"{name}/bias"] = noise(rows, columns), noise(rows)

    def norm(name: str) -> None:
        found[f"{name}/gamma"], found[f"{name}/beta"] = 1 + noise(WIDTH), noise(WIDTH)

    table = noise(len(TOKENS), WIDTH)
    for stack in ("encoder", "decoder"):
        layer = f"{stack}/layer_0"
        table_of = "embeddings_0" if stack == "encoder" else "embeddings"
        found[f"{stack}/{table_of}/weight"] = table
        found[f"{stack}/position_encodings/encodings"] = noise(POSITIONS, WIDTH)
        found[f"{stack}/num_heads"] = np.int16(2)
        found[f"{stack}/pre_norm"] = np.int8(1)
        found[f"{stack}/activation"] = found[f"{stack}/scale_embeddings"] = np.int8(0)
        linear(f"{layer}/self_attention/linear_0", 3 * WIDTH, WIDTH)
        linear(f"{layer}/self_attention/linear_1", WIDTH, WIDTH)
        linear(f"{layer}/ffn/linear_0", INNER, WIDTH)
        linear(f"{layer}/ffn/linear_1", WIDTH, INNER)
        for name in (f"{layer}/self_attention", f"{layer}/ffn", stack):
            norm(f"{name}/layer_norm")
    attention = "decoder/layer_0/attention"
    linear(f"{attention}/linear_0", WIDTH, WIDTH)
    linear(f"{attention}/linear_1", 2 * WIDTH, WIDTH)
    linear(f"{attention}/linear_2", WIDTH, WIDTH)
    norm(f"{attention}/layer_norm")
    found["decoder/projection/weight"] = table
    found["decoder/projection/bias"] = noise(len(TOKENS))
    return found


def content_of(
    written: Mapping[str, Any],
    aliases: Mapping[str, str] | None = None,
    *,
    version: int = 6,
    specification: str = "TransformerSpec",
    revision: int = 7,
) -> bytes:
    """Returns a ``model.bin``; arrays of uint16 are written as bfloat16."""
    parts = [struct.pack("<I", version), _name(specification), struct.pack("<I", revision)]
    parts.append(struct.pack("<I", len(written)))
    for name, value in written.items():
        array = np.asarray(value)
        kind = "bfloat16" if array.dtype == np.uint16 else str(array.dtype)
        shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        length = struct.pack("<BI", _TYPES.index(kind), array.nbytes)
        parts += [_name(name), shape, length, array.tobytes()]
    parts.append(struct.pack("<I", len(aliases or {})))
    for alias, name in (aliases or {}).items():
        parts += [_name(alias), _name(name)]
    return b"".join(parts)


def _name(text: str) -> bytes:
    return struct.pack("<H", len(text.encode()) + 1) + text.encode() + b"\0"


def write(
    folder: Path,
    written: Mapping[str, Any] | None = None,
    *,
    tokens: Sequence[str] = TOKENS,
    **config: Any,
) -> Path:
    """Writes a model as OpenNMT-py's, and the pieces of its tokens; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.bin").write_bytes(content_of(written or variables()))
    settings = {"decoder_start_token": "<s>", "add_source_eos": False, **config}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "shared_vocabulary.json").write_text(json.dumps([*tokens]))
    (folder / "sentencepiece.model").write_bytes(pieces(tokens))
    return folder


def pieces(tokens: Sequence[str]) -> bytes:
    """Returns a model of SentencePiece with the words among some tokens."""
    found = [Piece(piece="<unk>", type=Piece.UNKNOWN), Piece(piece="▁", score=-9.0)]
    found += [Piece(piece=token, score=-1.0) for token in tokens if token.startswith("▁")]
    return Model(pieces=found).SerializeToString()


def write_package(folder: Path, model: Path, source: str, target: str, **metadata: str) -> Path:
    """Packs a model as one of Argos; returns the ``.argosmodel``."""
    name = f"translate-{source}_{target}-1_0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.argosmodel"
    facts = {"package_version": "1.0", "from_code": source, "to_code": target, **metadata}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/metadata.json", json.dumps(facts))
        archive.writestr(f"{name}/stanza/resources.json", "{}")
        for file in sorted(model.iterdir()):
            place = "" if file.name == "sentencepiece.model" else "model/"
            archive.write(file, f"{name}/{place}{file.name}")
    return path

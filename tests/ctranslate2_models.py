"""Small models of CTranslate2, as its own converters lay them out.

Those of transformers come from the checkpoints of :mod:`tests.checkpoints`; OpenNMT-py's and
Marian's are given to their converters as the files that those programs write.
"""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from ctranslate2.converters import OpenNMTPyConverter, transformers
from ctranslate2.converters.converter import Converter
from tests import checkpoints
from tests.checkpoints import TOKENS

from seqserve_import.tokenizers.pb.pieces_pb2 import Model

Piece = Model.Piece

LOADERS = {
    "marian": "MarianConfig",
    "m2m100": "M2M100Config",
    "nllb": "M2M100Config",
    "t5": "T5Config",
    "flan": "T5Config",
    "mt5": "MT5Config",
    "bart": "BartConfig",
    "mbart": "MBartConfig",
    "mbart25": "MBartConfig",
    "pegasus": "PegasusConfig",
}
"""The layout of each of our families, by CTranslate2's name of it."""
_NORMS = {"bart": False, "mbart": True, "pegasus": True}


class _OfTransformers(Converter):  # type: ignore[misc]
    """Lays out a model of transformers, with a vocabulary of numbered words."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def _load(self) -> Any:
        model, config = self._model, self._model.config
        loader = transformers._MODEL_LOADERS[LOADERS[model.family]]
        # Older configurations had both; transformers 5 leaves them out.
        config.normalize_before = _NORMS.get(config.model_type, False)
        config.normalize_embedding = config.model_type != "pegasus"
        tokens = words(model)
        with torch.no_grad():
            spec = loader.get_model_spec(model)
        if config.model_type == "marian":
            tokens = tokens[:-1]
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        spec.config.bos_token = "<s>" if "<s>" in tokens else "<pad>"
        spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
        start = config.decoder_start_token_id
        is_language = model.family == "mbart25"
        is_zero = config.model_type == "marian"
        spec.config.decoder_start_token = (
            None if is_language else "</s>" if is_zero else tokens[start]
        )
        return spec


def words(model: Any) -> list[str]:
    """Returns the vocabulary: pieces such as ``▁t17``, control tokens, languages, rows."""
    languages = checkpoints.LANGUAGES_OF.get(model.family, [])
    known = checkpoints.word_ids(model.config, languages, space="▁")
    rows = range(len(known), model.config.vocab_size)
    return [*known, *(f"madeupword{number}" for number in rows)]


def write(family: str, folder: Path, seed: int = 0, quantization: str | None = None) -> Any:
    """Writes a model of a family, and its pieces; returns that of transformers."""
    model = checkpoints.make(family, seed)
    if family == "marian":
        # Its converter leaves out the last row, which is that of <pad>.
        model.resize_token_embeddings(TOKENS)
    _OfTransformers(model).convert(str(folder), quantization=quantization, force=True)
    (folder / "sentencepiece.model").write_bytes(pieces(words(model)))
    return model


def pieces(tokens: Sequence[str]) -> bytes:
    """Returns a model of SentencePiece with the words among some tokens."""
    found = [Piece(piece="<unk>", type=Piece.UNKNOWN), Piece(piece="▁", score=-9.0)]
    found += [Piece(piece=token, score=-1.0) for token in tokens if token.startswith("▁")]
    return Model(pieces=found).SerializeToString()


OPENNMT_TOKENS = ["<unk>", "<blank>", "<s>", "</s>", *(f"▁t{n}" for n in range(4, TOKENS))]


def write_opennmt(
    folder: Path, seed: int = 0, quantization: str | None = None, **options: Any
) -> None:
    """Writes a model as OpenNMT-py trains it, with random weights.

    Args:
        folder: The place.
        seed: Of the weights.
        quantization: As CTranslate2 names it.
        options: Settings of OpenNMT-py, such as ``max_relative_positions``; ``bias=False`` leaves
            out the biases of attention, as its third version does.
    """
    settings = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "position_encoding": not options.get("max_relative_positions"),
        "enc_layers": 2,
        "dec_layers": 1,
        "heads": 2,
        "pos_ffn_activation_fn": "relu",
        **options,
    }
    has_bias = settings.pop("bias", True)
    weights = _opennmt_weights(settings, seed, has_bias=has_bias)
    generator = {
        name.removeprefix("generator."): weights.pop(name)
        for name in [*weights]
        if name.startswith("generator.")
    }
    vocab = {"src": OPENNMT_TOKENS, "tgt": OPENNMT_TOKENS}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.with_suffix(".pt")
    content = {
        "opt": Namespace(**settings),
        "vocab": vocab,
        "model": weights,
        "generator": generator,
    }
    torch.save(content, path)
    with torch.serialization.safe_globals([Namespace]):
        OpenNMTPyConverter(str(path)).convert(str(folder), quantization=quantization, force=True)
    path.unlink()
    (folder / "sentencepiece.model").write_bytes(pieces(OPENNMT_TOKENS))


_WIDTH, _INNER, _POSITIONS = 32, 48, 40


def _opennmt_weights(
    settings: Mapping[str, Any], seed: int, *, has_bias: bool
) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw) * shape[-1] ** -0.5

    weights: dict[str, torch.Tensor] = {}

    def linear(name: str, rows: int, columns: int, *, has_bias: bool = True) -> None:
        weights[f"{name}.weight"] = noise(rows, columns)
        if has_bias:
            weights[f"{name}.bias"] = 0.3 * noise(rows)

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = 1 + noise(_WIDTH)
        weights[f"{name}.bias"] = noise(_WIDTH)

    def attention(name: str) -> None:
        for projection in ("linear_query", "linear_keys", "linear_values", "final_linear"):
            linear(f"{name}.{projection}", _WIDTH, _WIDTH, has_bias=has_bias)
        if name.endswith("context_attn"):
            weights[f"{name}.final_linear.weight"] *= 4  # so that targets depend on their sources
        elif distance := settings.get("max_relative_positions"):
            size = _WIDTH // settings["heads"]
            weights[f"{name}.relative_positions_embeddings.weight"] = noise(2 * distance + 1, size)

    table = noise(TOKENS, _WIDTH)
    for stack, layers in {"encoder": "enc_layers", "decoder": "dec_layers"}.items():
        weights[f"{stack}.embeddings.make_embedding.emb_luts.0.weight"] = table
        weights[f"{stack}.embeddings.make_embedding.pe.pe"] = noise(_POSITIONS, 1, _WIDTH)
        norm(f"{stack}.layer_norm")
        inner = "transformer" if stack == "encoder" else "transformer_layers"
        for number in range(settings[layers]):
            prefix = f"{stack}.{inner}.{number}"
            attention(f"{prefix}.self_attn")
            if stack == "decoder":
                attention(f"{prefix}.context_attn")
                norm(f"{prefix}.layer_norm_2")
            norm(f"{prefix}.layer_norm" if stack == "encoder" else f"{prefix}.layer_norm_1")
            norm(f"{prefix}.feed_forward.layer_norm")
            linear(f"{prefix}.feed_forward.w_1", _INNER, _WIDTH)
            linear(f"{prefix}.feed_forward.w_2", _WIDTH, _INNER)
    # Else each token predicts itself for ever, because the output is tied to the input.
    weights["decoder.layer_norm.weight"] = 3 * torch.randn(_WIDTH, generator=draw)
    weights["generator.weight"], weights["generator.bias"] = table, noise(TOKENS)
    return weights


def write_package(folder: Path, model: Path, source: str, target: str) -> Path:
    """Packs a model as one of Argos; returns the ``.argosmodel``."""
    import zipfile

    name = f"translate-{source}_{target}-1_0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.argosmodel"
    metadata = {"package_version": "1.0", "argos_version": "1.9", "from_code": source}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/metadata.json", json.dumps({**metadata, "to_code": target}))
        archive.writestr(f"{name}/stanza/resources.json", "{}")
        for file in sorted(model.iterdir()):
            place = "" if file.name == "sentencepiece.model" else "model/"
            archive.write(file, f"{name}/{place}{file.name}")
    return path

"""Small models of CTranslate2, as its own converters lay them out.

Those of transformers come from the checkpoints of :mod:`tests.checkpoints`; OpenNMT-py's and
Marian's are given to their converters as the files that those programs write.
"""

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ctranslate2.converters import MarianConverter, OpenNMTPyConverter, transformers
from ctranslate2.converters.converter import Converter
from tests import checkpoints, marian_models
from tests.checkpoints import TOKENS
from tests.ctranslate2_files import pieces

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
    weights = _OpenNMT(settings, seed, has_bias=has_bias).weights
    generator = {name: weights.pop(f"generator.{name}") for name in ("weight", "bias")}
    vocab = {"src": OPENNMT_TOKENS, "tgt": OPENNMT_TOKENS}
    content = {"opt": Namespace(**settings), "vocab": vocab}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.with_suffix(".pt")
    torch.save(content | {"model": weights, "generator": generator}, path)
    with torch.serialization.safe_globals([Namespace]):
        OpenNMTPyConverter(str(path)).convert(str(folder), quantization=quantization, force=True)
    path.unlink()
    (folder / "sentencepiece.model").write_bytes(pieces(OPENNMT_TOKENS))


def write_marian(folder: Path, norm: str, quantization: str | None = None) -> None:
    """Writes a model as Marian trains it, with the norm ``post`` or ``pre``."""
    shape = marian_models.Shape(norm=norm)
    settings = shape.settings() | {
        "transformer-guided-alignment-layer": "last",
        "transformer-no-projection": False,
        "transformer-postprocess-emb": "d",
    }
    model, vocabulary = folder.with_suffix(".npz"), folder.with_suffix(".yml")
    marian_models.write_npz(model, marian_models.arrays(shape), settings)
    tokens = [json.dumps(token, ensure_ascii=False) for token in marian_models.tokens()]
    lines = "".join(f"{token}: {id_}\n" for id_, token in enumerate(tokens))
    vocabulary.write_text(lines, encoding="utf-8")
    converter = MarianConverter(str(model), [str(vocabulary)])
    converter.convert(str(folder), quantization=quantization, force=True)
    (folder / "source.spm").write_bytes(marian_models.pieces())
    (folder / "target.spm").write_bytes(marian_models.pieces())


_WIDTH, _INNER, _POSITIONS = 32, 48, 40


class _OpenNMT:
    """Draws the weights of OpenNMT-py, by its names."""

    def __init__(self, settings: Mapping[str, Any], seed: int, *, has_bias: bool) -> None:
        self._settings, self._has_bias = settings, has_bias
        self._draw = torch.Generator().manual_seed(seed)
        table = self._noise(TOKENS, _WIDTH)
        self.weights = {"generator.weight": table, "generator.bias": self._noise(TOKENS)}
        for stack, layers in {"encoder": "enc_layers", "decoder": "dec_layers"}.items():
            embeddings = f"{stack}.embeddings.make_embedding"
            self.weights[f"{embeddings}.emb_luts.0.weight"] = table
            self.weights[f"{embeddings}.pe.pe"] = self._noise(_POSITIONS, 1, _WIDTH)
            self._norm(f"{stack}.layer_norm")
            inner = "transformer" if stack == "encoder" else "transformer_layers"
            for number in range(settings[layers]):
                self._layer(f"{stack}.{inner}.{number}", is_decoder=stack == "decoder")
        # Else each token predicts itself for ever, because the output is tied to the input.
        self.weights["decoder.layer_norm.weight"] = 3 * torch.randn(_WIDTH, generator=self._draw)

    def _noise(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self._draw) * shape[-1] ** -0.5

    def _linear(self, name: str, rows: int, columns: int, *, has_bias: bool = True) -> None:
        self.weights[f"{name}.weight"] = self._noise(rows, columns)
        if has_bias:
            self.weights[f"{name}.bias"] = 0.3 * self._noise(rows)

    def _norm(self, name: str) -> None:
        self.weights[f"{name}.weight"] = 1 + self._noise(_WIDTH)
        self.weights[f"{name}.bias"] = self._noise(_WIDTH)

    def _attention(self, name: str) -> None:
        for projection in ("linear_query", "linear_keys", "linear_values", "final_linear"):
            self._linear(f"{name}.{projection}", _WIDTH, _WIDTH, has_bias=self._has_bias)

    def _layer(self, prefix: str, *, is_decoder: bool) -> None:
        self._attention(f"{prefix}.self_attn")
        if distance := self._settings.get("max_relative_positions"):
            size = _WIDTH // self._settings["heads"]
            name = f"{prefix}.self_attn.relative_positions_embeddings.weight"
            self.weights[name] = self._noise(2 * distance + 1, size)
        if is_decoder:
            self._attention(f"{prefix}.context_attn")
            # So that targets depend on their sources.
            self.weights[f"{prefix}.context_attn.final_linear.weight"] *= 4
            self._norm(f"{prefix}.layer_norm_2")
        self._norm(f"{prefix}.layer_norm_1" if is_decoder else f"{prefix}.layer_norm")
        self._norm(f"{prefix}.feed_forward.layer_norm")
        self._linear(f"{prefix}.feed_forward.w_1", _INNER, _WIDTH)
        self._linear(f"{prefix}.feed_forward.w_2", _WIDTH, _INNER)

"""CTranslate2 as a driver, and our weights and shortlists in its files."""

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.converters.converter import Converter
from ctranslate2.specs import common_spec, transformer_spec
from numpy.typing import NDArray

from bench.drivers import Driver, Rows
from seqserve_import.families.ctranslate2 import weight_names
from seqserve_import.loading import their_name
from seqserve_model.config import (
    Activation,
    DecoderCell,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)
from seqserve_model.positions import LearnedPositions, SinusoidalPositions, T5Positions
from seqserve_model.transformer import Transformer
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.shortlist import Shortlist


class CTranslate2Driver(Driver[list[int]]):
    """CTranslate2 in one layout of workers and threads; it sorts and batches by itself."""

    def __init__(
        self,
        folder: Path,
        precision: str,
        layout: tuple[int, int],
        rows: int,
        options: DecodingOptions,
        device: str = "cpu",
    ) -> None:
        """Loads a converted model.

        Args:
            layout: Workers and threads of each.
            options: How to decode: length, beam and sampling; from the shortlist, if the model has
                a vocabulary map, where all sources of a batch share their candidates.
        """
        workers, threads = layout
        has_map = (folder / "vmap.txt").exists() and options.shortlist
        shown = precision.replace("float", "fp")
        self.name = f"CTranslate2 {shown} {workers}x{threads}" + " with shortlist" * has_map
        self.rows = rows
        """Most sources of a batch; may change from one decoding to the next."""
        self._options = _translated(options) | {"max_input_length": 0}
        self._translator = ctranslate2.Translator(
            str(folder),
            device=device,
            compute_type=precision,
            inter_threads=workers,
            intra_threads=threads,
        )

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Hands over all sources at once."""
        words = [[f"t{token}" for token in source] for source in sources]
        results = self._translator.translate_batch(words, max_batch_size=self.rows, **self._options)
        return [[int(word[1:]) for word in result.hypotheses[0]] for result in results]

    def close(self) -> None:
        """Unloads the model."""
        self._translator.unload_model()


def _translated(options: DecodingOptions) -> dict[str, Any]:
    named: dict[str, Any] = {
        "beam_size": options.beam_size,
        "length_penalty": options.length_penalty,
        "max_decoding_length": options.max_decoding_length,
        "min_decoding_length": options.min_decoding_length,
        "use_vmap": options.shortlist,
    }
    if options.sampling is not None:
        named |= {
            "sampling_topk": options.sampling.top_k,
            "sampling_topp": options.sampling.top_p,
            "sampling_temperature": options.sampling.temperature,
        }
    return named


def write_map(shortlist: Shortlist, path: Path) -> Path:
    """Writes a shortlist of numbered words, ``t17`` for id 17, as a vocabulary map.

    A line is a source token, a tab, and the target tokens that it allows. The line of an empty
    source has the tokens that are always allowed; unknown, begin and end tokens need no line.

    Source: CTranslate2, src/vocabulary_map.cc.
    """
    ends = shortlist.offsets[1:].tolist()
    rules = {"": shortlist.frequent.tolist()} | {
        f"t{token}": shortlist.translations[begin:end].tolist()
        for token, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
        if begin < end
    }
    lines = (f"{source}\t{_words(targets)}\n" for source, targets in rules.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _words(tokens: Iterable[int]) -> str:
    return " ".join(f"t{token}" for token in tokens)


def check_decoder(config: TransformerConfig, engine: str) -> None:
    """Refuses a model that an engine cannot compute."""
    if config.decoder_cell is not DecoderCell.ATTENTION:
        raise ValueError(
            f"{engine} has no decoder with {config.decoder_cell.value}; compare this model with"
            " Marian (bench/marian_files.py writes its files)"
        )


class CTranslate2Converter(Converter):  # type: ignore[misc]
    """Lays the weights of our torch model out as CTranslate2 wants them."""

    def __init__(self, model: Transformer) -> None:
        check_decoder(model.config, "CTranslate2")
        self._model = model

    def _load(self) -> transformer_spec.TransformerSpec:
        model, config = self._model, self._model.config
        pre_norm = config.norm_position is NormPosition.PRE
        spec = transformer_spec.TransformerSpec.from_config(
            (config.encoder_layers, config.decoder_layers),
            config.heads,
            pre_norm=pre_norm,
            activation=common_spec.Activation[_ACTIVATIONS[config.activation]],
            ffn_glu=config.activation is Activation.GEGLU_TANH,
            # The attention of a target token is the mean over all heads, as in ours.
            alignment_heads=config.heads,
            relative_attention_bias=config.positions is PositionScheme.T5,
            rms_norm=config.norm is Norm.RMS,
            layernorm_embedding=config.embedding_norm,
        )
        words = [f"t{number}" for number in range(config.vocabulary_size)]
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.bos_token = f"t{config.bos_id}"
        spec.config.eos_token = f"t{config.eos_id}"
        spec.config.unk_token = f"t{config.unk_id}"
        spec.config.decoder_start_token = f"t{config.bos_id}"
        spec.config.layer_norm_epsilon = model.encoder_layers[0].self_residual.norm.eps
        joined: dict[str, list[torch.Tensor]] = {}
        names = _TABLES | weight_names(is_gated=config.activation is Activation.GEGLU_TANH)
        for ours, weight in model.named_parameters(remove_duplicate=False):
            if not re.match(r"\w+_positions\.", ours):
                # Queries, keys and values are parts of one matrix.
                place = re.sub(r"\[\w+\]", "", their_name(ours, names, first_layer=0))
                joined.setdefault(place, []).append(weight)
        for place, weights in joined.items():
            *path, leaf = place.split("/")
            setattr(reduce(_part, path, spec), leaf, _array(torch.cat(weights)))
        for stack, positions in (
            (spec.encoder, model.encoder_positions),
            (spec.decoder, model.decoder_positions),
        ):
            stack.scale_embeddings = config.scaled_embeddings
            if isinstance(positions, SinusoidalPositions | LearnedPositions):
                stack.position_encodings.encodings = _array(positions.table)
            for layer in stack.layer:
                # Else it takes heads to be as wide as the model together, which T5's need not be.
                attentions = layer.self_attention, getattr(layer, "attention", None)
                for attention in filter(None, attentions):
                    attention.queries_scale = config.head_size**-0.5
                if isinstance(positions, T5Positions):
                    bias = layer.self_attention
                    bias.relative_attention_bias = _array(positions.table)
                    bias.relative_attention_max_distance = np.int32(positions.distance)
        return spec


_TABLES = {
    "source_embedding.weight": "encoder/embeddings_0/weight",
    "target_embedding.weight": "decoder/embeddings/weight",
    "output_projection.weight": "decoder/projection/weight",
    "logits_bias": "decoder/projection/bias",
}
_ACTIVATIONS = {
    **{each: each.name for each in Activation},
    Activation.GELU_TANH: "GELUTanh",
    Activation.GEGLU_TANH: "GELUTanh",
}
"""As CTranslate2 names them."""


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return tensor.detach().numpy()


def _part(spec: Any, name: str) -> Any:
    if hasattr(spec, name):
        return getattr(spec, name)
    name, _, number = name.rpartition("_")
    return getattr(spec, name)[int(number)]

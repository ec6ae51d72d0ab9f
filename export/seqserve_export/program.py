"""The interface of each graph: its module, inputs with their free axes, and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim

from seqserve_export.fp16_conversion import dtype_of
from seqserve_export.graphs import GROUP
from seqserve_export.graphs.decoder import DecoderGraph, LayerCaches, StepRows
from seqserve_export.graphs.one_pass import EncoderGraph, ScorerGraph
from seqserve_export.graphs.step_outputs import (
    OUTPUTS,
    FullOutputs,
    PlainOutputs,
    ScoredOutputs,
)
from seqserve_export.quantization import cache_scales
from seqserve_model.config import DecoderCell
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import DECODER, ENCODER, SCORER


class Input(NamedTuple):
    """One input of a graph."""

    name: str
    example: Tensor
    free: tuple[int, ...] = ()
    """Axes whose size is known only at run time."""

    @property
    def dynamic_shape(self) -> dict[int, Any]:
        """The free axes, as torch's exporter takes them."""
        return dict.fromkeys(self.free, Dim.DYNAMIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One graph."""

    module: nn.Module
    inputs: list[Input]
    outputs: list[str]
    arguments: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple
    """Groups one value for each input into the arguments of the module."""
    choice: Choice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Ends of a graph, of which conditions choose one.

    Their inputs are outputs of the graph, which are then dropped, or new inputs.
    """

    condition: Input
    then: Program | Choice
    otherwise: Program | Choice


def _int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _int64(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def _encoder(model: Transformer) -> Program:
    return Program(
        module=EncoderGraph(model),
        inputs=[
            Input("source", _int64(16), (0,)),
            Input("positions", _int64(16), (0,)),
            Input("source_lengths", _int32(7, 5, 4), (0,)),
            Input("pad_index", _int64(3, 7), (0, 1)),
            Input("unpad_index", _int64(16), (0,)),
        ],
        outputs=[
            f"{kind}_{part}_{layer}"
            for layer in range(model.config.decoder_layers)
            for part in ("key", "value")
            for kind in ("cross", "last")
        ],
    )


def _decoder(model: Transformer) -> Program:
    rows = 2
    layers = range(model.config.decoder_layers)
    return Program(
        module=DecoderGraph(model),
        inputs=[
            Input("tokens", _int64(rows, 1), (0,)),
            Input("lengths", _int32(3, 4), (0,)),
            Input("max_length", _int32(5)),
            Input("source_last_index", _int32(6, 7), (0,)),
            Input("max_source_length", _int32(8)),
            Input("projected_rows", torch.arange(rows), (0,)),
            Input("bias_tokens", _int64(rows, 3), (0, 1)),
            Input("bias_values", torch.zeros(rows, 3), (0, 1)),
            *(cache for layer in layers for cache in _caches(model, rows, layer)),
        ],
        outputs=[
            "features",
            "biased_logits",
            *(
                f"new_{name}_{layer}"
                for layer in layers
                for name in (*_past_names(model), "cross_key", "cross_value")
            ),
        ],
        arguments=partial(_step_arguments, len(_past_names(model))),
        choice=_step_outputs(model, rows),
    )


def _step_outputs(model: Transformer, rows: int) -> Choice:
    logits = Input("biased_logits", torch.zeros(rows, model.config.vocabulary_size), (0,))
    top_k = Input("top_k", _int64(4), (0,))
    options = [
        Input("features", torch.zeros(rows, model.config.width, dtype=dtype_of(model)), (0,)),
        logits,
        Input("return_logprobs", torch.tensor(True)),
        top_k,
        Input("num_logits", _int64(5), (0,)),
        Input("allowed_tokens", _int64(2, GROUP), (0,)),
    ]
    full = Program(module=FullOutputs(model), inputs=options, outputs=OUTPUTS)
    scored = Program(module=ScoredOutputs(), inputs=[logits, top_k], outputs=OUTPUTS)
    plain = Program(module=PlainOutputs(), inputs=[logits], outputs=OUTPUTS)
    return Choice(
        condition=Input("has_options", torch.tensor(True)),
        then=Choice(
            condition=Input("only_scores", torch.tensor(True)), then=scored, otherwise=full
        ),
        otherwise=plain,
    )


def _past_names(model: Transformer) -> tuple[str, ...]:
    if model.config.decoder_cell is DecoderCell.SSRU:
        return ("cell",)
    return "self_key", "self_value"


def _step_arguments(past: int, values: Sequence[Any]) -> tuple[StepRows, list[LayerCaches]]:
    rows, size = len(StepRows._fields), past + len(LayerCaches._fields) - 1
    layers = range(rows, len(values), size)
    return (
        StepRows(*values[:rows]),
        [
            LayerCaches(tuple(values[start : start + past]), *values[start + past : start + size])
            for start in layers
        ],
    )


def _caches(model: Transformer, rows: int, layer: int) -> list[Input]:
    config = model.config.decoder
    is_int8 = cache_scales(model.decoder_layers[0].cross_attention) is not None
    dtype = dtype_of(model)

    def cache(capacity: int) -> Tensor:
        return torch.zeros(
            rows,
            config.heads,
            capacity,
            config.head_size,
            dtype=torch.int8 if is_int8 else dtype,
        )

    is_recurrent = config.decoder_cell is DecoderCell.SSRU
    past = torch.zeros(rows, config.width) if is_recurrent else cache(config.max_target_length + 1)
    cross, last = cache(16), torch.zeros(rows, 1, config.heads * config.head_size, dtype=dtype)
    kinds = (
        (_past_names(model), past, (0,)),
        (("cross_key", "cross_value"), cross, (0, 2)),
        (("last_key", "last_value"), last, (0,)),
    )
    return [
        # A clone, because the exporter takes equal tensors for one input.
        Input(f"{name}_{layer}", example.clone(), free)
        for names, example, free in kinds
        for name in names
    ]


def _scorer(model: Transformer) -> Program:
    return Program(
        module=ScorerGraph(model),
        inputs=[
            Input("source", _int64(2, 7), (0, 1)),
            Input("source_lengths", _int32(7, 5), (0,)),
            Input("target", _int64(2, 6), (0, 1)),
        ],
        outputs=["log_probabilities", "encoder_attention", "decoder_attention", "cross_attention"],
    )


PROGRAMS: dict[str, Callable[[Transformer], Program]] = {
    ENCODER: _encoder,
    DECODER: _decoder,
    SCORER: _scorer,
}
"""Makes each graph of an artifact, by file name. One at a time: some hold copies of weights."""

"""torch as a driver: our own model, and models of transformers by their ``generate``."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)

from bench.drivers import Driver, Rows
from bench.drivers.ctranslate2 import check_decoder
from seqserve_model.batches import padded
from seqserve_model.config import Activation, Norm, NormPosition, PositionScheme, TransformerConfig
from seqserve_model.decoding import batches_by_length, greedy_in_batches
from seqserve_model.layers import DecoderLayer, EncoderLayer
from seqserve_model.transformer import Transformer


class TorchDriver(Driver[list[int]]):
    """Our torch model and its greedy loop with cached keys and values, in sorted batches."""

    def __init__(self, model: Transformer, rows: int, max_decoding_length: int) -> None:
        """All cores work on one batch."""
        self.name = "torch fp32"
        self._model, self._rows, self._length = model, rows, max_decoding_length

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Decodes batch after batch, each to its longest row."""
        return greedy_in_batches(self._model, sources, self._length, self._rows)


class TransformersDriver(Driver[list[int]]):
    """Greedy decoding by ``generate``, in sorted batches; targets have a fixed length."""

    def __init__(self, model: Any, rows: int, length: int, layout: tuple[int, int]) -> None:
        """Takes a model of transformers in evaluation mode, on its device.

        Every target has ``length`` tokens; only the end token is suppressed. ``layout`` is workers,
        each with its batch, and threads of each.
        """
        workers, threads = layout
        self.name = f"transformers {_PRECISIONS[model.dtype]} {workers}x{threads}"
        self.rows = rows
        """Sources of a batch; may change from one decoding to the next."""
        self._model = model
        self._options = GenerationConfig(
            pad_token_id=model.config.pad_token_id,
            eos_token_id=model.config.eos_token_id,
            decoder_start_token_id=model.config.decoder_start_token_id,
            min_new_tokens=length,
            max_new_tokens=length,
            num_beams=1,
            do_sample=False,
        )
        # Torch lets go of the interpreter in its products, which are most of the time. How many
        # threads a product takes is a setting of the thread that asks for it.
        self._pool = ThreadPoolExecutor(
            workers, initializer=torch.set_num_threads, initargs=(threads,)
        )

    @classmethod
    def load(
        cls, checkpoint: Path, rows: int, length: int, layout: tuple[int, int]
    ) -> TransformersDriver:
        """Loads a checkpoint."""
        return cls(AutoModelForSeq2SeqLM.from_pretrained(checkpoint), rows, length, layout)

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Lets each worker take the next batch when it is done with its last."""
        batches = list(batches_by_length(sources, self.rows))
        decoded = self._pool.map(self._generate, ([sources[i] for i in batch] for batch in batches))
        targets: Rows = [[] for _ in sources]
        for batch, rows in zip(batches, decoded, strict=True):
            for index, row in zip(batch, rows, strict=True):
                targets[index] = row
        return targets

    @torch.inference_mode()
    def _generate(self, batch: Rows) -> Rows:
        source, lengths = padded(batch, self._options.pad_token_id)
        mask = (torch.arange(source.size(1)) < lengths[:, None]).long()  # [B, S]
        device = self._model.device
        targets = self._model.generate(
            source.to(device), self._options, attention_mask=mask.to(device)
        )
        return targets[:, 1:].tolist()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the workers."""
        self._pool.shutdown()


_PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def random_model(config: TransformerConfig, device: str, dtype: torch.dtype) -> Any:
    """Draws a model of transformers that has the shape of ours, on a device."""
    if config.positions is PositionScheme.T5:
        with torch.device(device):
            return T5ForConditionalGeneration(_t5(config)).eval().to(dtype)
    kind = config.norm_position, config.positions, config.embedding_norm
    if kind not in _MODELS or config.norm is not Norm.LAYER or not config.tied_output:
        raise ValueError(f"transformers has no model of this kind: {config}")
    make, make_config = _MODELS[kind]
    with torch.device(device):
        return make(make_config(**_sizes(config))).eval().to(dtype)


_MODELS: dict[tuple[NormPosition, PositionScheme, bool], tuple[Any, Any]] = {
    (NormPosition.POST, PositionScheme.SINUSOIDAL, False): (MarianMTModel, MarianConfig),
    (NormPosition.POST, PositionScheme.LEARNED, True): (BartForConditionalGeneration, BartConfig),
    (NormPosition.PRE, PositionScheme.SINUSOIDAL, False): (
        M2M100ForConditionalGeneration,
        M2M100Config,
    ),
}
"""By the place of norms, by positions, and by whether embeddings are normalised."""


@torch.no_grad()
def marian_of(ours: Transformer) -> Any:
    """Makes a ``MarianMTModel`` that computes what our model computes."""
    config = ours.config
    check_decoder(config, "transformers")
    theirs = MarianMTModel(_shape(config)).eval()
    # Marian keeps all sines before all cosines where we keep them in turn.
    order = torch.cat((torch.arange(0, config.width, 2), torch.arange(1, config.width, 2)))
    theirs.model.shared.weight.copy_(ours.source_embedding.weight[:, order])
    for block, encoder_layer in zip(theirs.model.encoder.layers, ours.encoder_layers, strict=True):
        _copy_layer(block, encoder_layer, order)
    for block, decoder_layer in zip(theirs.model.decoder.layers, ours.decoder_layers, strict=True):
        _copy_layer(block, decoder_layer, order)
        _copy_attention(block.encoder_attn, decoder_layer.cross_attention, order)
        _copy_out(block.encoder_attn_layer_norm, decoder_layer.cross_residual.norm, order)
    return theirs


def _shape(config: TransformerConfig) -> MarianConfig:
    kind = (config.norm_position, config.norm, config.positions)
    shared = (config.shared_embeddings, config.tied_output, config.scaled_embeddings)
    if kind != (NormPosition.POST, Norm.LAYER, PositionScheme.SINUSOIDAL) or not all(shared):
        raise ValueError(f"not of Marian's kind: {config}")
    return MarianConfig(**_sizes(config))


def _sizes(config: TransformerConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocabulary_size,
        "d_model": config.width,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.feed_forward_width,
        "decoder_ffn_dim": config.feed_forward_width,
        "activation_function": config.activation.value,
        "scale_embedding": config.scaled_embeddings,
        "max_position_embeddings": max(config.max_source_length, config.max_target_length + 1),
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
        "forced_eos_token_id": None,  # else the last token would always be the end token
    }


def _t5(config: TransformerConfig) -> T5Config:
    is_gated = config.activation is Activation.GEGLU_TANH
    return T5Config(
        vocab_size=config.vocabulary_size,
        d_model=config.width,
        d_kv=config.head_size,
        d_ff=config.feed_forward_width,
        num_layers=config.encoder_layers,
        num_decoder_layers=config.decoder_layers,
        num_heads=config.heads,
        feed_forward_proj="gated-gelu" if is_gated else "relu",
        tie_word_embeddings=config.tied_output,
        pad_token_id=config.pad_id,
        eos_token_id=config.eos_id,
        decoder_start_token_id=config.bos_id,
    )


def _copy_layer(theirs: Any, ours: EncoderLayer | DecoderLayer, order: Tensor) -> None:
    _copy_attention(theirs.self_attn, ours.self_attention, order)
    _copy_out(theirs.self_attn_layer_norm, ours.self_residual.norm, order)
    _copy_in(theirs.fc1, ours.feed_forward.up, order)
    _copy_out(theirs.fc2, ours.feed_forward.down, order)
    _copy_out(theirs.final_layer_norm, ours.feed_forward_residual.norm, order)


def _copy_attention(theirs: Any, ours: Any, order: Tensor) -> None:
    _copy_in(theirs.q_proj, ours.query, order)
    _copy_in(theirs.k_proj, ours.key, order)
    _copy_in(theirs.v_proj, ours.value, order)
    _copy_out(theirs.out_proj, ours.output, order)


def _copy_in(theirs: nn.Linear, ours: nn.Linear, order: Tensor) -> None:
    theirs.weight.copy_(ours.weight[:, order])
    theirs.bias.copy_(ours.bias)


def _copy_out(theirs: Any, ours: Any, order: Tensor) -> None:
    theirs.weight.copy_(ours.weight[order])
    theirs.bias.copy_(ours.bias[order])

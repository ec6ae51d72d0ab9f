"""Transformers of Hugging Face as a peer: the same weights, decoded by generate()."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from bench.peers import Rows, check_decoder
from seqserve_model.batches import padded
from seqserve_model.config import Norm, NormPosition, PositionScheme, TransformerConfig
from seqserve_model.layers import DecoderLayer, EncoderLayer
from seqserve_model.search import batches_by_length
from seqserve_model.transformer import Transformer
from seqserve_server.front.cores import available_cores


class GeneratePeer:
    """Greedy decoding by ``generate`` of a model of transformers, in sorted batches."""

    def __init__(
        self,
        theirs: Any,
        options: GenerationConfig,
        rows: int,
        layout: tuple[int, int] | None = None,
    ) -> None:
        """Takes the model.

        Args:
            theirs: Of transformers, in evaluation mode.
            options: How to decode.
            rows: Sources of a batch.
            layout: Workers, each with a batch of its own, and threads of each; one worker with
                all cores where not given.
        """
        workers, threads = layout or (1, available_cores())
        self.name = f"transformers fp32 {workers}x{threads}"
        self._rows = rows
        self._pad: int = options.pad_token_id
        self._model = theirs
        self._options = options
        # Torch lets go of the interpreter in its products, which are most of the time. How many
        # threads a product takes is a setting of the thread that asks for it.
        self._pool = ThreadPoolExecutor(
            workers, initializer=torch.set_num_threads, initargs=(threads,)
        )

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Lets each worker take the next batch when it is done with its last."""
        batches = list(batches_by_length(sources, self._rows))
        decoded = self._pool.map(lambda batch: self._decode([sources[i] for i in batch]), batches)
        found: Rows = [[] for _ in sources]
        for batch, rows in zip(batches, decoded, strict=True):
            for index, row in zip(batch, rows, strict=True):
                found[index] = row
        return found

    @torch.inference_mode()
    def _decode(self, batch: Rows) -> Rows:
        source, lengths = padded(batch, self._pad)
        mask = (torch.arange(source.size(1)) < lengths[:, None]).long()  # [B, S]
        targets = self._model.generate(source, self._options, attention_mask=mask)
        return targets[:, 1:].tolist()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the workers."""
        self._pool.shutdown()


class HuggingFacePeer(GeneratePeer):
    """The same, by transformers' Marian with our weights."""

    def __init__(
        self, model: Transformer, rows: int, length: int, layout: tuple[int, int] | None = None
    ) -> None:
        """Copies the weights of a model of Marian's kind; every target gets ``length`` tokens."""
        super().__init__(marian_of(model), forced(model.config, length), rows, layout)


def forced(config: TransformerConfig, length: int) -> GenerationConfig:
    """Requests greedy targets of a fixed length; only the end token is suppressed."""
    return GenerationConfig(
        pad_token_id=config.pad_id,
        eos_token_id=config.eos_id,
        decoder_start_token_id=config.bos_id,
        min_new_tokens=length,
        max_new_tokens=length,
        num_beams=1,
        do_sample=False,
    )


@torch.no_grad()
def marian_of(ours: Transformer) -> Any:
    """Makes a ``MarianMTModel`` that computes what our model computes.

    Raises:
        ValueError: The model is of another kind.
    """
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
        _copy_norm(block.encoder_attn_layer_norm, decoder_layer.cross_residual.norm, order)
    return theirs


def save(model: Transformer, folder: Path) -> None:
    """Writes a checkpoint that other programs of Hugging Face read."""
    marian_of(model).save_pretrained(folder)


def _shape(config: TransformerConfig) -> MarianConfig:
    kind = (config.norm_position, config.norm, config.positions)
    shared = (config.shared_embeddings, config.tied_output, config.scaled_embeddings)
    if kind != (NormPosition.POST, Norm.LAYER, PositionScheme.SINUSOIDAL) or not all(shared):
        raise ValueError(f"not of Marian's kind: {config}")
    return MarianConfig(
        vocab_size=config.vocabulary_size,
        d_model=config.width,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.feed_forward_width,
        decoder_ffn_dim=config.feed_forward_width,
        activation_function=config.activation.value,
        scale_embedding=True,
        max_position_embeddings=max(config.max_source_length, config.max_target_length + 1),
        pad_token_id=config.pad_id,
        eos_token_id=config.eos_id,
        decoder_start_token_id=config.bos_id,
        forced_eos_token_id=None,  # else the last token would always be the end token
    )


def _copy_layer(theirs: Any, ours: EncoderLayer | DecoderLayer, order: Tensor) -> None:
    _copy_attention(theirs.self_attn, ours.self_attention, order)
    _copy_norm(theirs.self_attn_layer_norm, ours.self_residual.norm, order)
    _copy_in(theirs.fc1, ours.feed_forward.up, order)
    _copy_out(theirs.fc2, ours.feed_forward.down, order)
    _copy_norm(theirs.final_layer_norm, ours.feed_forward_residual.norm, order)


def _copy_attention(theirs: Any, ours: Any, order: Tensor) -> None:
    _copy_in(theirs.q_proj, ours.query, order)
    _copy_in(theirs.k_proj, ours.key, order)
    _copy_in(theirs.v_proj, ours.value, order)
    _copy_out(theirs.out_proj, ours.output, order)


def _copy_in(theirs: nn.Linear, ours: nn.Linear, order: Tensor) -> None:
    """Copies a projection that reads the residual stream."""
    theirs.weight.copy_(ours.weight[:, order])
    theirs.bias.copy_(ours.bias)


def _copy_out(theirs: nn.Linear, ours: nn.Linear, order: Tensor) -> None:
    """Copies a projection that writes to the residual stream."""
    theirs.weight.copy_(ours.weight[order])
    theirs.bias.copy_(ours.bias[order])


def _copy_norm(theirs: Any, ours: Any, order: Tensor) -> None:
    theirs.weight.copy_(ours.weight[order])
    theirs.bias.copy_(ours.bias[order])

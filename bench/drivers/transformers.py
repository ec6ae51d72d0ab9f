"""torch as a driver: our own model, and models of transformers by their ``generate``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSeq2SeqLM, GenerationConfig

from bench.drivers import Driver, Rows
from bench.drivers.ctranslate2 import check_decoder
from seqserve_import.families.bart import weight_names
from seqserve_import.loading import their_name
from seqserve_model.batches import padded
from seqserve_model.config import Activation, Norm, NormPosition, PositionScheme, TransformerConfig
from seqserve_model.decoding import batches_by_length, greedy_in_batches
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
    kind = _kind(config)
    if not kind:
        raise ValueError(f"transformers has no model of this kind: {config}")
    sizes = _t5(config) if kind == "t5" else _sizes(config)
    with torch.device(device):
        model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(kind, **sizes))
        return model.eval().to(dtype)


_KINDS = {
    (NormPosition.POST, PositionScheme.SINUSOIDAL, False): "marian",
    (NormPosition.POST, PositionScheme.LEARNED, True): "bart",
    (NormPosition.PRE, PositionScheme.SINUSOIDAL, False): "m2m_100",
}
"""By the place of norms, by positions, and by whether embeddings are normalised."""


def _kind(config: TransformerConfig) -> str:
    if config.positions is PositionScheme.T5:
        return "t5"
    kind = config.norm_position, config.positions, config.embedding_norm
    return _KINDS.get(kind, "") if config.norm is Norm.LAYER and config.tied_output else ""


@torch.no_grad()
def marian_of(ours: Transformer) -> Any:
    """Makes a ``MarianMTModel`` that computes what our model computes."""
    config = ours.config
    check_decoder(config, "transformers")
    if _kind(config) != "marian" or not (config.shared_embeddings and config.scaled_embeddings):
        raise ValueError(f"not of Marian's kind: {config}")
    theirs = random_model(config, "cpu", torch.float32)
    # Marian keeps all sines before all cosines where we keep them in turn.
    order = torch.cat((torch.arange(0, config.width, 2), torch.arange(1, config.width, 2)))
    names = weight_names("model.") | {"source_embedding.weight": "model.shared.weight"}
    state = theirs.state_dict()
    for name, weight in ours.named_parameters():
        is_written = re.search(r"\.(output|down|norm)\.", name) is not None
        values: Tensor = weight[order] if is_written else weight
        if not is_written and weight.dim() > 1:
            values = weight[:, order]
        state[their_name(name, names, first_layer=0)].copy_(values)
    return theirs


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


def _t5(config: TransformerConfig) -> dict[str, Any]:
    is_gated = config.activation is Activation.GEGLU_TANH
    return {
        "vocab_size": config.vocabulary_size,
        "d_model": config.width,
        "d_kv": config.head_size,
        "d_ff": config.feed_forward_width,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.decoder_layers,
        "num_heads": config.heads,
        "feed_forward_proj": "gated-gelu" if is_gated else "relu",
        "tie_word_embeddings": config.tied_output,
        "pad_token_id": config.pad_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
    }

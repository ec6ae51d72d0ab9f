"""Checkpoints of Hugging Face in the sizes that people have, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from bench.marian import numbered_vocabulary
from bench.peers import CTranslate2Converter
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.importing import load
from seqserve_model.vocabulary import CONTROL_TOKENS
from seqserve_server.contract.tokenizer import EOS

_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
"""Those of our control tokens."""


def _t5_small() -> Any:
    """60 million weights; the defaults of transformers are its shape."""
    return T5ForConditionalGeneration(T5Config(vocab_size=32_128, **_IDS))


def _nllb_600m() -> Any:
    """615 million weights, 262 million of them the one table of 256,206 words."""
    layers = {f"{stack}_layers": 12 for stack in ("encoder", "decoder")}
    heads = {f"{stack}_attention_heads": 16 for stack in ("encoder", "decoder")}
    inner = {f"{stack}_ffn_dim": 4096 for stack in ("encoder", "decoder")}
    config = M2M100Config(vocab_size=256_206, d_model=1024, **layers, **heads, **inner, **_IDS)
    return M2M100ForConditionalGeneration(config)


SHAPES: dict[str, Callable[[], Any]] = {"T5-small": _t5_small, "NLLB-600M": _nllb_600m}


@torch.no_grad()
def write(shape: str, folder: Path) -> None:
    """Writes a checkpoint whose greedy targets vary with the source and seldom repeat a word."""
    torch.manual_seed(7)
    model = SHAPES[shape]().eval()
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "embed_positions" not in name:
            weight.normal_(0.0, weight.size(-1) ** -0.5)
    decoder = model.get_decoder()
    last = getattr(decoder, "final_layer_norm", None) or decoder.layer_norm
    # With a tied output and a last norm of ones, a token is most like itself and repeats for ever.
    last.weight.normal_()
    if hasattr(decoder, "final_layer_norm"):
        last.weight.mul_(model.config.d_model**0.5)  # T5 divides by as much
    # Short vectors have small products with everything: no control token is ever the likeliest.
    model.get_output_embeddings().weight[: len(CONTROL_TOKENS)] *= 0.1
    model.save_pretrained(folder)
    tokenizer = numbered_vocabulary(model.config.vocab_size)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, model.config.eos_token_id)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def convert(checkpoint: Path, folder: Path) -> None:
    """Writes the same weights for CTranslate2."""
    CTranslate2Converter(load(Checkpoint(checkpoint)).model).convert(str(folder))

"""Greedy search as naively as it can be written: one sentence, no batch, no cache, in torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seqserve_model.transformer import Transformer
from seqserve_server.engine.request import DecodingOptions, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a source ought to decode to."""

    token_ids: list[int]
    score: float
    stop_reason: StopReason
    margin: float
    """How far the second-best word lay behind, where it was nearest; below rounding, a tie."""


@torch.inference_mode()
def decode(model: Transformer, source: list[int], options: DecodingOptions) -> Reference:
    """Reads the whole target again for every word."""
    config, score, margin = model.config, 0.0, float("inf")
    words = [config.bos_id]
    while True:
        logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([words]))
        scores = logits[0, -1].double()
        if len(words) - 1 < options.min_decoding_length:
            scores[config.eos_id] = -torch.inf
        best, second = scores.topk(2).values.tolist()
        margin = min(margin, best - second)
        score += float(scores.log_softmax(-1).max())
        word = int(scores.argmax())
        if word == config.eos_id:
            reason = StopReason.EOS
            break
        words.append(word)
        if len(words) - 1 == options.max_decoding_length:
            reason = StopReason.LENGTH
            break
    return Reference(token_ids=words[1:], score=score, stop_reason=reason, margin=margin)

"""Random weights that make a model worth decoding."""

from __future__ import annotations

import torch

from seqserve_model.transformer import Transformer


@torch.no_grad()
def randomise(model: Transformer, seed: int = 7) -> Transformer:
    """Draws weights with which targets vary, do not repeat one word, and end now and then."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        # Also biases and norms, which begin at zero and one: none can go missing unnoticed.
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    # With a tied output and norms of one, a word is most like itself and is chosen for ever.
    last = model.decoder_layers[-1].feed_forward_residual.norm
    norm = last if not list(model.decoder_norm.parameters()) else model.decoder_norm
    norm.weight.copy_(torch.randn(norm.weight.shape, generator=generator))
    model.target_embedding.weight[model.config.eos_id] *= 2.5
    return model.eval()

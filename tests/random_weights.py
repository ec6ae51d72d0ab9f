"""Random weights whose greedy decoding varies and ends."""

import torch

from seqserve_model.config import TransformerConfig
from seqserve_model.transformer import Transformer


@torch.no_grad()
def random_model(config: TransformerConfig, seed: int = 18) -> Transformer:
    """Makes a model whose targets vary, do not repeat one token, and end now and then."""
    torch.manual_seed(7)
    model = Transformer(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        # Also biases and norms, which start at zero and one, so that a missing one is noticed.
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    # With a tied output and a last norm of ones, each token predicts itself forever.
    last = model.decoder_layers[-1].feed_forward_residual.norm
    norm = model.decoder_norm if list(model.decoder_norm.parameters()) else last
    norm.weight.copy_(torch.randn(config.width, generator=generator))
    model.target_embedding.weight[config.eos_id] *= 2.5
    return model.eval()

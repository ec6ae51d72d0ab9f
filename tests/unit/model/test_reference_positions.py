"""Position schemes against those of transformers, which takes seconds to import."""

import pytest
import torch
from tests.rounding import assert_close, rounding
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from seqserve_model.attention import attention_weights, causal_mask
from seqserve_model.positions import AlibiPositions, RotaryPositions, T5Positions

B, H, D, W = 2, 4, 6, 24
LENGTH = 16

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (8, 20), (4, 3), (10, 64), (32, 20)])
def test_t5_buckets_match_transformers(buckets: int, reach: int, causal: bool) -> None:
    distance = torch.arange(-300, 301)
    ours = T5Positions(H, buckets, reach, causal=causal).bucket(distance)
    theirs = T5Attention._relative_position_bucket(distance, not causal, buckets, reach)
    assert torch.equal(ours, theirs)
    assert 0 <= ours.min() <= ours.max() < buckets


@pytest.mark.parametrize("start", [0, 3])
def test_rotary_matches_llama(start: int) -> None:
    query, key = torch.randn(B, H, 5, D), torch.randn(B, H, 5, D)
    config = LlamaConfig(hidden_size=H * D, num_attention_heads=H, max_position_embeddings=LENGTH)
    cosine, sine = LlamaRotaryEmbedding(config)(query, start + torch.arange(5)[None])
    theirs = apply_rotary_pos_emb(query, key, cosine, sine)
    positions = RotaryPositions(LENGTH, D, config.rope_parameters["rope_theta"])
    for ours, expected in zip((query, key), theirs, strict=True):
        # Theirs compute angles, which grow with the position, in float32.
        bound = rounding(1, (start + 5) * float(ours.abs().max()))
        assert_close(positions.rotate(ours, start), expected, bound)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12])
def test_alibi_matches_bloom(heads: int) -> None:
    query = torch.randn(1, heads, 7, D)
    # Bloom adds slope times key position: for each query a constant more, which softmax ignores.
    theirs = build_alibi_tensor(torch.ones(1, 7, dtype=torch.long), heads, torch.float32)
    mask = causal_mask(7, 7)
    bias = AlibiPositions(heads).bias(0, query, 0, 7)
    assert_close(
        attention_weights(query, query, mask, bias),
        attention_weights(query, query, mask, theirs),
        rounding(1, 7.0),  # theirs compute slopes in float32 where H is no power of two
    )

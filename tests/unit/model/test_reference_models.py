from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.rounding import assert_close, rounding
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel, T5Config, T5ForConditionalGeneration

from seqserve_model.config import Activation, TransformerConfig
from seqserve_model.layers import DecoderLayer
from seqserve_model.transformer import Transformer

Shake = Callable[[nn.Module], None]

V, W, H, F, L = 40, 16, 4, 24, 2
LENGTHS = torch.tensor([7, 3, 5])

pytestmark = pytest.mark.usefixtures("double")


def logits_of(theirs: Any, source: Tensor, target: Tensor) -> Tensor:
    mask = (torch.arange(source.size(1)) < LENGTHS[:, None]).long()
    outputs = theirs(
        input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False
    )
    return outputs.logits  # type: ignore[no-any-return]


def examples() -> tuple[Tensor, Tensor]:
    return torch.randint(4, V, (3, 7)), torch.randint(4, V, (3, 6))


def shape(**changes: object) -> TransformerConfig:
    values = {
        "vocabulary_size": V,
        "width": W,
        "heads": H,
        "feed_forward_width": F,
        "encoder_layers": L,
        "decoder_layers": L,
        "dropout": 0.0,
        "max_source_length": 16,
        "max_target_length": 15,
    }
    return TransformerConfig.from_dict(values | changes)


# T5: pre-norm by root mean square, no biases, scores that are not divided by √D


def t5_attention(ours: Any, theirs: Any) -> None:
    head_size = W // H
    ours.query.weight.copy_(theirs.q.weight * head_size**0.5)
    ours.key.weight.copy_(theirs.k.weight)
    ours.value.weight.copy_(theirs.v.weight)
    ours.output.weight.copy_(theirs.o.weight)


def t5_layer(ours: Any, theirs: Any) -> None:
    parts = list(theirs.layer)
    t5_attention(ours.self_attention, parts[0].SelfAttention)
    ours.self_residual.norm.weight.copy_(parts[0].layer_norm.weight)
    if len(parts) == 3:
        t5_attention(ours.cross_attention, parts[1].EncDecAttention)
        ours.cross_residual.norm.weight.copy_(parts[1].layer_norm.weight)
    ours.feed_forward.up.weight.copy_(parts[-1].DenseReluDense.wi.weight)
    ours.feed_forward.down.weight.copy_(parts[-1].DenseReluDense.wo.weight)
    ours.feed_forward_residual.norm.weight.copy_(parts[-1].layer_norm.weight)


@torch.no_grad()
def ours_from_t5(theirs: Any) -> Transformer:
    ours = Transformer(
        shape(
            norm="rms",
            positions="t5",
            relative_buckets=8,
            relative_bucket_distance=6,
            scaled_embeddings=False,
        )
    ).eval()
    for module in ours.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
    ours.source_embedding.weight.copy_(theirs.shared.weight)
    stacks: list[tuple[Any, ...]] = [
        (theirs.encoder, ours.encoder_layers, ours.encoder_positions, ours.encoder_norm),
        (theirs.decoder, ours.decoder_layers, ours.decoder_positions, ours.decoder_norm),
    ]
    for stack, layers, positions, norm in stacks:
        first = stack.block[0].layer[0].SelfAttention
        positions.table.copy_(first.relative_attention_bias.weight)
        norm.weight.copy_(stack.final_layer_norm.weight)
        for layer, block in zip(layers, stack.block, strict=True):
            t5_layer(layer, block)
    return ours


def test_logits_are_those_of_t5(shake: Shake) -> None:
    config = T5Config(
        vocab_size=V,
        d_model=W,
        d_kv=W // H,
        d_ff=F,
        num_layers=L,
        num_heads=H,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
        feed_forward_proj="relu",
        dropout_rate=0.0,
        tie_word_embeddings=False,  # without it T5 divides its logits by √W
        decoder_start_token_id=0,
    )
    theirs = T5ForConditionalGeneration(config).eval()
    shake(theirs)
    theirs.lm_head.weight = theirs.shared.weight
    source, target = examples()
    with torch.no_grad():
        ours = ours_from_t5(theirs)(source, LENGTHS, target)
        # Theirs round each softmax and each norm to float32.
        bound = rounding(6 * 2 * L, float(ours.abs().max()))
        assert_close(ours, logits_of(theirs, source, target), bound)


# Marian: post-norm, all columns of sines before all columns of cosines


def interleave(width: int) -> Tensor:
    """Gives the column of Marian's that becomes each of ours: sine and cosine in turn."""
    return torch.stack((torch.arange(width // 2), torch.arange(width // 2, width))).T.flatten()


@torch.no_grad()
def copy_linear(ours: nn.Linear, theirs: Any, into: Tensor, out: Tensor) -> None:
    ours.weight.copy_(theirs.weight[out][:, into])
    ours.bias.copy_(theirs.bias[out])


def marian_attention(ours: Any, theirs: Any, columns: Tensor) -> None:
    plain = torch.arange(W)
    copy_linear(ours.query, theirs.q_proj, columns, plain)
    copy_linear(ours.key, theirs.k_proj, columns, plain)
    copy_linear(ours.value, theirs.v_proj, columns, plain)
    copy_linear(ours.output, theirs.out_proj, plain, columns)


def marian_norm(ours: Any, theirs: Any, columns: Tensor) -> None:
    ours.weight.copy_(theirs.weight[columns])
    ours.bias.copy_(theirs.bias[columns])


def marian_feed_forward(ours: Any, theirs: Any, columns: Tensor) -> None:
    plain = torch.arange(F)
    copy_linear(ours.up, theirs.fc1, columns, plain)
    copy_linear(ours.down, theirs.fc2, plain, columns)


@torch.no_grad()
def ours_from_marian(theirs: Any, activation: Activation) -> Transformer:
    ours = Transformer(shape(norm_position="post", activation=activation.value)).eval()
    columns = interleave(W)
    ours.source_embedding.weight.copy_(theirs.model.shared.weight[:, columns])
    layers: list[Any] = [*ours.encoder_layers, *ours.decoder_layers]
    blocks = [*theirs.model.encoder.layers, *theirs.model.decoder.layers]
    for layer, block in zip(layers, blocks, strict=True):
        marian_attention(layer.self_attention, block.self_attn, columns)
        marian_norm(layer.self_residual.norm, block.self_attn_layer_norm, columns)
        marian_feed_forward(layer.feed_forward, block, columns)
        marian_norm(layer.feed_forward_residual.norm, block.final_layer_norm, columns)
        if isinstance(layer, DecoderLayer):
            marian_attention(layer.cross_attention, block.encoder_attn, columns)
            marian_norm(layer.cross_residual.norm, block.encoder_attn_layer_norm, columns)
    return ours


@pytest.mark.parametrize("activation", [Activation.SWISH, Activation.RELU, Activation.GELU])
def test_logits_are_those_of_marian(shake: Shake, activation: Activation) -> None:
    config = MarianConfig(
        vocab_size=V,
        d_model=W,
        encoder_layers=L,
        decoder_layers=L,
        encoder_attention_heads=H,
        decoder_attention_heads=H,
        encoder_ffn_dim=F,
        decoder_ffn_dim=F,
        activation_function=activation.value,
        scale_embedding=True,
        max_position_embeddings=16,
        dropout=0.0,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=0,
    )
    theirs = MarianMTModel(config).eval()
    tables = [
        stack.embed_positions.weight for stack in (theirs.model.encoder, theirs.model.decoder)
    ]
    kept = [table.clone() for table in tables]
    shake(theirs)
    with torch.no_grad():
        for table, before in zip(tables, kept, strict=True):
            table.copy_(before)
        source, target = examples()
        ours = ours_from_marian(theirs, activation)(source, LENGTHS, target)
        # Theirs round the sinusoids to float32.
        bound = rounding(1, float(ours.abs().max()))
        assert_close(ours, logits_of(theirs, source, target), bound)

import itertools
from typing import Any

import pytest
import torch
from tests.rounding import assert_same
from tests.unit.model.conftest import make_config, make_model, make_tokens
from torch import nn

from seqserve_model.attention import MultiHeadAttention
from seqserve_model.config import Activation, Norm, NormPosition
from seqserve_model.layers import FeedForward, make_norm
from seqserve_model.transformer import Transformer

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize(
    ("gated", "plain"),
    [
        (Activation.SWIGLU, Activation.SWISH),
        (Activation.GEGLU, Activation.GELU),
        (Activation.GEGLU_TANH, Activation.GELU_TANH),
    ],
)
def test_a_gate_has_the_activation_of_its_name(gated: Activation, plain: Activation) -> None:
    layer = FeedForward(make_config(activation=gated))
    assert layer.gate is not None
    x = torch.randn(2, 3, 16)
    activation = FeedForward(make_config(activation=plain)).activation
    assert_same(layer(x), layer.down(activation(layer.gate(x)) * layer.up(x)))


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (Activation.RELU, [0.0, 2.0]),
        (Activation.GELU, [-0.15865525393145707, 1.9544997361036416]),  # x · Φ(x)
        (Activation.GELU_TANH, [-0.1588080093917233, 1.9545976940877752]),
        (Activation.SWISH, [-0.2689414213699951, 1.7615941559557649]),  # x · sigmoid(x)
    ],
)
def test_activation_has_the_values_of_its_definition(
    activation: Activation, expected: list[float]
) -> None:
    layer = FeedForward(make_config(activation=activation))
    assert_same(layer.activation(torch.tensor([-1.0, 2.0])), torch.tensor(expected))


def test_rms_norm_keeps_the_mean() -> None:
    x = torch.randn(2, 3, 16) + 5
    rms, layer = (make_norm(make_config(norm=norm))(x) for norm in (Norm.RMS, Norm.LAYER))
    assert_same(rms, x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt())
    coarse = make_norm(make_config(norm=Norm.RMS, norm_epsilon=0.5))(x)
    assert_same(coarse, x / (x.square().mean(-1, keepdim=True) + 0.5).sqrt())
    assert_same(layer.mean(-1), torch.zeros(2, 3))


# The stacks, against torch's own with the same weights


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_layer(theirs: Any, ours: Any) -> None:
    copy_attention(theirs.self_attn, ours.self_attention)
    theirs.linear1.load_state_dict(ours.feed_forward.up.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.down.state_dict())
    norms = [ours.self_residual.norm, ours.feed_forward_residual.norm]
    if isinstance(theirs, nn.TransformerDecoderLayer):
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        norms.insert(1, ours.cross_residual.norm)
    for number, norm in enumerate(norms, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())


@torch.no_grad()
def torch_stack(model: Transformer, *, decoder: bool) -> nn.Module:
    """Builds torch's own stack with the weights of ours."""
    config = model.config
    pre = config.norm_position is NormPosition.PRE
    kind: Any = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
    layer = kind(
        config.width,
        config.heads,
        config.feed_forward_width,
        dropout=0.0,
        activation=config.activation.value,
        batch_first=True,
        norm_first=pre,
    )
    norm = nn.LayerNorm(config.width) if pre else None
    ours: Any
    stack: Any
    if decoder:
        ours, final = model.decoder_layers, model.decoder_norm
        stack = nn.TransformerDecoder(layer, len(ours), norm)
    else:
        ours, final = model.encoder_layers, model.encoder_norm
        stack = nn.TransformerEncoder(layer, len(ours), norm, enable_nested_tensor=False)
    if norm is not None:
        norm.load_state_dict(final.state_dict())
    for theirs, mine in zip(stack.layers, ours, strict=True):
        copy_layer(theirs, mine)
    return stack  # type: ignore[no-any-return]


shapes = pytest.mark.parametrize(
    ("position", "activation"),
    list(itertools.product(NormPosition, (Activation.RELU, Activation.GELU))),
)


@shapes
def test_encoder_matches_torch(position: NormPosition, activation: Activation) -> None:
    model = make_model(norm_position=position, activation=activation)
    source, lengths = make_tokens(3, 7), torch.tensor([7, 2, 5])
    x = model.encoder_positions.embed(model.source_embedding(source) * 4, 0)  # √16
    padding = torch.arange(7) >= lengths[:, None]
    expected = torch_stack(model, decoder=False)(x, src_key_padding_mask=padding)
    assert_same(model.encode(source, lengths)[~padding], expected[~padding])


@shapes
def test_decoder_matches_torch(position: NormPosition, activation: Activation) -> None:
    model = make_model(norm_position=position, activation=activation)
    target, memory, lengths = make_tokens(3, 5), torch.randn(3, 7, 16), torch.tensor([7, 2, 5])
    x = model.decoder_positions.embed(model.target_embedding(target) * 4, 0)
    hidden = torch_stack(model, decoder=True)(
        x,
        memory,
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        memory_key_padding_mask=torch.arange(7) >= lengths[:, None],
    )
    expected = hidden @ model.target_embedding.weight.T
    assert_same(model.project(model.advance(target, model.begin(memory, lengths))), expected)

import itertools
from enum import Enum

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounding import assert_same
from tests.unit.model.conftest import make_model, make_tokens
from torch import Tensor

from seqserve_model.config import (
    Activation,
    DecoderCell,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)
from seqserve_model.transformer import AttentionRecord, DecoderState, Transformer

pytestmark = pytest.mark.usefixtures("double")

Shape = dict[str, Enum]

SCHEMES: list[Shape] = [{"positions": positions} for positions in PositionScheme]
SSRU: Shape = {"decoder_cell": DecoderCell.SSRU}
SHAPES: list[Shape] = [
    {"positions": positions, "norm_position": place, "norm": norm, "activation": activation}
    for positions, place, norm, activation in itertools.product(
        PositionScheme, NormPosition, Norm, Activation
    )
] + [
    {**SSRU, "positions": positions, "norm_position": place}
    for positions, place in itertools.product(PositionScheme, NormPosition)
]


def name_of(shape: Shape) -> str:
    return "-".join(str(value.value) for value in shape.values())


every_scheme = pytest.mark.parametrize("shape", SCHEMES, ids=name_of)
every_scheme_and_cell = pytest.mark.parametrize(
    "shape", [*SCHEMES, SSRU, {**SSRU, "positions": PositionScheme.RELATIVE}], ids=name_of
)


def begin(model: Transformer, source: Tensor, lengths: Tensor) -> DecoderState:
    return model.begin(model.encode(source, lengths), lengths)


# Cached decoding


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
@torch.no_grad()
def test_cached_steps_equal_one_pass(shape: Shape) -> None:
    model = make_model(**shape)
    source, lengths, target = make_tokens(3, 6), torch.tensor([6, 2, 4]), make_tokens(3, 7)
    expected = model(source, lengths, target)
    for blocks in ([1] * 7, [3, 1, 3]):
        state = begin(model, source, lengths)
        features = [model.advance(block, state) for block in torch.split(target, blocks, dim=1)]
        assert state.length == 7
        logits = model.project(torch.cat(features, dim=1))
        assert_same(logits, expected)


@torch.no_grad()
def test_cached_steps_equal_one_pass_where_heads_are_wider_and_embeddings_normed() -> None:
    model = make_model(
        attention_width=24, projection_bias=False, embedding_norm=True, logits_bias=True
    )
    source, lengths, target = make_tokens(3, 6), torch.tensor([6, 2, 4]), make_tokens(3, 7)
    state = begin(model, source, lengths)
    features = [model.advance(token, state) for token in target.split(1, dim=1)]
    assert state.memory[0][0].shape == (3, 4, 6, 6)
    assert_same(model.project(torch.cat(features, dim=1)), model(source, lengths, target))


@torch.no_grad()
def test_biases_of_logits_are_added() -> None:
    model = make_model(logits_bias=True)
    source, lengths, target = make_tokens(3, 6), torch.tensor([6, 2, 4]), make_tokens(3, 7)
    biased = model(source, lengths, target)
    assert model.logits_bias is not None
    bias = model.logits_bias.clone()
    model.logits_bias.zero_()
    assert_same(biased, model(source, lengths, target) + bias)


@pytest.mark.parametrize("cell", DecoderCell)
@torch.no_grad()
def test_a_start_from_zeros_does_not_read_the_begin_token(cell: DecoderCell) -> None:
    model = make_model(zero_start=True, decoder_cell=cell, tied_output=False)
    source, lengths = make_tokens(3, 6), torch.tensor([6, 2, 4])
    target = torch.cat((torch.ones(3, 1, dtype=torch.int64), make_tokens(3, 4)), dim=1)
    before = model(source, lengths, target)
    model.target_embedding.weight[1] += 1.0
    assert_same(model(source, lengths, target), before)
    model.target_embedding.weight[1] = 0.0
    other = make_model(zero_start=False, decoder_cell=cell, tied_output=False)
    other.load_state_dict(model.state_dict())
    assert_same(other(source, lengths, target), before)


@torch.no_grad()
def test_normed_embeddings_have_no_size() -> None:
    model = make_model(
        embedding_norm=True, positions=PositionScheme.ROTARY, norm_epsilon=1e-15, tied_output=False
    )
    source, lengths, target = make_tokens(3, 6), torch.tensor([6, 2, 4]), make_tokens(3, 7)
    before = model(source, lengths, target)
    model.source_embedding.weight *= 3.0
    assert_same(model(source, lengths, target), before)


def test_a_model_without_biases_has_those_of_its_norms_alone() -> None:
    names = [name for name, _ in make_model(projection_bias=False).named_parameters()]
    assert all("norm" in name for name in names if name.endswith("bias"))
    assert any(name.endswith("bias") for name in names)


# Rows do not see each other, nor their padding, nor their future


@every_scheme_and_cell
@torch.no_grad()
def test_row_in_a_batch_is_the_row_alone(shape: Shape) -> None:
    model = make_model(**shape)
    source, lengths, target = make_tokens(4, 7), torch.tensor([3, 7, 1, 5]), make_tokens(4, 5)
    together = model(source, lengths, target)
    for row, length in enumerate(lengths.tolist()):
        alone = model(source[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        assert_same(together[row], alone[0])


@every_scheme_and_cell
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    padding=st.integers(0, 4),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=15)
@torch.no_grad()
def test_right_padding_never_matters(
    shape: Shape, lengths: list[int], padding: int, seed: int
) -> None:
    model = make_model(**shape)
    torch.manual_seed(seed)
    rows, kept = len(lengths), torch.tensor(lengths)
    source, target = make_tokens(rows, 5), make_tokens(rows, 4)
    real = torch.arange(5) < kept[:, None]
    longer = torch.cat((torch.where(real, source, 0), make_tokens(rows, padding)), dim=1)
    before, after = (model(tokens, kept, target) for tokens in (source, longer))
    assert_same(before, after)


@every_scheme_and_cell
@given(now=st.integers(1, 5), later=st.integers(1, 4), seed=st.integers(0, 999))
@settings(deadline=None, max_examples=15)
@torch.no_grad()
def test_future_tokens_never_influence(shape: Shape, now: int, later: int, seed: int) -> None:
    model = make_model(**shape)
    torch.manual_seed(seed)
    source, lengths, target = make_tokens(2, 5), torch.tensor([5, 3]), make_tokens(2, now + later)
    changed = torch.cat((target[:, :now], make_tokens(2, later)), dim=1)
    before, after = (model(source, lengths, tokens)[:, :now] for tokens in (target, changed))
    assert_same(before, after)


@every_scheme_and_cell
def test_empty_source_is_finite_and_trains(shape: Shape) -> None:
    model = make_model(**shape)
    logits = model(make_tokens(2, 5), torch.tensor([0, 5]), make_tokens(2, 4))
    logits.square().mean().backward()
    assert logits.isfinite().all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@every_scheme_and_cell
@torch.no_grad()
def test_order_of_tokens_matters(shape: Shape) -> None:
    model = make_model(**shape)
    tokens, end, begin = make_tokens(1, 5), torch.tensor([[2]]), torch.tensor([[1]])
    # ALiBi falls alike to both sides: without the end token a source equals its mirror image.
    straight, turned = (torch.cat((part, end), dim=1) for part in (tokens, tokens.flip(1)))
    logits = [model(source, torch.tensor([6]), begin) for source in (straight, turned)]
    assert (logits[0] - logits[1]).abs().max() > 1e-3


# What was attended to


@every_scheme
@pytest.mark.parametrize("norm_position", NormPosition)
@torch.no_grad()
def test_record_holds_the_weights_of_the_same_pass(
    shape: Shape, norm_position: NormPosition
) -> None:
    model = make_model(**shape, norm_position=norm_position, decoder_layers=3)
    source, lengths, target = make_tokens(3, 6), torch.tensor([6, 2, 4]), make_tokens(3, 5)
    record = AttentionRecord()
    memory = model.encode(source, lengths, record)
    features = model.advance(target, model.begin(memory, lengths), record)
    assert_same(memory, model.encode(source, lengths))
    fused = model(source, lengths, target)
    assert_same(model.project(features), fused)
    for kept, layers, queries, keys in (
        (record.encoder, 2, 6, 6),
        (record.decoder, 3, 5, 5),
        (record.cross, 3, 5, 6),
    ):
        weights = torch.stack(kept)
        assert weights.shape == (layers, 3, 4, queries, keys)
        assert_same(weights.sum(-1), torch.ones(weights.shape[:-1]))
    padding = torch.arange(6) >= lengths[:, None]
    for weights in (*record.encoder, *record.cross):
        assert weights.transpose(1, 3)[padding].abs().max() == 0
    for weights in record.decoder:
        assert weights.triu(1).abs().max() == 0


@every_scheme
@torch.no_grad()
def test_record_of_cached_steps_is_the_last_row_of_the_pass(shape: Shape) -> None:
    model = make_model(**shape)
    source, lengths, target = make_tokens(2, 5), torch.tensor([5, 3]), make_tokens(2, 4)
    whole, step = AttentionRecord(), AttentionRecord()
    model.advance(target, begin(model, source, lengths), whole)
    state = begin(model, source, lengths)
    model.advance(target[:, :3], state)
    model.advance(target[:, 3:], state, step)
    for kept, expected in ((step.decoder, whole.decoder), (step.cross, whole.cross)):
        for ours, theirs in zip(kept, expected, strict=True):
            assert_same(ours, theirs[:, :, -1:])


@torch.no_grad()
def test_record_of_a_recurrent_decoder_has_the_weights_of_its_memory() -> None:
    model = make_model(**SSRU)
    source, lengths, target = make_tokens(3, 6), torch.tensor([6, 2, 4]), make_tokens(3, 5)
    record = AttentionRecord()
    features = model.advance(target, begin(model, source, lengths), record)
    assert_same(model.project(features), model(source, lengths, target))
    assert record.decoder == []
    assert [weights.shape for weights in record.cross] == [(3, 4, 5, 6)] * 2


# Dropout and what is saved


def test_dropout_acts_in_training_only() -> None:
    model = make_model(dropout=0.3, attention_dropout=0.3)
    inputs = make_tokens(2, 5), torch.tensor([5, 3]), make_tokens(2, 4)
    assert torch.equal(model(*inputs), model(*inputs))
    model.train()
    assert not torch.equal(model(*inputs), model(*inputs))


@every_scheme
def test_attention_weights_are_dropped_in_every_scheme(shape: Shape) -> None:
    model = make_model(**shape, attention_dropout=0.5).train()
    source, lengths = make_tokens(2, 5), torch.tensor([5, 3])
    assert not torch.equal(model.encode(source, lengths), model.encode(source, lengths))


@every_scheme_and_cell
@torch.no_grad()
def test_weights_alone_restore_a_model(shape: Shape) -> None:
    model = make_model(**shape)
    copy = Transformer(TransformerConfig.from_dict(model.config.to_dict())).eval()
    copy.load_state_dict({name: weight.clone() for name, weight in model.state_dict().items()})
    inputs = make_tokens(2, 5), torch.tensor([5, 3]), make_tokens(2, 4)
    assert torch.equal(copy(*inputs), model(*inputs))
    assert set(model.state_dict()) == set(dict(model.named_parameters(remove_duplicate=False)))

from typing import Any, cast

import pytest
import torch
from tests.unit.model.conftest import make_model
from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_model.config import DecoderCell, PositionScheme
from seqserve_model.decoding import greedy
from seqserve_model.positions import PositionError
from seqserve_model.transformer import Transformer

LIMIT = 8

# Two tokens that nearly tie would be chosen by rounding, which is another on another CPU.
pytestmark = pytest.mark.usefixtures("double")


@torch.no_grad()
def without_cache(model: Transformer, source: Tensor) -> list[int]:
    """Decodes one source, reading the whole target again at every step."""
    tokens = [model.config.bos_id]
    while len(tokens) <= LIMIT:
        logits = model(source[None], torch.tensor([len(source)]), torch.tensor([tokens]))
        token = int(logits[0, -1].argmax())
        if token == model.config.eos_id:
            break
        tokens.append(token)
    return tokens[1:]


@torch.no_grad()
def restless(**changes: object) -> Transformer:
    """Makes a model whose tokens vary and whose targets end now and then."""
    model = make_model(vocabulary_size=5, tied_output=False, **changes)
    tokens = torch.randint(0, 5, (200, 7))
    features = model.features(tokens, torch.full((200,), 7), tokens)
    # The mean of all features would choose the same token everywhere: subtract it.
    common = F.normalize(features.mean((0, 1)), dim=0)
    weight = model.output_projection.weight
    weight -= (weight @ common)[:, None] * common
    return model


@pytest.mark.parametrize(
    "shape",
    [
        *({"positions": scheme} for scheme in PositionScheme),
        {"decoder_cell": DecoderCell.SSRU, "zero_start": True},
    ],
    ids=str,
)
def test_batch_with_caches_equals_each_row_without(shape: dict[str, Any]) -> None:
    model = restless(**shape)
    lengths = torch.randint(1, 8, (24,))
    source = torch.randint(0, 5, (24, 7))
    expected = [without_cache(model, row[:n]) for row, n in zip(source, lengths, strict=True)]
    assert greedy(model, source, lengths, LIMIT) == expected
    ends = {len(row) for row in expected}
    assert LIMIT in ends, "no row is cut off at the limit"
    assert len(ends) > 1, "no row ends by itself"


@torch.no_grad()
def always(token: int) -> Transformer:
    """Makes a model that chooses one token at every step."""
    model = make_model(tied_output=False)
    norm = cast(nn.LayerNorm, model.decoder_norm)
    norm.weight.zero_()
    norm.bias.fill_(1.0)
    model.output_projection.weight.zero_()
    model.output_projection.weight[token] = 1.0
    return model


def test_limit_counts_tokens_without_the_end() -> None:
    model = always(5)
    assert greedy(model, torch.tensor([[4], [6]]), torch.tensor([1, 1]), 3) == [[5] * 3] * 2


def test_rows_that_end_at_once_are_empty() -> None:
    model = always(2)
    steps: list[nn.Module] = []
    model.output_projection.register_forward_hook(lambda module, *_: steps.append(module))
    assert greedy(model, torch.tensor([[4], [6]]), torch.tensor([1, 1]), LIMIT) == [[], []]
    assert len(steps) == 1


def test_refuses_to_decode_past_the_positions() -> None:
    model = always(5)
    with pytest.raises(PositionError, match=r"raise model\.max_source_length or model\.max_target"):
        greedy(model, torch.tensor([[4]]), torch.tensor([1]), 20)

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seqserve_model.config import PositionScheme
from seqserve_model.search import greedy
from seqserve_model.transformer import Transformer

MakeModel = Callable[..., Transformer]

LIMIT = 8


@torch.no_grad()
def without_cache(model: Transformer, source: Tensor) -> list[int]:
    """Decodes one source, reading the whole target again at every step."""
    words = [model.config.bos_id]
    while len(words) <= LIMIT:
        logits = model(source[None], torch.tensor([len(source)]), torch.tensor([words]))
        word = int(logits[0, -1].argmax())
        if word == model.config.eos_id:
            break
        words.append(word)
    return words[1:]


def restless(make_model: MakeModel, **changes: object) -> Transformer:
    """Makes a model whose words vary and whose targets end now and then."""
    model = make_model(vocabulary_size=7, tied_output=False, **changes)
    with torch.no_grad():
        model.output_projection.weight.mul_(3)
    return model


@pytest.mark.parametrize("positions", PositionScheme, ids=lambda p: p.value)
def test_batch_with_caches_equals_each_row_without(
    make_model: MakeModel, positions: PositionScheme
) -> None:
    model = restless(make_model, positions=positions)
    lengths = torch.randint(1, 8, (24,))
    source = torch.randint(3, 7, (24, 7))
    expected = [without_cache(model, row[:n]) for row, n in zip(source, lengths, strict=True)]
    assert greedy(model, source, lengths, LIMIT) == expected
    ends = {len(row) for row in expected}
    assert LIMIT in ends, "no row is cut off at the limit"
    assert len(ends) > 1, "no row ends by itself"


def test_limit_counts_words_without_the_end(make_model: MakeModel) -> None:
    model = restless(make_model)
    with torch.no_grad():
        model.output_projection.weight[model.config.eos_id] = 0
        model.output_projection.weight[4] = 100 * torch.ones(16)
        model.output_projection.weight[5] = -100 * torch.ones(16)
    rows = greedy(model, torch.tensor([[4, 5]]), torch.tensor([2]), 3)
    assert [len(row) for row in rows] == [3]


def test_rows_that_end_at_once_are_empty(make_model: MakeModel) -> None:
    model = restless(make_model, eos_id=5)
    with torch.no_grad():
        model.decoder_norm.weight.zero_()
        model.decoder_norm.bias.fill_(1.0)
        model.output_projection.weight.zero_()
        model.output_projection.weight[5] = 1.0
    assert greedy(model, torch.tensor([[4], [3]]), torch.tensor([1, 1]), LIMIT) == [[], []]

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqserve_model.batches import Examples, epoch_order
from seqserve_model.config import TransformerConfig
from seqserve_model.data import Pair
from seqserve_model.vocabulary import learn_vocabulary

pair_lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=200)


def test_pairs_occur_as_often_as_their_weight_says() -> None:
    weights = np.array([1.0, 3.0, 0.25, 1.5] * 500)
    counts = np.zeros(len(weights))
    lengths = np.full((len(weights), 2), 3)
    for epoch in range(2):
        order = epoch_order(lengths, max_tokens=600, seed=1, epoch=epoch, weights=weights)
        rows, times = np.unique(np.concatenate(order), return_counts=True)
        found = np.zeros(len(weights))
        found[rows] = times
        # Never further than one from it, in any epoch.
        assert (np.abs(found - weights) < 1).all()
        counts += found / 2
    # The mean of a thousand draws, at five standard deviations.
    np.testing.assert_allclose(counts.reshape(-1, 4).mean(0), [1, 3, 0.25, 1.5], atol=0.08)


@given(pair_lengths, st.integers(1, 200), st.integers(0, 5))
def test_an_epoch_reads_each_pair_once_within_the_budget(
    pairs: list[tuple[int, int]], max_tokens: int, epoch: int
) -> None:
    lengths = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    order = epoch_order(lengths, max_tokens=max_tokens, seed=1, epoch=epoch)
    assert sorted(row for batch in order for row in batch) == list(range(len(pairs)))
    for batch in order:
        padded = len(batch) * int(lengths[batch].max(axis=0).sum())
        assert padded <= max_tokens or len(batch) == 1


def random_lengths(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    lengths = np.random.default_rng(0).integers(1, 40, (count, 1))
    return np.concatenate((lengths, lengths), axis=1)


def test_the_order_follows_from_seed_and_epoch() -> None:
    lengths, drawn = random_lengths(300), [(1, 0), (1, 0), (1, 1), (2, 0)]
    first, again, *others = (
        epoch_order(lengths, max_tokens=400, seed=seed, epoch=epoch) for seed, epoch in drawn
    )
    assert first == again
    assert first not in others


def test_little_is_padding() -> None:
    lengths = random_lengths(5_000)
    order = epoch_order(lengths, max_tokens=1_000, seed=1, epoch=0)
    padded = sum(len(batch) * int(lengths[batch].max(axis=0).sum()) for batch in order)
    assert padded < 1.05 * int(lengths.sum())


@pytest.fixture(scope="module")
def examples() -> Examples:
    pairs = [
        Pair("a b", "b"),
        Pair("b", "a b a"),
        Pair("a " * 8, "a"),
        Pair("a", "a " * 9),
        Pair("a " * 7, "a " * 8),
    ]
    tokenizer = learn_vocabulary([text for pair in pairs for text in pair], size=268, characters=9)
    return Examples(pairs, tokenizer, TransformerConfig(max_source_length=8, max_target_length=8))


def test_pairs_that_the_model_cannot_read_are_dropped(examples: Examples) -> None:
    assert len(examples) == 3
    assert examples.dropped == 2
    assert examples.lengths.tolist() == [[3, 2], [2, 4], [8, 9]]


def test_a_batch_shifts_its_targets_by_the_begin_token(examples: Examples) -> None:
    batch = examples.batch([0, 1])
    a, b = batch.source[0, 0].item(), batch.source[0, 1].item()
    assert batch.source.tolist() == [[a, b, 2], [b, 2, 0]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_out.tolist() == [[b, 2, 0, 0], [a, b, a, 2]]
    assert batch.target_in.tolist() == [[1, b, 2, 0], [1, a, b, a]]
    assert batch.target_tokens == 6


def test_a_batch_moves_whole(examples: Examples) -> None:
    batch = examples.batch([1])
    moved = batch.to(torch.device("meta"))
    tensors = (moved.source, moved.source_lengths, moved.target_in, moved.target_out)
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.target_tokens == batch.target_tokens

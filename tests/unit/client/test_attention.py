import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve import AttentionWeights

SIZES = st.tuples(*[st.integers(1, 4)] * 4)


def numbered(layers: int, heads: int, queries: int, keys: int) -> AttentionWeights:
    """Each weight encodes its index: 1234 is layer 1, head 2, query 3, key 4."""
    return AttentionWeights(
        layers=layers,
        heads=heads,
        queries=queries,
        keys=keys,
        weights=tuple(
            float(1000 * layer + 100 * head + 10 * query + key)
            for layer in range(layers)
            for head in range(heads)
            for query in range(queries)
            for key in range(keys)
        ),
    )


@given(SIZES, st.data())
def test_the_weights_of_a_head_and_the_mean_over_heads(
    sizes: tuple[int, int, int, int], data: st.DataObject
) -> None:
    layers, heads, queries, keys = sizes
    weights = numbered(*sizes)
    layer = data.draw(st.integers(-layers, layers - 1))
    head = data.draw(st.integers(-heads, heads - 1))

    def expected(start: float) -> list[list[float]]:
        return [[start + 10 * query + key for key in range(keys)] for query in range(queries)]

    start = 1000 * (layer % layers)
    assert weights.of(layer, head) == expected(start + 100 * (head % heads))
    assert weights.mean(layer) == expected(start + 50 * (heads - 1))
    assert weights.mean() == weights.mean(layers - 1)


@pytest.mark.parametrize(
    ("layer", "head", "missing"),
    [(2, 0, "layer 2: there are 2"), (-3, 0, "layer -3"), (0, 3, "head 3: there are 3")],
)
def test_an_index_out_of_range_is_refused(layer: int, head: int, missing: str) -> None:
    with pytest.raises(IndexError, match=f"there is no {missing}"):
        numbered(2, 3, 1, 1).of(layer, head)

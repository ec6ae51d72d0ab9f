from __future__ import annotations

import numpy as np
import pytest
from tests.unit.plot.pictures import heat_maps

from seqserve_plot.masks import draw


def test_both_is_what_padding_and_causal_allow() -> None:
    padding, causal, both, cross, last = heat_maps(draw(5, 2))
    np.testing.assert_array_equal(both, padding * causal)
    np.testing.assert_array_equal(causal, np.tri(5))
    assert padding.sum(axis=1).tolist() == [3] * 5
    assert cross.shape == (7, 5)
    np.testing.assert_array_equal(last, causal[-2:])


@pytest.mark.parametrize(("length", "padding"), [(2, 0), (4, 4)])
def test_rows_without_padding_and_of_padding_alone(length: int, padding: int) -> None:
    assert heat_maps(draw(length, padding))[0].sum() == length * (length - padding)

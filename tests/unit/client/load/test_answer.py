from hypothesis import given
from hypothesis import strategies as st

from seqserve.load import percentile


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]


def test_percentile_of_one() -> None:
    assert percentile([7.0], 0.0) == percentile([7.0], 0.99) == 7.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_no_less_than_its_share_is_at_or_below_a_percentile(
    values: list[float], share: float
) -> None:
    bound = percentile(values, share)
    assert sum(value <= bound for value in values) >= share * len(values) * (1 - 1e-9)
    assert sum(value < bound for value in values) < max(1.0, share * len(values))

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.errors import OptionError
from seqserve_server.front.models.repository import choose_version, traffic_shares
from seqserve_server.front.models.rollout import parse_traffic

WEIGHTS = st.dictionaries(st.integers(1, 9), st.integers(0, 100))
READY = st.sets(st.integers(1, 9), min_size=1)


def test_weights_count_among_those_that_are_ready() -> None:
    assert traffic_shares({1: 90, 2: 10}, [1, 2, 3]) == {1: 0.9, 2: 0.1}
    assert traffic_shares({1: 90, 2: 10}, [2, 3]) == {2: 1.0}
    assert traffic_shares({1: 90}, [2, 3]) == {3: 1.0}
    assert traffic_shares({1: 90}, []) == {}


def test_calls_are_shared_as_weights_say() -> None:
    keys = [f"call-{number}" for number in range(20_000)]
    given = [choose_version({1: 90, 2: 10}, [1, 2], key) for key in keys]
    # Six deviations of a binomial: 6 * sqrt(20000 * 0.1 * 0.9).
    assert abs(given.count(2) - 2000) < 255
    # As if dice were thrown: a call tells nothing of the next.
    pairs = sum(one == other == 2 for one, other in pairwise(given))
    assert abs(pairs - 200) < 85


@given(WEIGHTS, READY, st.text())
def test_choice_is_one_that_has_a_share(weights: dict[int, int], ready: set[int], key: str) -> None:
    shares = traffic_shares(weights, ready)
    assert sum(shares.values()) == pytest.approx(1.0)
    found = choose_version(weights, ready, key)
    assert found in ready and shares[found] > 0
    assert choose_version(weights, sorted(ready), key) == found


def test_option() -> None:
    traffic = parse_traffic(["en-de:1=90,2=10", "a.b:12=1"])
    assert traffic == {"en-de": {1: 90, 2: 10}, "a.b": {12: 1}}
    assert parse_traffic([]) == {}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["en-de"], "NAME:VERSION=WEIGHT"),
        (["1=90"], "NAME:VERSION=WEIGHT"),
        ([":1=90"], "NAME:VERSION=WEIGHT"),
        (["m:1=90,"], "NAME:VERSION=WEIGHT"),
        (["m:1=90,1=10"], "NAME:VERSION=WEIGHT"),
        (["m:0=90"], "NAME:VERSION=WEIGHT"),
        (["m:1=-1"], "NAME:VERSION=WEIGHT"),
        (["m:1=½"], "NAME:VERSION=WEIGHT"),
        (["m:1=9999999"], "from 0 to 1000000"),
        (["m:1=0,2=0"], "all weights are 0"),
        (["m:1=1", "m:2=1"], "given twice"),
    ],
)
def test_option_that_makes_no_sense(texts: list[str], says: str) -> None:
    with pytest.raises(OptionError, match=f"--traffic: .*{says}"):
        parse_traffic(texts)

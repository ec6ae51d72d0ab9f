"""Which versions there are, which take calls, and which a call means."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.errors import OptionError
from seqserve_server.contract import errors
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.models.repository import Repository, choose_version, traffic_shares
from seqserve_server.front.models.rollout import parse_traffic

AVAILABLE, LOADING, READY, RESTARTING, DRAINING, FAILED = ModelState


@dataclass
class FakeEngine:
    is_up: bool = True
    is_ready: bool = True
    last_error: str = "its engine has failed"

    @property
    def status(self) -> FakeEngine:
        return self


@dataclass(eq=False)
class FakeModel:
    """A loaded model, of which only the engine is there."""

    engine: FakeEngine = field(default_factory=FakeEngine)


def entry(name: str, version: int, state: ModelState = READY, *, is_up: bool = True) -> Entry:
    is_loaded = state in (READY, RESTARTING, DRAINING)
    model = cast(ServedModel, FakeModel(FakeEngine(is_up))) if is_loaded else None
    reason = "is damaged" if state is FAILED else ""
    return Entry(name=name, version=version, state=state, reason=reason, model=model)


def repository(*entries: Entry, default: str = "") -> Repository:
    found = Repository(entries)
    found.choose_default(default)
    return found


def test_versions_are_sorted_as_numbers() -> None:
    entries = [entry("b", 1), entry("a", 10), entry("a", 9)]
    assert [found.label for found in Repository(entries).entries] == ["a/9", "a/10", "b/1"]


def test_highest_version_that_is_ready_of_the_only_model_is_meant() -> None:
    failed = [entry("m", 10, FAILED), entry("ruin", 1, FAILED)]
    found = repository(entry("m", 1), entry("m", 2), *failed)
    assert found.default == "m"
    # The default stays when others come.
    found.add(entry("other", 1))
    for name in ("m", ""):
        assert found.find(name).version == found.choose(name, 0, "").version == 2
    assert found.choose("m", 1, "").version == 1


def test_of_several_models_one_must_be_named() -> None:
    found = repository(entry("a", 1), entry("b", 1))
    with pytest.raises(errors.ModelNotFound, match="no --default-model; available: a/1, b/1"):
        found.choose("", 0, "")
    assert repository(*found.entries, default="b").find("").name == "b"


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("x", 0, "'x'.*; available: m/1, m/2"),
        ("m", 3, "'m'.*; available: m/1, m/2"),
        ("M", 0, "'M'.*; available: m/1, m/2"),
        ("m/2", 0, r"no model 'm/2' \(name 'm', and set version 2 separately\)"),
    ],
)
def test_unknown_names_what_there_is(name: str, version: int, says: str) -> None:
    with pytest.raises(errors.ModelNotFound, match=says):
        repository(entry("m", 1), entry("m", 2)).choose(name, version, "")


def test_answer_is_short_whatever_is_asked_and_there() -> None:
    found = repository(*(entry(f"model-{number}", 1) for number in range(1000)))
    with pytest.raises(errors.ModelNotFound) as caught:
        found.choose("x" * 100_000, 0, "")
    assert len(str(caught.value)) < 1000
    assert "980 more" in str(caught.value)


@pytest.mark.parametrize(
    ("state", "error", "says"),
    [
        (LOADING, errors.ModelUnavailable, "is loading"),
        (DRAINING, errors.ModelUnavailable, "is being unloaded"),
        (FAILED, errors.ModelNotLoaded, "could not be loaded: is damaged"),
        (AVAILABLE, errors.ModelNotLoaded, "is not loaded; LoadModel"),
    ],
)
def test_what_is_not_ready_says_whether_waiting_helps(
    state: ModelState, error: type[Exception], says: str
) -> None:
    found = repository(entry("m", 1), entry("m", 2, state), entry("other", 1, state))
    with pytest.raises(error, match=f"m/2 {says}"):
        found.choose("m", 2, "")
    with pytest.raises(error, match=f"other/1 {says}"):
        found.choose("other", 0, "")
    assert found.choose("m", 0, "").version == 1


def test_one_on_the_way_is_worth_waiting_for() -> None:
    found = repository(entry("a", 1), entry("m", 1, LOADING), entry("m", 2, FAILED))
    with pytest.raises(errors.ModelUnavailable, match="m/1 is loading"):
        found.choose("m", 0, "")


def test_default_must_be_sound() -> None:
    with pytest.raises(errors.StartupError, match="m/1: is damaged"):
        repository(entry("m", 1, FAILED))
    with pytest.raises(OptionError, match=r"--default-model: 'n'.* available: m"):
        repository(entry("m", 1), entry("n", 1, FAILED), default="n")


def test_removed_version_is_unknown() -> None:
    first = entry("m", 1)
    found = repository(first, entry("n", 1))
    found.remove(first)
    assert found.names() == ["n"]
    with pytest.raises(errors.ModelNotFound):
        found.find("m")


def test_traffic_is_shared_among_those_that_are_ready() -> None:
    versions = [entry("m", number) for number in (1, 2, 3)]
    found = repository(*versions)
    assert [found.share(one) for one in versions] == [0, 0, 1]
    assert found.set_traffic("", {1: 90, 2: 10}) == versions
    assert [found.share(one) for one in versions] == [0.9, 0.1, 0]
    assert found.weighted("m") == [1, 2]
    versions[0].move(DRAINING)
    assert [found.share(one) for one in versions] == [0, 1, 0]
    versions[1].move(DRAINING)
    assert [found.share(one) for one in versions] == [0, 0, 1]
    found.set_traffic("m", {})
    assert found.weighted("m") == []


def test_calls_leave_a_version_that_restarts_to_the_others() -> None:
    first, second = entry("m", 1), entry("m", 2, RESTARTING)
    found = repository(first, second)
    assert found.choose("m", 0, "") is first
    assert found.find("m") is first
    assert [found.share(one) for one in (first, second)] == [1, 0]
    found.set_traffic("m", {1: 1, 2: 999})
    assert [found.share(one) for one in (first, second)] == [1, 0]
    assert found.choose("m", 0, "") is first
    # Who names it gets it.
    assert found.choose("m", 2, "") is second


def test_where_none_is_ready_one_whose_engine_runs_serves() -> None:
    down, runs = entry("m", 2, RESTARTING, is_up=False), entry("m", 1, RESTARTING)
    found = Repository([down, runs, entry("m", 3, FAILED)])
    assert found.choose("m", 0, "") is runs
    assert [found.share(one) for one in found.entries] == [0, 0, 0]
    # Its error is that of its engine.
    assert Repository([down]).choose("m", 0, "") is down


def test_version_follows_its_engine() -> None:
    one = entry("m", 1)
    engine = cast(FakeModel, one.model).engine
    one.follow_engine()
    assert one.is_ready
    engine.is_ready = False
    one.follow_engine()
    assert (one.state, one.reason) == (RESTARTING, "its engine has failed")
    engine.last_error = "its engine has failed 2 times"
    one.follow_engine()
    assert one.reason == "its engine has failed 2 times"
    engine.is_ready = True
    one.follow_engine()
    assert (one.state, one.reason) == (READY, "")
    # One that is not in service does not follow.
    one.move(DRAINING)
    engine.is_ready = False
    one.follow_engine()
    assert one.state is DRAINING


@pytest.mark.parametrize(
    ("name", "weights", "error"),
    [
        ("x", {1: 1}, errors.ModelNotFound),
        ("m", {1: 1, 7: 1}, errors.ModelNotFound),
        ("m", {0: 1}, errors.InvalidRequest),
        ("m", {1: 0}, errors.InvalidRequest),
        ("m", {1: 1_000_001}, errors.InvalidRequest),
    ],
)
def test_wrong_traffic_changes_nothing(
    name: str, weights: dict[int, int], error: type[Exception]
) -> None:
    found = repository(entry("m", 1), entry("m", 2))
    found.set_traffic("m", {1: 1})
    with pytest.raises(error):
        found.set_traffic(name, weights)
    assert found.weighted("m") == [1]


@given(
    states=st.dictionaries(st.integers(1, 5), st.sampled_from(ModelState), min_size=1),
    weights=st.dictionaries(st.integers(1, 5), st.integers(0, 3)),
    version=st.integers(0, 6),
    key=st.text(),
)
def test_a_call_gets_a_ready_one_if_there_is_any(
    states: dict[int, ModelState], weights: dict[int, int], version: int, key: str
) -> None:
    found = Repository([entry("m", number, state) for number, state in states.items()])
    known: Any = {number: weight for number, weight in weights.items() if number in states}
    if any(known.values()):
        found.set_traffic("m", known)
    meant = [states.get(version)] if version else list(states.values())
    try:
        chosen = found.choose("m", version, key)
    except (errors.ModelNotFound, errors.ModelNotLoaded, errors.ModelUnavailable):
        assert READY not in meant and RESTARTING not in meant
    else:
        assert chosen.state is (READY if READY in meant else RESTARTING)
        assert version in (0, chosen.version)


WEIGHTS = st.dictionaries(st.integers(1, 9), st.integers(0, 100))
ANY_READY = st.sets(st.integers(1, 9), min_size=1)


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


@given(WEIGHTS, ANY_READY, st.text())
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
        *(([text], "NAME:VERSION=WEIGHT") for text in ("en-de", "1=90", ":1=90", "m:1=90,")),
        *(([text], "NAME:VERSION=WEIGHT") for text in ("m:1=90,1=10", "m:0=90", "m:1=-1", "m:1=½")),
        (["m:1=9999999"], "from 0 to 1000000"),
        (["m:1=0,2=0"], "all weights are 0"),
        (["m:1=1", "m:2=1"], "given twice"),
    ],
)
def test_option_that_makes_no_sense(texts: list[str], says: str) -> None:
    with pytest.raises(OptionError, match=f"--traffic: .*{says}"):
        parse_traffic(texts)

from typing import Any

import pytest

from seqserve_server.front.models.lifecycle import Control, Entry, ModelState, to_drain, to_load

AVAILABLE, LOADING, READY, RESTARTING, DRAINING, FAILED = ModelState


def version(number: int, state: ModelState = AVAILABLE, **others: Any) -> Entry:
    return Entry(**{"name": "m", "version": number, "state": state, "files": "files"} | others)


@pytest.mark.parametrize("state", list(ModelState))
def test_no_step_is_left_out(state: ModelState) -> None:
    steps = {
        AVAILABLE: {LOADING},
        LOADING: {READY, FAILED},
        READY: {RESTARTING, DRAINING},
        RESTARTING: {READY, RESTARTING, DRAINING},
        DRAINING: {AVAILABLE},
        FAILED: {AVAILABLE, LOADING},
    }
    for target in ModelState:
        one = version(1, state)
        if target in steps[state]:
            one.move(target, "because")
            assert (one.state, one.reason) == (target, "because")
        else:
            with pytest.raises(ValueError, match=f"m/1 is {state.value}"):
                one.move(target)
            assert one.state is state


def test_failed_version_waits_for_other_files() -> None:
    one = version(1)
    one.move(LOADING)
    one.move(FAILED, "weights.bin: sha256")
    one.mark_stable("files")
    assert (one.state, one.reason) == (FAILED, "weights.bin: sha256")
    one.mark_unstable("its files are being written")
    assert one.state is FAILED
    one.mark_stable("other files")
    assert (one.state, one.reason) == (AVAILABLE, "")


def test_files_that_change_while_they_are_loaded_get_another_chance() -> None:
    one = version(1)
    one.move(LOADING)
    one.mark_stable("other files")
    one.move(FAILED, "weights.bin: sha256")
    one.mark_stable("other files")
    assert one.state is AVAILABLE


def test_what_is_being_written_is_not_loaded_and_says_so() -> None:
    one = version(1, files=None)
    one.mark_unstable("its files are being written")
    assert one.reason and to_load([one], keep=0) == []
    one.mark_stable("files")
    assert not one.reason and to_load([one], keep=0) == [one]


def test_version_that_vanishes_while_it_loads_is_gone_only_after() -> None:
    one = version(1, LOADING)
    one.mark_missing()
    assert not one.is_removable
    one.move(READY)
    assert to_drain([one], keep=0) == [one]
    one.move(DRAINING)
    one.move(AVAILABLE)
    assert one.is_removable and to_load([one], keep=0) == []


GONE = version(2, READY, is_present=False)
UNLOADED, LOADED = Control.UNLOADED, Control.LOADED


@pytest.mark.parametrize(
    ("versions", "keep", "loads", "drains"),
    [
        # The highest are loaded first, and only so many are kept.
        ([version(1), version(3), version(2)], 0, [3, 2, 1], []),
        ([version(1), version(2), version(3)], 2, [3, 2], []),
        ([version(1), version(2, READY)], 1, [], []),
        ([version(1), version(2, LOADING)], 1, [], []),
        # One that fails or leaves makes room for an older one.
        ([version(1), version(2, FAILED)], 1, [1], []),
        ([version(1), version(2, DRAINING)], 1, [1], []),
        # Older ones give way only to newer ones that are ready.
        ([version(1, READY), version(2, READY), version(3, LOADING)], 2, [], []),
        ([version(1, READY), version(2, READY), version(3, FAILED)], 2, [], []),
        ([version(1, READY), version(2, READY), version(3, READY)], 2, [], [1]),
        ([version(1, READY), version(2, READY), version(3, READY)], 0, [], []),
        # One that restarts keeps its place and replaces none.
        ([version(1), version(2, RESTARTING)], 1, [], []),
        ([version(1, READY), version(2, RESTARTING)], 1, [], []),
        ([version(2, RESTARTING), version(3, READY)], 1, [], [2]),
        ([version(2, RESTARTING, control=UNLOADED)], 0, [], [2]),
        # What has vanished makes room at once, and stays until who comes for it has come.
        ([GONE, version(1, READY)], 0, [], [2]),
        ([GONE], 0, [], [2]),
        ([GONE, version(1)], 1, [1], [2]),
        ([GONE, version(1, LOADING)], 1, [], []),
        # What people want wins.
        ([version(3, READY, control=UNLOADED)], 0, [], [3]),
        ([version(3, control=UNLOADED), version(2)], 1, [2], []),
        ([version(1, READY, control=LOADED), version(2, READY), version(3, READY)], 1, [], [2]),
        ([version(1, control=LOADED), version(2, READY)], 1, [1], []),
    ],
)
def test_versions_to_load_and_to_drain(
    versions: list[Entry], keep: int, loads: list[int], drains: list[int]
) -> None:
    assert [one.version for one in to_load(versions, keep=keep)] == loads
    assert [one.version for one in to_drain(versions, keep=keep)] == drains

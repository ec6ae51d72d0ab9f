"""The life of a version, and which versions of a model are to be loaded and drained."""

from __future__ import annotations

import pytest

from seqserve_server.front.models.lifecycle import Control, ModelState, Version, to_drain, to_load

AVAILABLE, LOADING, READY = ModelState.AVAILABLE, ModelState.LOADING, ModelState.READY
DRAINING, FAILED = ModelState.DRAINING, ModelState.FAILED
RESTARTING = ModelState.RESTARTING


def version(
    number: int,
    state: ModelState = AVAILABLE,
    *,
    control: Control = Control.WATCH,
    is_present: bool = True,
    files: object = "files",
) -> Version:
    return Version(
        name="m", version=number, state=state, control=control, is_present=is_present, files=files
    )


def numbers(versions: list[Version]) -> list[int]:
    return [version.version for version in versions]


def test_from_the_folder_and_back() -> None:
    one = version(1)
    seen = []
    for step in (one.start_loading, one.finish_loading, one.start_draining, one.finish_draining):
        step()
        seen.append(one.state)
    assert seen == [LOADING, READY, DRAINING, AVAILABLE]
    assert not one.is_removable
    one.mark_missing()
    assert one.is_removable


@pytest.mark.parametrize("state", list(ModelState))
def test_no_step_is_left_out(state: ModelState) -> None:
    allowed = {
        "start_loading": {AVAILABLE, FAILED},
        "finish_loading": {LOADING},
        "fail": {LOADING},
        "reset": {FAILED},
        "start_restarting": {READY, RESTARTING},
        "finish_restarting": {RESTARTING},
        "start_draining": {READY, RESTARTING},
        "finish_draining": {DRAINING},
    }
    for step, origins in allowed.items():
        one = version(1, state)
        arguments = ["broken"] if step in ("fail", "start_restarting") else []
        if state in origins:
            getattr(one, step)(*arguments)
        else:
            with pytest.raises(ValueError, match=f"m/1 is {state.value}"):
                getattr(one, step)(*arguments)
            assert one.state is state


def test_failed_version_waits_for_other_files() -> None:
    one = version(1)
    one.start_loading()
    one.fail("weights.bin: sha256")
    one.mark_stable("files")
    assert (one.state, one.reason) == (FAILED, "weights.bin: sha256")
    one.mark_unstable("its files are being written")
    assert one.state is FAILED
    one.mark_stable("other files")
    assert (one.state, one.reason) == (AVAILABLE, "")


def test_files_that_change_while_they_are_loaded_get_another_chance() -> None:
    one = version(1)
    one.start_loading()
    one.mark_stable("other files")
    one.fail("weights.bin: sha256")
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
    one.finish_loading()
    assert to_drain([one], keep=0) == [one]
    one.start_draining()
    one.finish_draining()
    assert one.is_removable and to_load([one], keep=0) == []


def test_all_are_loaded_the_highest_first() -> None:
    assert numbers(to_load([version(1), version(3), version(2)], keep=0)) == [3, 2, 1]


def test_only_the_highest_are_kept() -> None:
    versions = [version(number) for number in (1, 2, 3)]
    assert numbers(to_load(versions, keep=2)) == [3, 2]
    assert numbers(to_load([version(1), version(2, READY)], keep=1)) == []
    assert numbers(to_load([version(1), version(2, LOADING)], keep=1)) == []


@pytest.mark.parametrize("state", [FAILED, DRAINING])
def test_one_that_fails_or_leaves_makes_room_for_an_older_one(state: ModelState) -> None:
    assert numbers(to_load([version(1), version(2, state)], keep=1)) == [1]


def test_older_ones_give_way_only_to_newer_ones_that_are_ready() -> None:
    older = [version(1, READY), version(2, READY)]
    assert to_drain([*older, version(3, LOADING)], keep=2) == []
    assert to_drain([*older, version(3, FAILED)], keep=2) == []
    assert numbers(to_drain([*older, version(3, READY)], keep=2)) == [1]
    assert to_drain([*older, version(3, READY)], keep=0) == []


def test_one_that_restarts_keeps_its_place_and_replaces_none() -> None:
    restarting = version(2, RESTARTING)
    assert to_load([version(1), restarting], keep=1) == []
    assert to_drain([version(1, READY), restarting], keep=1) == []
    assert numbers(to_drain([restarting, version(3, READY)], keep=1)) == [2]
    unloaded = version(2, RESTARTING, control=Control.UNLOADED)
    assert to_drain([unloaded], keep=0) == [unloaded]


def test_reason_of_one_that_restarts_is_gone_when_it_is_ready() -> None:
    one = version(1, READY)
    one.start_restarting("has failed")
    one.start_restarting("has failed 2 times")
    assert one.reason == "has failed 2 times"
    one.finish_restarting()
    assert (one.state, one.reason) == (READY, "")


def test_vanished_one_drains() -> None:
    gone = version(2, READY, is_present=False)
    assert to_drain([gone, version(1, READY)], keep=0) == [gone]
    assert to_drain([gone], keep=0) == [gone]
    # It makes room at once, and stays until who comes for it has come.
    assert numbers(to_load([gone, version(1)], keep=1)) == [1]
    assert to_drain([gone, version(1, LOADING)], keep=1) == []


def test_will_of_people_wins() -> None:
    unloaded = version(3, READY, control=Control.UNLOADED)
    assert to_drain([unloaded], keep=0) == [unloaded]
    assert numbers(to_load([version(3, control=Control.UNLOADED), version(2)], keep=1)) == [2]
    held = version(1, READY, control=Control.LOADED)
    assert numbers(to_drain([held, version(2, READY), version(3, READY)], keep=1)) == [2]
    assert numbers(to_load([version(1, control=Control.LOADED), version(2, READY)], keep=1)) == [1]


def test_version_with_a_share_is_kept() -> None:
    assert to_drain([version(1, READY), version(2, READY)], keep=1, weighted=[1]) == []
    assert numbers(to_load([version(1), version(2, READY)], keep=1, weighted=[1])) == [1]

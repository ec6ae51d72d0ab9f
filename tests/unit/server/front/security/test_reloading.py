import logging
import os
import time
from pathlib import Path

import pytest
from tests.support.logged import fields_of

from seqserve.errors import OptionError
from seqserve_server.front.security.reloading import Reloaded

# Of the times that file systems note.
TICK_S = 0.02


class Number:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = 0
        self.is_out_of_reach = False
        self.write("1")

    def write(self, text: str) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(text)
        os.replace(beside, self.path)

    def read(self) -> int:
        self.reads += 1
        try:
            # The user who runs the tests may be root, who can read everything.
            if self.is_out_of_reach or not self.path.stat().st_mode & 0o400:
                raise PermissionError
            return int(self.path.read_text())
        except (OSError, ValueError):
            raise OptionError(f"{self.path.name}: is not a number") from None


@pytest.fixture
def number(tmp_path: Path) -> Number:
    return Number(tmp_path / "number")


def reloaded(number: Number, retry_interval_s: float = 3600.0) -> Reloaded[int]:
    return Reloaded("number", {"--number": number.path}, number.read, retry_interval_s)


def test_is_read_when_it_has_changed(number: Number, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = reloaded(number)
    assert [file.value for _ in range(5)] == [1] * 5
    assert number.reads == 1
    number.write("2")
    assert [file.value for _ in range(5)] == [2] * 5
    assert (number.reads, caplog.messages) == (2, ["number read again"])


@pytest.mark.parametrize("content", ["", "two", None])
def test_what_is_broken_leaves_what_was_and_is_read_and_told_once(
    number: Number, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    file = reloaded(number)
    if content is None:
        number.path.unlink()
    else:
        number.write(content)
    assert [file.value for _ in range(5)] == [1] * 5
    assert (number.reads, caplog.messages) == (2, ["number kept"])
    assert caplog.records[0].levelno == logging.ERROR
    number.write("3")
    assert file.value == 3


def test_is_read_when_permissions_change(number: Number, caplog: pytest.LogCaptureFixture) -> None:
    file = reloaded(number, retry_interval_s=3600.0)
    number.write("2")
    number.path.chmod(0)
    assert [file.value for _ in range(5)] == [1] * 5
    time.sleep(TICK_S)
    # Changes only the permissions.
    number.path.chmod(0o644)
    assert file.value == 2
    assert caplog.messages.count("number kept") == 1


def test_an_unreadable_file_is_retried(number: Number, caplog: pytest.LogCaptureFixture) -> None:
    """As when a disk is back, or its folder becomes readable."""
    file = reloaded(number, retry_interval_s=0.0)
    number.write("2")
    number.is_out_of_reach = True
    assert [file.value for _ in range(5)] == [1] * 5
    assert caplog.messages == ["number kept"]
    number.is_out_of_reach = False
    assert file.value == 2
    # Nothing is retried from now on.
    reads = number.reads
    assert [file.value for _ in range(5)] == [2] * 5
    assert number.reads == reads


def test_a_pipe_does_not_block(number: Number, caplog: pytest.LogCaptureFixture) -> None:
    file = reloaded(number)
    number.path.unlink()
    os.mkfifo(number.path)
    assert file.value == 1
    assert number.reads == 1
    assert fields_of(caplog) == [{"reason": f"--number: {number.path} is not a regular file"}]
    with pytest.raises(OptionError, match=r"^--number: .* is not a regular file$"):
        reloaded(number)
    number.write("none")
    with pytest.raises(OptionError, match="number: is not a number"):
        reloaded(number)


def test_what_changes_while_it_is_read_is_read_once_more(number: Number) -> None:
    file = reloaded(number)
    read = number.read

    def interrupted() -> int:
        value = read()
        if number.reads == 2:
            number.write("3")
        return value

    file._read = interrupted
    number.write("2")
    # Not 2, which may be of no one time.
    assert [file.value, file.value] == [1, 3]


def test_one_of_several_files_is_enough(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text("1")
    files = {"--a": paths[0], "--b": paths[1]}
    file = Reloaded("texts", files, lambda: "".join(path.read_text() for path in paths))
    paths[1].write_text("22")
    assert file.value == "122"


def test_a_link_that_is_turned_counts_as_a_change(tmp_path: Path) -> None:
    """As Kubernetes renews what is mounted from a secret."""
    for name, text in (("old", "1"), ("new", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "number").write_text(text)
    current = tmp_path / "current"
    current.symlink_to("old")
    path = current / "number"
    file = Reloaded("number", {"--number": path}, path.read_text)
    assert file.value == "1"
    (tmp_path / "next").symlink_to("new")
    os.replace(tmp_path / "next", current)
    assert file.value == "2"


def test_the_last_reload_is_told(number: Number) -> None:
    before_s = time.time()
    file = reloaded(number)
    first = file.last
    assert first.succeeded and before_s <= first.success_s <= time.time()
    number.write("two")
    # Asking reloads.
    assert file.last == (False, first.success_s)
    number.write("3")
    last = file.last
    assert last.succeeded and last.success_s >= first.success_s
    assert file.value == 3

import os
import resource
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqserve.errors import NotWritten, OptionError
from seqserve.files import replaceable, written_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.bin"
    for old, new in ((None, b"1"), (b"1", b"2")):
        with written_whole(path) as file:
            file.write(new)
            file.flush()
            assert (path.read_bytes() if path.exists() else None) == old
        assert path.read_bytes() == new
    assert names(path.parent) == ["a.bin"]


def test_a_new_file_has_its_encoding_and_the_permissions_of_every_new_file(tmp_path: Path) -> None:
    with written_whole(tmp_path / "a.txt", "w", encoding="latin-1", newline="\r\n") as file:
        print("ä", file=file)
    assert (tmp_path / "a.txt").read_bytes() == b"\xe4\r\n"
    (tmp_path / "b.bin").write_bytes(b"b")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.bin").stat().st_mode


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_all_is_as_before(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(error), written_whole(path, "w") as file:
        file.write("half")
        raise error
    assert path.read_text() == "before" and names(tmp_path) == ["a.txt"]


def test_a_link_stays_and_permissions_too(tmp_path: Path) -> None:
    path, link = tmp_path / "a.txt", tmp_path / "link"
    path.write_text("before")
    path.chmod(0o600)
    link.symlink_to(path)
    with written_whole(link, "w") as file:
        file.write("after")
    assert link.is_symlink() and path.read_text() == "after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    pipe, link, loop = (tmp_path / name for name in ("pipe", "link", "loop"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    loop.symlink_to(loop)
    before = names(tmp_path)
    for path in (pipe, link, loop, tmp_path, Path("/dev/null")):
        with pytest.raises(OptionError, match=f"--out: {path}: is not a regular file; do so"):
            replaceable(path, instead="do so")
        with pytest.raises(OptionError, match=f"^{path}: is not a"), written_whole(path, option=""):
            pass
    assert names(tmp_path) == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    path = tmp_path / "a" / "b" / "c"
    with pytest.raises(OptionError, match=f"--out: {path}: Not a directory"), written_whole(path):
        pass


@pytest.fixture
def small_disk() -> Iterator[None]:
    """A limit on the size of files stands for a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("size", [2000, 2_000_000])
def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"before")
    full = pytest.raises(NotWritten, match=f"^--out: {path}: File too large$")
    with full, written_whole(path) as file:
        file.write(b"a" * size)
    assert path.read_bytes() == b"before" and names(tmp_path) == ["a.bin"]

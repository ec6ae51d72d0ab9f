from pathlib import Path

import pytest

from seqserve.errors import NotWritten
from seqserve_server.artifact.files import atomic_folder


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "toy" / "1"
    with atomic_folder(place) as draft:
        (draft / "file").write_text("content")
        assert not place.exists()
        assert draft.name.startswith("."), "no server takes it for a version"
    assert (place / "file").read_text() == "content"
    assert list(place.parent.iterdir()) == [place]


def test_nothing_is_left_of_one_that_failed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "toy" / "1") as draft:
        (draft / "file").write_text("content")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_told_with_the_place(tmp_path: Path) -> None:
    place = tmp_path / "toy" / "1"
    with (
        pytest.raises(NotWritten, match="toy/1: No space left on device"),
        atomic_folder(place) as draft,
    ):
        (draft / "file").write_text("content")
        Path("/dev/full").write_text("content")
    assert list(tmp_path.iterdir()) == []


def test_place_where_no_folder_can_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("a file")
    with pytest.raises(NotWritten, match=": File exists"), atomic_folder(tmp_path / "toy" / "1"):
        pass

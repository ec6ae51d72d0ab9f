import fcntl
from pathlib import Path
from typing import Any

import pytest

from seqserve.command.journal import Journal
from seqserve.documents.passage import Link, Translation


def translated(text: str) -> Translation:
    return Translation(text)


OPTIONS: dict[str, object] = {"beam_size": 5, "terms": {"a": "b"}, "model": None}


def test_the_next_run_knows_what_this_one_made(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, OPTIONS)
    first.add("a\n", translated("ä\n"))
    first.close()
    second = Journal(path, OPTIONS)
    assert (second.get("a\n"), second.get("a")) == (translated("ä\n"), None)
    second.add("b", translated("c"))
    second.close()
    third = Journal(path, OPTIONS)
    assert (third.get("a\n"), third.get("b")) == (translated("ä\n"), translated("c"))
    third.remove()
    assert not path.exists()


def test_an_alignment_is_known_too(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    links = (Link(0, 1, 2, 3), Link(2, 3, 0, 1))
    aligned = Translation("ä b", links, ("numbers differ: 7 -> 8",))
    first = Journal(path, OPTIONS)
    first.add("a", aligned)
    first.close()
    second = Journal(path, OPTIONS)
    assert second.get("a") == aligned
    second.close()


def test_other_options_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, OPTIONS)
    first.add("a", translated("b"))
    first.close()
    other = Journal(path, OPTIONS | {"beam_size": 1})
    assert other.get("a") is None
    other.close()
    # Until there is a translation with them, the file stays as it is.
    same = Journal(path, OPTIONS)
    assert same.get("a") == translated("b")
    same.close()
    other = Journal(path, OPTIONS | {"beam_size": 1})
    other.add("c", translated("d"))
    other.close()
    other = Journal(path, OPTIONS | {"beam_size": 1})
    assert (other.get("a"), other.get("c")) == (None, translated("d"))
    other.close()


def test_without_a_translation_there_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    Journal(path, OPTIONS).close()
    assert not path.exists()


def test_two_runs_cannot_write_it(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, OPTIONS)
    with pytest.raises(BlockingIOError):
        Journal(path, OPTIONS)
    first.add("a", translated("b"))
    first.close()
    second = Journal(path, OPTIONS)
    assert second.get("a") == translated("b")
    second.remove()
    assert not path.exists()


def test_a_file_that_is_deleted_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, OPTIONS)
    flock, ends = fcntl.flock, [first.remove]

    def late(*arguments: Any) -> None:
        for end in ends:
            end()
        ends.clear()
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", late)
    second = Journal(path, OPTIONS)
    second.add("a", translated("b"))
    assert path.exists()
    second.close()


@pytest.mark.parametrize("cut", [1, 2, 10, 40])
def test_a_line_that_was_cut_is_made_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, OPTIONS)
    first.add("a", translated("b"))
    first.add("c", translated("d"))
    first.close()
    path.write_bytes(path.read_bytes()[:-cut])
    second = Journal(path, OPTIONS)
    assert second.get("a") == translated("b") and second.get("c") is None
    second.add("c", translated("e"))
    second.close()
    third = Journal(path, OPTIONS)
    assert (third.get("a"), third.get("c")) == (translated("b"), translated("e"))
    third.close()


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe\n", b"{}\n[1]\n", b'{}\n["zz", "a", []]\n'])
def test_a_damaged_file_is_no_obstacle(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "out.journal"
    path.write_bytes(damage)
    journal = Journal(path, {})
    assert journal.get("a") is None
    journal.add("a", translated("b"))
    journal.close()
    again = Journal(path, {})
    assert again.get("a") == translated("b")
    again.close()

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest

from seqserve.command.run.journal import Journal
from seqserve.documents.passage import Link, Translation


def said(text: str) -> Translation:
    return Translation(text)


ASKED: dict[str, object] = {"beam_size": 5, "terms": {"a": "b"}, "model": None}


def test_the_next_run_knows_what_this_one_made(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, ASKED)
    first.add("a\n", said("ä\n"))
    first.close()
    second = Journal(path, ASKED)
    assert (second.get("a\n"), second.get("a"), len(second)) == (said("ä\n"), None, 1)
    second.add("b", said("c"))
    second.close()
    third = Journal(path, ASKED)
    assert (third.get("a\n"), third.get("b")) == (said("ä\n"), said("c"))
    third.remove()
    assert not path.exists()


def test_an_alignment_is_known_too(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    aligned = Translation("ä b", (Link(0, 1, 2, 3), Link(2, 3, 0, 1)))
    first = Journal(path, ASKED)
    first.add("a", aligned)
    first.close()
    second = Journal(path, ASKED)
    assert second.get("a") == aligned
    second.close()


def test_other_options_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, ASKED)
    first.add("a", said("b"))
    first.close()
    other = Journal(path, ASKED | {"beam_size": 1})
    assert other.get("a") is None
    other.close()
    # Until there is a translation with them, the file stays as it is.
    same = Journal(path, ASKED)
    assert same.get("a") == said("b")
    same.close()
    other = Journal(path, ASKED | {"beam_size": 1})
    other.add("c", said("d"))
    other.close()
    other = Journal(path, ASKED | {"beam_size": 1})
    assert (other.get("a"), other.get("c")) == (None, said("d"))
    other.close()


def test_without_a_translation_there_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    Journal(path, ASKED).close()
    assert not path.exists()


def test_two_runs_cannot_write_it(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, ASKED)
    with pytest.raises(BlockingIOError):
        Journal(path, ASKED)
    first.add("a", said("b"))
    first.close()
    second = Journal(path, ASKED)
    assert second.get("a") == said("b")
    second.remove()
    assert not path.exists()


def test_a_file_that_is_deleted_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, ASKED)
    flock, ends = fcntl.flock, [first.remove]

    def late(*arguments: Any) -> None:
        for end in ends:
            end()
        ends.clear()
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", late)
    second = Journal(path, ASKED)
    second.add("a", said("b"))
    assert path.exists()
    second.close()


@pytest.mark.parametrize("cut", [1, 2, 10, 40])
def test_a_line_that_was_cut_is_made_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, ASKED)
    first.add("a", said("b"))
    first.add("c", said("d"))
    first.close()
    path.write_bytes(path.read_bytes()[:-cut])
    second = Journal(path, ASKED)
    assert second.get("a") == said("b") and second.get("c") is None
    second.add("c", said("e"))
    second.close()
    third = Journal(path, ASKED)
    assert (third.get("a"), third.get("c")) == (said("b"), said("e"))
    third.close()


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe\n", b"{}\n[1]\n", b'{}\n["zz", "a", []]\n'])
def test_a_damaged_file_is_no_obstacle(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "out.journal"
    path.write_bytes(damage)
    found = Journal(path, {})
    assert len(found) == 0
    found.add("a", said("b"))
    found.close()
    again = Journal(path, {})
    assert again.get("a") == said("b")
    again.close()

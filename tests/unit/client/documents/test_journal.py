from __future__ import annotations

from pathlib import Path

import pytest

from seqserve.documents.journal import Journal

ASKED: dict[str, object] = {"beam_size": 5, "terms": {"a": "b"}, "model": None}


def test_the_next_run_knows_what_this_one_made(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, ASKED)
    first.add("a\n", "ä\n")
    first.close()
    second = Journal(path, ASKED)
    assert (second.get("a\n"), second.get("a"), len(second)) == ("ä\n", None, 1)
    second.add("b", "c")
    second.close()
    third = Journal(path, ASKED)
    assert (third.get("a\n"), third.get("b")) == ("ä\n", "c")
    third.remove()
    assert not path.exists()


def test_other_options_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, ASKED)
    first.add("a", "b")
    first.close()
    other = Journal(path, ASKED | {"beam_size": 1})
    assert other.get("a") is None
    other.close()


@pytest.mark.parametrize("cut", [1, 2, 10, 40])
def test_a_line_that_was_cut_is_made_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "out.journal"
    first = Journal(path, ASKED)
    first.add("a", "b")
    first.add("c", "d")
    first.close()
    path.write_bytes(path.read_bytes()[:-cut])
    second = Journal(path, ASKED)
    assert second.get("a") == "b" and second.get("c") is None
    second.add("c", "e")
    second.close()
    third = Journal(path, ASKED)
    assert (third.get("a"), third.get("c")) == ("b", "e")
    third.close()


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe\n", b"{}\n[1]\n", b'{}\n["zz", "a"]\n'])
def test_a_damaged_file_is_no_obstacle(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "out.journal"
    path.write_bytes(damage)
    found = Journal(path, {})
    assert len(found) == 0
    found.add("a", "b")
    found.close()
    again = Journal(path, {})
    assert again.get("a") == "b"
    again.close()

"""docs/architecture.md names files that exist, and its reading list has the right lengths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "server/seqserve_server"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
READING = re.findall(r"^\| (`.+`) \| .+ \| ([\d,]+) \|$", PAGE, re.MULTILINE)


def find(name: str) -> Path:
    """Finds a file by the name that the page gives it: below the server, or below the root."""
    return next(
        (folder / name for folder in (SERVER, ROOT) if (folder / name).exists()), Path(name)
    )


def test_every_file_it_names_exists() -> None:
    names = set(re.findall(r"`([\w/-]+/[\w/-]+\.py)`", PAGE))
    assert len(names) >= 30
    assert [name for name in sorted(names) if not find(name).exists()] == []


def test_every_room_of_the_picture_exists() -> None:
    picture = (ROOT / "docs/processes.svg").read_text(encoding="utf-8")
    rooms = {"front": "rpc models telemetry security engine_client", "engine": "queue decoding"}
    for process, names in rooms.items():
        for name in names.split():
            assert f">{name}/<" in picture
            assert (SERVER / process / name).is_dir()
        drawn = {
            path.name for path in (SERVER / process).iterdir() if (path / "__init__.py").exists()
        }
        assert drawn == set(names.split())


@pytest.mark.parametrize(("files", "lines"), READING)
def test_reading_list_has_the_right_lengths(files: str, lines: str) -> None:
    """Within a twentieth, so that small changes need no edit."""
    found = sum(
        len(find(name).read_text(encoding="utf-8").splitlines())
        for name in re.findall(r"`([^`]+)`", files)
    )
    assert found == pytest.approx(int(lines.replace(",", "")), rel=0.05)


def test_an_evening_is_enough() -> None:
    assert len(READING) == 5
    assert sum(int(lines.replace(",", "")) for _, lines in READING) < 4000

"""The Makefile says what it downloads before it does: pip is silent for minutes."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("verb", ["serve", "demo", "install"])
def test_downloads_are_announced(verb: str, tmp_path: Path) -> None:
    environments = [f"{name}={tmp_path / name}" for name in ("VENV", "SERVE_VENV")]
    command = ["make", "--dry-run", verb, *environments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 0 <= done.stdout.find("echo 'Installing ") < done.stdout.index("pip install")


def test_nothing_is_announced_where_nothing_is_downloaded(tmp_path: Path) -> None:
    (tmp_path / "SERVE_VENV").mkdir()
    (tmp_path / "SERVE_VENV" / ".ready").touch()
    command = ["make", "--dry-run", "serve", f"SERVE_VENV={tmp_path / 'SERVE_VENV'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Installing" not in done.stdout

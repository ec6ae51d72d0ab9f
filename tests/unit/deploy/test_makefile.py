"""What the Makefile says before pip starts: what it downloads, and which Python is too old."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("verb", ["serve", "demo", "install"])
def test_downloads_are_announced(verb: str, tmp_path: Path) -> None:
    environments = [f"{name}={tmp_path / name}" for name in ("VENV", "SERVE_VENV")]
    done = make("--dry-run", verb, *environments)
    assert done.returncode == 0
    assert 0 <= done.stdout.find("echo 'Installing ") < done.stdout.index("pip install")


def test_nothing_is_announced_where_nothing_is_downloaded(tmp_path: Path) -> None:
    (tmp_path / "SERVE_VENV").mkdir()
    (tmp_path / "SERVE_VENV" / ".ready").touch()
    done = make("--dry-run", "serve", f"SERVE_VENV={tmp_path / 'SERVE_VENV'}")
    assert done.returncode == 0
    assert "Installing" not in done.stdout


@pytest.mark.parametrize("verb", ["demo", "install"])
def test_a_python_that_is_too_old_is_refused_before_an_environment_is_made(
    verb: str, tmp_path: Path
) -> None:
    python = tmp_path / "python3.10"
    python.write_text(
        f"#!{sys.executable}\nimport sys\nsys.version_info = (3, 10, 13)\nexec(sys.argv[2])\n"
    )
    python.chmod(0o755)
    environments = [f"{name}={tmp_path / name}" for name in ("VENV", "SERVE_VENV")]
    done = make(verb, f"PYTHON={python}", *environments)
    assert done.returncode == 2
    assert f"needs Python 3.11 or later, but {python} is 3.10; name another" in done.stderr
    assert f"make {verb} PYTHON=" in done.stderr
    assert not list(tmp_path.glob("*VENV"))

"""What `make dist` makes, and new environments that it is installed in."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def interpreter_of(version: str) -> str | None:
    """Finds a Python of this version: on the path, or where pyenv keeps them."""
    folders = [*os.environ["PATH"].split(os.pathsep)]
    kept = Path.home() / ".pyenv" / "versions"
    folders += [str(path / "bin") for path in kept.glob(f"{version}.*")]
    for folder in folders:
        found = shutil.which(f"python{version}", path=folder)
        # pyenv has stand-ins for those that are not chosen, which fail.
        if found and not subprocess.run([found, "-V"], capture_output=True).returncode:
            return found
    return None


def run(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A new environment with what is in ``dist/``, and an empty folder to run its commands in."""

    python: Path
    empty: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its commands: nothing of the developer's shell."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SEQSERVE_", "PYTHON"))}
        return {**kept, "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"}

    def run(self, *command: str) -> str:
        return run([*command], cwd=self.empty, env=self.variables)

    def names(self) -> set[str]:
        listed = json.loads(self.pip("list", "--format", "json"))
        return {package["name"].lower().replace("_", "-") for package in listed}

    def pip(self, *arguments: str) -> str:
        """Runs pip, which the environment itself does not have."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        return run([*pip, "--python", str(self.python), *arguments])

    @contextlib.contextmanager
    def running(self, ready: str, *command: str) -> Iterator[str]:
        """Runs a command until the block ends; yields what the pattern finds where it is ready."""
        process = subprocess.Popen(
            [*command],
            cwd=self.empty,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        shown = ""
        try:
            for line in process.stdout:
                shown += line
                if found := re.search(ready, line):
                    yield found[1]
                    break
            else:
                raise AssertionError(shown)
        finally:
            process.send_signal(signal.SIGTERM)
            shown += process.communicate(timeout=300)[0]
        assert process.returncode == 0, shown


Install: TypeAlias = Callable[..., Environment]


@pytest.fixture(scope="session")
def dist() -> Path:
    if not list(DIST.glob("seqserve-*.whl")):
        pytest.fail("dist/ has no wheel: `make test-release` makes them first")
    return DIST


@pytest.fixture
def install(dist: Path, tmp_path: Path) -> Iterator[Install]:
    """Installs extras into a new environment, with our own distributions from ``dist/`` only."""

    def install(extras: str = "", python: str = sys.executable, *more: str) -> Environment:
        folder, empty = tmp_path / "venv", tmp_path / "empty"
        run([python, "-m", "venv", "--without-pip", str(folder)])
        empty.mkdir()
        environment = Environment(python=folder / "bin" / "python", empty=empty)
        quiet = ("--quiet", "--no-compile")
        place = ("--no-deps", "--no-index", "--find-links", str(dist))
        environment.pip("install", *quiet, *place, "seqserve")
        environment.pip("install", *quiet, f"seqserve[{extras}]" if extras else "seqserve", *more)
        return environment

    yield install
    # Some have gigabytes, and pytest keeps folders of three runs.
    shutil.rmtree(tmp_path / "venv", ignore_errors=True)

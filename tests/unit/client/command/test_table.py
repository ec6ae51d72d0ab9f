from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path

from seqserve.command.main import COMMANDS

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


def test_every_command_has_a_module() -> None:
    assert [name for name, command in COMMANDS.items() if find_spec(command.module) is None] == []


def test_every_extra_is_declared() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    wanted = {command.extra for command in COMMANDS.values()} - {""}
    assert wanted <= set(declared)

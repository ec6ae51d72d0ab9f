import os
import sys
from types import ModuleType

import pytest

from seqserve_model import command as command_module
from seqserve_model.command import set_passive_wait

POLICY = "OMP_WAIT_POLICY"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what the test makes of it is undone.
    monkeypatch.setenv(POLICY, "")
    monkeypatch.delenv(POLICY)


def test_policy_that_is_set_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POLICY, "active")
    set_passive_wait()
    assert os.environ[POLICY] == "active"


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_commands_say_it_before_they_load_torch(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str | None] = []

    class Loaded(ModuleType):
        """Stands for the module that loads torch."""

        def __getattr__(self, _name: str) -> object:
            found.append(os.environ.get(POLICY))
            return lambda *_options, **_named: None

    name = f"seqserve_model.{command}"
    monkeypatch.setitem(sys.modules, name, Loaded(name))
    assert getattr(command_module, command)(["some.toml"]) == 0
    assert set(found) == {"passive"}

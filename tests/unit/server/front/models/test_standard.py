"""Which models a server serves that is told no repository."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from seqserve_server.contract.errors import StartupError
from seqserve_server.front.models import standard
from seqserve_server.front.models.standard import FOLDER, standard_repository


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model of a wheel, as pip lays it down."""
    folder = tmp_path / "site-packages" / "shipped"
    (folder / "en-de" / "4").mkdir(parents=True)
    monkeypatch.setattr(standard, "shipped", lambda: folder)
    return folder


def test_the_folder_beside_comes_first(installed: Path) -> None:
    Path("models/mine/1").mkdir(parents=True)
    assert standard_repository() == FOLDER


def test_the_shipped_model_is_next_and_is_logged(
    installed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seqserve")
    assert standard_repository() == installed
    [record] = caplog.records
    assert record.message == "shipped model"
    assert vars(record)["fields"] == {"folder": installed}


def test_a_folder_of_that_name_without_models_is_not_meant(installed: Path) -> None:
    Path("models").mkdir()
    Path("models/user.py").write_text("")
    assert standard_repository() == installed


def test_without_any_the_error_tells_how_to_get_one() -> None:
    with pytest.raises(StartupError) as caught:
        standard_repository()
    assert "seqserve models fetch" in str(caught.value)

from pathlib import Path

import pytest

from seqserve.errors import OptionError
from seqserve_server.artifact.repository import model_folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for label in ("en-de/2", "en-de/10", "en-ko/1"):
        (tmp_path / label).mkdir(parents=True)
        (tmp_path / label / "manifest.json").touch()
    # Its files are being copied.
    (tmp_path / "en-de/11").mkdir()
    return tmp_path


@pytest.mark.parametrize("model", ["en-de", "en-de/10"])
def test_the_highest_version_that_is_complete(repository: Path, model: str) -> None:
    assert model_folder(model, repository) == repository / "en-de/10"
    assert model_folder(repository / model, Path("nowhere")) == repository / "en-de/10"


def test_a_version_may_be_named(repository: Path) -> None:
    assert model_folder("en-de/2", repository) == repository / "en-de/2"


def test_the_default_is_that_of_the_repository(repository: Path) -> None:
    with pytest.raises(OptionError, match=r"name a model: .* has no file `default`, but en-de, en"):
        model_folder(None, repository)
    (repository / "default").write_text("en-ko\n", encoding="utf-8")
    assert model_folder(None, repository) == repository / "en-ko/1"


def test_the_only_model_is_the_default(repository: Path) -> None:
    (repository / "en-ko/1/manifest.json").unlink()
    assert model_folder(None, repository) == repository / "en-de/10"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("fr-de", "there is no model 'fr-de'; .* holds en-de, en-ko"),
        ("en-de/11", "there is no model 'en-de/11'; .* holds en-de/[0-9]+, en-de/[0-9]+$"),
    ],
)
def test_an_unknown_model_is_named(repository: Path, model: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        model_folder(model, repository)


@pytest.mark.parametrize(
    ("model", "said"), [("en-de", "en-de is not a folder of a model, and "), (None, "")]
)
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, model: str | None, said: str) -> None:
    with pytest.raises(OptionError, match=f"^{said}.*/nowhere is not a folder of models"):
        model_folder(model, tmp_path / "nowhere")

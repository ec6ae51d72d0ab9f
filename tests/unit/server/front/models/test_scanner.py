import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.logged import fields_of, logged

from seqserve.errors import OptionError
from seqserve_server.contract.errors import ModelUnavailable, StartupError
from seqserve_server.front.models.folders import Scanner
from seqserve_server.front.models.lifecycle import Entry
from seqserve_server.front.models.repository import Repository


class Stock:
    """A folder with m/1 in it, and what is known of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = Repository()
        self.scanner = Scanner(folder, self.repository)

    def write(self, version: int, content: str = "{}") -> None:
        place = self.folder / "m" / str(version)
        place.mkdir(parents=True, exist_ok=True)
        (place / "manifest.json").write_text(content, encoding="utf-8")

    def entry(self, version: int) -> Entry:
        return self.repository.find("m", version)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    stock = Stock(tmp_path / "models")
    stock.write(1)
    stock.scanner.open()
    return stock


def test_first_look_is_believed(stock: Stock) -> None:
    assert [entry.label for entry in stock.repository.entries] == ["m/1"]
    assert stock.entry(1).files and not stock.entry(1).reason


async def test_what_comes_counts_once_it_lies_still(stock: Stock) -> None:
    stock.write(2)
    for is_known in (False, True):
        assert await stock.scanner.scan()
        assert (stock.entry(2).files is not None) is is_known
    stock.write(2, "[]" * 9)
    await stock.scanner.scan()
    assert stock.entry(2).files is None


@pytest.mark.parametrize("version", [1, 2], ids=["scanned", "found between two looks"])
async def test_what_vanishes_is_gone_at_the_second_look(stock: Stock, version: int) -> None:
    if version == 2:
        stock.write(2)
        await stock.scanner.find("m")
    shutil.rmtree(stock.folder / "m" / str(version))
    # A model without versions is no unmounted disk.
    for is_present in (True, False):
        assert await stock.scanner.scan()
        assert stock.entry(version).is_present is is_present


async def test_only_versions_of_the_model_are_found(stock: Stock) -> None:
    shutil.copytree(stock.folder / "m", stock.folder / "other")
    stock.write(2)
    await stock.scanner.find("m")
    assert [entry.label for entry in stock.repository.entries] == ["m/1", "m/2"]
    # Somebody may still write it.
    assert stock.entry(2).files is None


async def test_ignored_folder_is_told_once(stock: Stock, caplog: pytest.LogCaptureFixture) -> None:
    odd = stock.folder / "m" / "v9"
    for _ in range(2):
        odd.mkdir()
        for _ in range(3):
            await stock.scanner.scan()
        ((event, fields),) = logged(caplog)
        assert (event, fields["folder"]) == ("folder ignored", odd)
        assert fields["reason"].startswith("a version is a number from 1 to")
        # It may come again.
        odd.rmdir()
        await stock.scanner.scan()
        caplog.clear()


def test_what_is_no_folder_of_models_is_told(tmp_path: Path, caplog: Any) -> None:
    with pytest.raises(OptionError, match="is not a folder"):
        Scanner(tmp_path / "nowhere", Repository()).open()
    with pytest.raises(StartupError, match="seqserve export"):
        Scanner(tmp_path, Repository()).open()
    assert not caplog.records
    (tmp_path / "m" / "007").mkdir(parents=True)
    with pytest.raises(StartupError, match="holds no"):
        Scanner(tmp_path, Repository()).open()
    assert [fields["folder"] for fields in fields_of(caplog)] == [tmp_path / "m" / "007"]
    (tmp_path / "m" / "1").mkdir()
    (tmp_path / "m" / "1" / "manifest.json").touch()
    with pytest.raises(StartupError, match=f"folder of a model, and {tmp_path} is its repository"):
        Scanner(tmp_path / "m", Repository()).open()


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "gone"])
async def test_unmounted_disk_unloads_nothing_and_is_told_once(
    stock: Stock, caplog: pytest.LogCaptureFixture, is_there: bool
) -> None:
    for _ in range(2):
        os.rename(stock.folder, stock.folder.with_name("away"))
        if is_there:
            stock.folder.mkdir()
        for _ in range(3):
            assert not await stock.scanner.scan()
        assert stock.entry(1).is_present
        ((event, fields),) = logged(caplog)
        reason = "it holds no folder of a model" if is_there else "it cannot be read: "
        assert event == "model repository kept"
        assert fields["reason"].startswith(reason)
        if is_there:
            stock.folder.rmdir()
        else:
            with pytest.raises(ModelUnavailable, match="cannot be read"):
                await stock.scanner.find("m")
        os.rename(stock.folder.with_name("away"), stock.folder)
        assert await stock.scanner.scan()
        caplog.clear()

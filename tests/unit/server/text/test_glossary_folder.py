from pathlib import Path

import pytest
from tests.support.logged import fields_of

from seqserve.errors import OptionError
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.text.glossary import OPTION
from seqserve_server.text.glossary_folder import GlossaryFolder

TEA = "tea\tTee\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "products.en-de.tsv").write_text(TEA)
    (tmp_path / "products.ko-de.tsv").write_text("차\tTee\n")
    (tmp_path / "README.md").write_text("no glossary")
    (tmp_path / ".hidden.en-de.tsv").write_text("no glossary")
    return tmp_path


def opened(folder: Path) -> GlossaryFolder:
    glossaries = GlossaryFolder(folder)
    glossaries.open()
    return glossaries


def labels(glossaries: GlossaryFolder) -> list[str]:
    return ["{}.{}-{}".format(*glossary.label) for glossary in glossaries.listed]


def is_sound(glossaries: GlossaryFolder) -> bool:
    return glossaries.reloads()[OPTION][0]


async def settled(glossaries: GlossaryFolder) -> None:
    for _ in range(2):
        await glossaries.scan()


def targets(glossaries: GlossaryFolder, text: str) -> list[str]:
    found = glossaries.find("products", "en", "de")
    return [term.target for term in found.terms_in(text)]


def test_files_are_glossaries_by_their_names(folder: Path) -> None:
    glossaries = opened(folder)
    assert labels(glossaries) == ["products.en-de", "products.ko-de"]
    assert is_sound(glossaries)
    assert targets(glossaries, "some tea") == ["Tee"]


def test_a_server_without_a_folder_has_none(tmp_path: Path) -> None:
    glossaries = opened(tmp_path)
    assert glossaries.listed == []
    without = GlossaryFolder()
    without.open()
    assert without.reloads() == {}
    with pytest.raises(InvalidRequest, match=r"'a' is not a glossary .* has none"):
        without.find("a", "en", "de")
    with pytest.raises(OptionError, match=r"--glossaries: .*nowhere is not a folder"):
        opened(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("bad.tsv", TEA, "its name is not NAME.SOURCE-TARGET.tsv"),
        ("products.en-de.tbx", "<tbx/>", "has 0 entries for en and de"),
        ("other.en-de.tsv", "tea", "line 1: has 1 columns"),
    ],
)
def test_a_broken_file_leaves_the_others(
    folder: Path, name: str, content: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / name).write_text(content)
    glossaries = opened(folder)
    assert not is_sound(glossaries)
    [told] = fields_of(caplog, "glossary not read")
    assert reason in told["reason"]
    assert len(glossaries.listed) >= 1


TBX = """<tbx><conceptEntry>
    <langSec xml:lang="en"><termSec><term>tea</term></termSec></langSec>
    <langSec xml:lang="de"><termSec><term>Tee</term></termSec></langSec></conceptEntry></tbx>"""


@pytest.mark.parametrize("content", [TBX, "no TBX"])
async def test_two_files_of_one_name_and_languages(folder: Path, content: str) -> None:
    (folder / "products.en-de.tbx").write_text(content)
    glossaries = opened(folder)
    assert len(glossaries.listed) == 2 and not is_sound(glossaries)
    (folder / "products.en-de.tbx").unlink()
    await settled(glossaries)
    # Now that the other is forgotten.
    await glossaries.scan()
    assert is_sound(glossaries) and targets(glossaries, "tea") == ["Tee"]


async def test_a_change_counts_when_two_scans_agree(folder: Path) -> None:
    glossaries = opened(folder)
    (folder / "products.en-de.tsv").write_text("tea\tTässchen\n")
    (folder / "new.en-de.tsv").write_text(TEA)
    await glossaries.scan()
    assert targets(glossaries, "tea") == ["Tee"]
    await glossaries.scan()
    assert targets(glossaries, "tea") == ["Tässchen"]
    assert "new.en-de" in labels(glossaries)
    (folder / "new.en-de.tsv").unlink()
    await glossaries.scan()
    assert "new.en-de" in labels(glossaries)
    await glossaries.scan()
    assert "new.en-de" not in labels(glossaries)


async def test_a_broken_file_keeps_its_last_version(folder: Path) -> None:
    glossaries = opened(folder)
    (folder / "products.en-de.tsv").write_text("tea")
    await settled(glossaries)
    assert targets(glossaries, "tea") == ["Tee"]
    faults = [glossaries.faults[glossary] for glossary in glossaries.listed]
    assert faults[0].startswith("line 1: has 1 columns") and not faults[1]
    assert not is_sound(glossaries)
    (folder / "products.en-de.tsv").write_text("tea\tTasse")
    await settled(glossaries)
    assert targets(glossaries, "tea") == ["Tasse"] and is_sound(glossaries)


async def test_an_empty_folder_changes_nothing(folder: Path) -> None:
    glossaries = opened(folder)
    for file in folder.iterdir():
        file.unlink()
    await settled(glossaries)
    assert len(glossaries.listed) == 2


def test_a_glossary_is_found_by_name_and_languages(folder: Path) -> None:
    glossaries = opened(folder)
    (folder / "products.zh_Hans-de.tsv").write_text("茶\tTee\n")
    (folder / "products.zh_Hant-de.tsv").write_text("茶\tTee\n")
    glossaries = opened(folder)

    def found(source: str, target: str) -> str:
        return glossaries.find("products", source, target).label.source

    assert found("en-US", "de_AT") == "en"
    assert found("kor", "") == "ko"
    assert found("zh-TW", "de") == "zh_Hant"
    for source in ("zh", "", "fr"):
        with pytest.raises(InvalidRequest, match=r"'products' is for en to de, ko to de, zh_Hans"):
            found(source, "de")
    with pytest.raises(InvalidRequest, match=r"'drinks' is not .*; available: products") as caught:
        glossaries.find("drinks", "en", "de")
    assert caught.value.field == "options.glossary"

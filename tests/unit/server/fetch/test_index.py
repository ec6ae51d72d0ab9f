import json
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.certificates import Certificates
from tests.examples import examples

from seqserve.command.main import main
from seqserve.errors import SeqserveError
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.fetch.index import INDEX, Index

from .conftest import fetch, https, make_artifact

PAIRS = {"de-en": ("de", "en"), "en-ko": ("en", "ko"), "zh": ("zh-Hans", "en")}


class Silent(SimpleHTTPRequestHandler):
    """Gives the files of a folder, and leads from ``moved/`` to another scheme."""

    def do_GET(self) -> None:
        if "/moved/" not in self.path:
            super().do_GET()
            return
        self.send_response(302)
        self.send_header("Location", "http://localhost:1/")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def offered(tmp_path: Path) -> Path:
    """A repository with models of three pairs, one of them in two versions, and its index."""
    folder = tmp_path / "offered"
    for name, (source, target) in PAIRS.items():
        for version in (1, 2) if name == "de-en" else (1,):
            path = make_artifact(folder, name, version) / "manifest.json"
            manifest = json.loads(path.read_text())
            languages = {"source_languages": {source: ""}, "target_languages": {target: ""}}
            path.write_text(json.dumps(manifest | {"template": languages}))
    assert main(["models", "index", str(folder)]) == 0
    return folder


@pytest.fixture
def address(offered: Path, certificates: Certificates) -> Iterator[str]:
    with https(partial(Silent, directory=str(offered)), certificates) as site:
        yield f"{site}/{INDEX}"


def labels(models: Path) -> set[str]:
    return {Manifest.load(path.parent).label for path in models.glob("*/*/manifest.json")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"de-en/2", "en-ko/1", "zh/1"}),
        (["de-en"], {"de-en/2"}),
        (["de-en/1", "zh"], {"de-en/1", "zh/1"}),
        (["--languages", "de-en"], {"de-en/2"}),
        (["--languages", "deu-eng", "en-ko"], {"de-en/2", "en-ko/1"}),
        # Two models of a pivot, and a code with a hyphen.
        (["--languages", "de-ko"], {"de-en/2", "en-ko/1"}),
        (["--languages", "zh-Hans-en"], {"zh/1"}),
    ],
)
def test_what_is_chosen_comes_from_an_address(
    address: str, models: Path, arguments: list[str], expected: set[str]
) -> None:
    assert fetch(address, models, *arguments) == 0
    assert labels(models) == expected


def test_a_folder_and_an_address_offer_the_same(
    address: str, offered: Path, capsys: pytest.CaptureFixture[str], models: Path
) -> None:
    lists = []
    for index in (address, offered / INDEX):
        capsys.readouterr()
        assert fetch(index, models, "--list") == 0
        lists.append(capsys.readouterr().out.splitlines())
    assert lists[0] == lists[1]
    assert [line.split()[:4] for line in lists[0][1:]] == [
        ["de-en", "2", "de", "en"],
        ["en-ko", "1", "en", "ko"],
        ["zh", "1", "zh-Hans", "en"],
    ]
    assert not models.exists()
    assert fetch(offered / INDEX, models, "zh") == 0
    assert labels(models) == {"zh/1"}


def test_what_is_whole_stays_and_is_not_fetched_again(
    address: str, offered: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = offered / "en-ko" / "1" / "weights.bin"
    sound = weights.read_bytes()
    weights.write_bytes(sound[:-1])
    assert fetch(address, models, "de-en", "en-ko", "zh") == 1
    assert "en-ko/1: ./weights.bin: sha256" in capsys.readouterr().err
    assert labels(models) == {"de-en/2"}
    weights.write_bytes(sound)
    (offered / "de-en" / "2" / "weights.bin").unlink()
    assert fetch(address, models, "de-en", "en-ko", "zh") == 0
    assert "de-en/2 (int8, 0.0 MB): was there already" in capsys.readouterr().out
    assert labels(models) == {"de-en/2", "en-ko/1", "zh/1"}
    assert not [*models.rglob(".draft-*")]


def says(**changes: Any) -> Callable[[Path], None]:
    """The index says something else of its last model, ``zh/1``."""

    def change(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        index["models"][-1] |= changes
        (folder / INDEX).write_text(json.dumps(index))

    return change


def many(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(index | {"models": index["models"] * 501}))


def endless(folder: Path) -> None:
    with (folder / "zh" / "1" / "weights.bin").open("ab") as file:
        file.write(bytes(1 << 20))


HOSTILE: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: (folder / INDEX).write_text("{"), "index.json: not JSON"),
    (lambda folder: (folder / INDEX).write_text("[]"), "not an object"),
    (lambda folder: (folder / INDEX).write_text('{"format": 9}'), "format is 9; this version"),
    (lambda folder: (folder / INDEX).write_bytes(bytes(17 << 20)), "is larger than 16,777,216"),
    (says(name="../zh"), "models[3].name: '../zh' is not allowed"),
    (says(name=3), "name: 3 is not of type str"),
    (says(version=0), "models[3].version: 0 is not allowed"),
    (says(url="../offered/zh/1"), "models[3].url: '../offered/zh/1' is not allowed"),
    (says(url="/etc"), "models[3].url"),
    (says(url="file:///etc"), "models[3].url"),
    (says(url="http://localhost/zh/1"), "models[3].url"),
    (says(url="//localhost/zh/1"), "models[3].url"),
    (says(url="zh/1?a"), "models[3].url"),
    (says(url="moved/zh/1"), "http://localhost:1/, which is not https://"),
    (says(url="nothing"), "nothing/manifest.json: 404"),
    (says(sha256="0"), "models[3].sha256"),
    (says(sha256="0" * 64), "zh/1/manifest.json: sha256 is "),
    (says(bytes=1), "zh/1/manifest.json: is of zh/1 of "),
    (says(bytes=1 << 40), "1099.5 GB are to be fetched; see --max-gb"),
    (says(version=2), "is of zh/1 of "),
    (says(more=1), "more: not known"),
    (says(licence="\ud800"), "index.json: not JSON"),
    (many, "models: are 2,004, over 2,000"),
    (endless, "weights.bin: sha256 is "),
]


@pytest.mark.parametrize(("spoil", "shown"), HOSTILE)
def test_a_hostile_index_is_refused_in_one_sentence(
    spoil: Callable[[Path], Any],
    shown: str,
    address: str,
    offered: Path,
    models: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(offered)
    capsys.readouterr()
    assert fetch(address, models, "--languages", "zh-en") != 0
    error = capsys.readouterr().err
    assert shown in error and error.count("\n") == 1
    assert not [*models.rglob("*.bin")]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["fr-en"], "names: 'fr-en' is not in the index; available: de-en, en-ko, zh"),
        (["--languages", "fr-en"], "no model reads 'fr'"),
        (["--languages", "deen"], "--languages: 'deen': is not a pair as de-en"),
        (["--sha256", "0" * 64], "index.json: sha256 is "),
    ],
)
def test_what_is_not_there_is_named(
    offered: Path,
    models: Path,
    arguments: list[str],
    shown: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fetch(offered / INDEX, models, *arguments) != 0
    assert shown in capsys.readouterr().err


@settings(examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    change=st.dictionaries(
        st.sampled_from(["name", "version", "url", "bytes", "sha256", "source_languages", "x"]),
        st.one_of(
            st.none(),
            st.text(max_size=8),
            st.sampled_from(["\ud800", "a/" * 5000, "https://", 1 << 70, -1, [], [1], {}, 1e999]),
        ),
    )
)
def test_any_index_is_read_or_refused(offered: Path, change: dict[str, Any]) -> None:
    index = json.loads((offered / INDEX).read_text())
    index["models"][0] |= change
    other = offered / "other.json"
    other.write_text(json.dumps(index))
    try:
        offers = Index.read(str(other), "").chosen([], [])
        for offer in offers:
            offer.files(str(other))
    except SeqserveError as error:
        assert len(str(error)) < 2_000

import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from seqserve_export import capitals
from seqserve_export.capitals import OPTION, Likeness, recommend_small_letters
from seqserve_export.parity import HeldOut
from seqserve_export.pipeline import serve_once
from seqserve_model.data import Pair
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Template
from seqserve_server.features.casing import is_all_caps, is_title_case
from seqserve_server.offline.offline import Offline

SENTENCES = [
    line.split("\t")
    for line in Path(capitals.__file__).with_name("capitals.tsv").read_text("utf-8").splitlines()
]
PAIR = Template(source_languages={"deu_Latn": "", "ko": ""}, target_languages={"de": "", "fr": ""})


@dataclass
class Answer:
    text: str


@dataclass
class Translator:
    """Answers with a function of a text, and knows no capitals where it is asked for none."""

    manifest: Manifest
    answer: Callable[[str], str]
    calls: list[dict[str, Any]] = field(default_factory=list)

    def generate(self, texts: Iterable[str], **options: Any) -> list[Answer]:
        self.calls.append(options)
        texts = [text.lower() for text in texts] if options[OPTION] else texts
        return [Answer(self.answer(text)) for text in texts]


def same(text: str) -> str:
    return text


def worse_in_capitals(text: str) -> str:
    return text if not text.isupper() else text[::-1]


def worse_in_title_case(text: str) -> str:
    is_plain = text in (plain for _, plain in SENTENCES)
    return text if is_plain or not is_title_case(text, ()) else text[::-1]


@pytest.fixture
def asked(
    tiny_artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[dict[str, Any], str, list[dict[str, Any]]]]:
    """Returns what a manifest recommends then, what was printed, and what the model was asked."""

    def asked(
        answer: Callable[[str], str], template: Template | None = PAIR, **generation: Any
    ) -> tuple[dict[str, Any], str, list[dict[str, Any]]]:
        manifest = replace(Manifest.read(tiny_artifact), template=template, generation=generation)
        manifest.write(tmp_path)
        translator = Translator(manifest, answer)
        recommend_small_letters(cast(Offline, translator), tmp_path)
        return Manifest.read(tmp_path).generation, capsys.readouterr().out, translator.calls

    return asked


@pytest.mark.parametrize("answer", [worse_in_capitals, worse_in_title_case])
def test_a_model_that_reads_them_worse_recommends_small_letters(
    asked: Callable[..., Any], answer: Callable[[str], str]
) -> None:
    generation, printed, calls = asked(answer, beam_size=2)
    assert generation == {"beam_size": 2, OPTION: True}
    assert printed.count("\n") == 1 and "1.00 and 1.00 with lower_capitals" in printed
    assert {(call["source_language"], call["target_language"]) for call in calls} == {
        ("deu_Latn", "fr")
    }


@pytest.mark.parametrize("answer", [same, str.swapcase, lambda _: "one"])
def test_others_stay_as_they_are(asked: Callable[..., Any], answer: Callable[[str], str]) -> None:
    assert asked(answer)[:2] == ({}, "")


@pytest.mark.parametrize("value", [True, False])
def test_what_is_recommended_already_wins(asked: Callable[..., Any], value: bool) -> None:
    assert asked(worse_in_capitals, **{OPTION: value}) == ({OPTION: value}, "", [])


@pytest.mark.parametrize(
    ("sources", "targets"),
    [([], []), (["ko"], ["de"]), (["de"], ["de", "de_AT"]), ([], ["de"])],
)
def test_who_does_not_translate_from_a_known_language_is_not_asked(
    asked: Callable[..., Any], sources: list[str], targets: list[str]
) -> None:
    template = Template(
        source_languages=dict.fromkeys(sources, ""), target_languages=dict.fromkeys(targets, "")
    )
    for each in (template, None):
        assert asked(worse_in_capitals, each) == ({}, "", [])


def test_an_artifact_is_asked_when_it_is_served_first(
    tiny_artifact: Path, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "1"
    shutil.copytree(tiny_artifact, folder)
    replace(Manifest.read(folder), template=PAIR).write(folder)
    asked: list[tuple[str, str]] = []

    def likeness(offline: Offline, source: str, target: str) -> tuple[Likeness, Likeness]:
        asked.append((source, target))
        return Likeness(0.5, 0.95), Likeness(0.9, 0.9)

    monkeypatch.setattr(capitals, "likeness", likeness)
    serve_once(folder, HeldOut(pairs=pairs, name="sentences.tsv"))
    assert asked == [("deu_Latn", "fr")]
    assert Manifest.load(folder).generation[OPTION]


def test_sentences_are_plain_and_become_capitals_and_title_case() -> None:
    assert set(Counter(language for language, _ in SENTENCES).values()) == {8}
    for _, text in SENTENCES:
        assert not is_all_caps(text, ())
        assert is_all_caps(text.upper(), ())
        assert is_title_case(capitals._title_case(text), ())

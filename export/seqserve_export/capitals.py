"""Finds whether a model reads texts in capitals and headings in Title Case as well as others."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics import CHRF

from seqserve.language_codes import folded
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Template
from seqserve_server.offline.offline import Offline

OPTION = "lower_capitals"
_LEAST = 0.9
"""chrF against the plain sentences' answers, of 1; a model that ignores case has more."""
_MAX_TARGET_TOKENS = 64
_SENTENCES = Path(__file__).with_name("capitals.tsv")
_LONG_WORD = re.compile(r"(?<!\w)[^\W\d_]{4,}")


class Likeness(NamedTuple):
    """chrF, of 1 and without case, of answers against the answers to small letters."""

    capitals: float
    title_case: float

    def __str__(self) -> str:
        return f"{self.capitals:.2f} and {self.title_case:.2f}"


def recommend_small_letters(offline: Offline, folder: Path) -> None:
    """Recommends ``lower_capitals`` in a manifest if the model's answers are better with it.

    A manifest stays as it is if it already has the option, if the model does not translate from a
    language of ``capitals.tsv``, or if it gives different sentences the same answer.
    """
    manifest = Manifest.read(folder)
    pair = _pair(manifest.template or Template())
    if OPTION in manifest.generation or pair is None:
        return
    without, lowered = likeness(offline, *pair)
    if min(without) < _LEAST and sum(lowered) > sum(without):
        print(
            f"capitals, Title Case  chrF {without} compared with small letters; {lowered} with"
            f" {OPTION}, which is recommended"
        )
        replace(manifest, generation={**manifest.generation, OPTION: True}).write(folder)


def likeness(offline: Offline, source: str, target: str) -> tuple[Likeness, Likeness]:
    """Compares answers to sentences in capitals and in Title Case with those to small letters.

    Args:
        offline: A model; one that answers different sentences alike has 1 throughout.
        source: Its code of a language of ``capitals.tsv``.
        target: Its code of the language of the answers.

    Returns:
        Without ``lower_capitals``, and with it.
    """
    manifest = offline.manifest
    shortest = manifest.generation.get("min_decoding_length", 0)
    longest = min(max(_MAX_TARGET_TOKENS, shortest), manifest.limits.max_target_length)

    def answers(texts: Iterable[str], *, is_lowered: bool) -> list[str]:
        results = offline.generate(
            texts,
            source_language=source,
            target_language=target,
            lower_capitals=is_lowered,
            segmentation="lines",
            max_decoding_length=longest,
        )
        return [result.text for result in results]

    plain = [text for code, text in _sentences() if code == folded(source).name]
    expected = answers(plain, is_lowered=False)
    if len(set(expected)) < len(plain):
        return Likeness(1, 1), Likeness(1, 1)

    def score(texts: Iterable[str], *, is_lowered: bool) -> float:
        given = answers(texts, is_lowered=is_lowered)
        return float(CHRF(lowercase=True).corpus_score(given, [expected]).score) / 100

    without, lowered = (
        Likeness(
            score(map(str.upper, plain), is_lowered=is_lowered),
            score(map(_title_case, plain), is_lowered=is_lowered),
        )
        for is_lowered in (False, True)
    )
    return without, lowered


def _title_case(text: str) -> str:
    return _LONG_WORD.sub(lambda match: match[0][0].upper() + match[0][1:], text)


def _pair(template: Template) -> tuple[str, str] | None:
    """Chooses languages of a model, such that sentences of the first are known."""
    sources = {folded(code).name: code for code in template.source_languages}
    for language in dict.fromkeys(code for code, _ in _sentences()):
        targets = (code for code in template.target_languages if folded(code).name != language)
        if language in sources and (target := next(targets, None)) is not None:
            return sources[language], target
    return None


def _sentences() -> list[tuple[str, str]]:
    rows = (line.split("\t") for line in _SENTENCES.read_text("utf-8").splitlines())
    return [(language, text) for language, text in rows]

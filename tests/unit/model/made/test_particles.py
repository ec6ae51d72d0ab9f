"""Particles: the form that the syllable before asks for."""

from __future__ import annotations

import random

import pytest

from seqserve_model.data import Pair
from seqserve_model.made.language import Language, rows
from seqserve_model.made.particles import choose_particles
from seqserve_model.made.values import Values


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("커피을/를 마시다", "커피를 마시다"),
        ("물을/를 마시다", "물을 마시다"),
        ("서울으로/로 가다", "서울로 가다"),
        ("부산으로/로 가다", "부산으로 가다"),
        ("의사이다/다", "의사다"),
        ("민준과/와 지우이/가", "민준과 지우가"),
        ("톰이에요/예요.", "톰이에요."),
        ("메리이라고/라고 합니다.", "메리라고 합니다."),
    ],
)
def test_particles_follow_the_syllable_before(text: str, chosen: str) -> None:
    assert choose_particles(text) == chosen


@pytest.mark.parametrize("text", ["He/she", "안녕하세요.", "1/2", ""])
def test_other_text_stays(text: str) -> None:
    assert choose_particles(text) == text


def test_no_sentence_is_left_with_two_forms_of_a_particle() -> None:
    values = Values(Language.of("en"), Language.of("ko"), random.Random(1))
    for phrase in [each for kind in rows("phrases.tsv", "en", "ko").values() for each in kind]:
        for filled in values.pair(phrase, Pair("a", "b")):
            assert choose_particles(filled) == filled


def test_a_particle_stands_after_a_syllable_in_the_tables() -> None:
    """Of digits and Latin letters nothing tells how they are spoken."""
    values = Values(Language.of("ko"), Language.of("en"), random.Random(1))
    forms = rows("forms.tsv", "en", "ko")
    for kind in ("person", "full", "place", "ride", "relation", "role", "dish", "sip"):
        assert all("가" <= korean[-1] <= "힣" for _, korean in forms[kind])
    for kind in ("time", "price", "day"):
        for korean, _ in (values.value(kind) for _ in range(100)):
            assert "가" <= korean[-1] <= "힣"

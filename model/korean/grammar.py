"""Puts everyday words into plain sentences of English and Korean, in four levels of politeness."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from english import PLURAL_SUBJECTS, bare, be, described, is_plural, progressive, third_person
from hangul import FORMAL, INFORMAL, PLAIN, POLITE, B, Verb, with_final
from lexicon import Lexicon, Pair

from seqserve_model.made.particles import choose_particles

LEVELS = (PLAIN, INFORMAL, POLITE, FORMAL)
# English subject, Korean topic, the object that would be the subject itself
SUBJECTS = [
    ("I", "나는", "me"),
    ("I", "나는", "me"),
    ("I", "나는", "me"),
    ("you", "너는", "you"),
    ("we", "우리는", "us"),
    ("he", "그는", "him"),
    ("she", "그녀는", "her"),
    ("they", "그들은", "them"),
    ("Tom", "톰은", "Tom"),
    ("Mary", "메리는", "Mary"),
    ("my mother", "어머니는", "my mother"),
    ("my father", "아버지는", "my father"),
    ("my friend", "내 친구는", "my friend"),
    ("my sister", "언니는", ""),
    ("my brother", "형은", ""),
    ("the children", "아이들은", ""),
    ("the teacher", "선생님은", "the teacher"),
]
HUMBLE = {
    "나는": "저는",
    "나를": "저를",
    "나에게": "저에게",
    "내": "제",
    "너는": "당신은",
    "네": "당신의",
}
OWNERS = [
    ("my", "내"),
    ("my", "내"),
    ("your", "네"),
    ("his", "그의"),
    ("her", "그녀의"),
    ("Tom's", "톰의"),
]


class Grammar:
    """Draws sentences."""

    def __init__(self, words: dict[str, Any], seed: int) -> None:
        """Takes the content of everyday.toml."""
        self._draw = random.Random(seed)
        self._words = Lexicon(words, self._draw)

    def pairs(self) -> Iterator[Pair]:
        """Draws pairs of an English and a Korean sentence without end."""
        kinds: list[Callable[[], Pair]] = [
            *[self._fixed] * 5,
            *[self._clause] * 9,
            *[self._request] * 4,
            *[self._question] * 4,
            *[self._description] * 5,
            *[self._trait] * 2,
            *[self._identity] * 2,
        ]
        while True:
            english, korean = self._draw.choice(kinds)()
            if self._draw.random() < 0.08:
                english, korean = english.removesuffix("."), korean.removesuffix(".")
            yield english[0].upper() + english[1:], choose_particles(korean)

    def _fixed(self) -> Pair:
        english, wordings = self._draw.choice(self._words.sentences)
        return self._words.filled((english, self._draw.choice(wordings.split(" | "))))

    def _clause(self) -> Pair:
        """Says what somebody does, did, will do, does not do, wants to do, can do or has to do."""
        subject, topic, barred = self._draw.choice(SUBJECTS)
        is_state = self._draw.random() < 0.25
        english, before, verb = self._words.predicate(
            self._words.states if is_state else self._words.actions, barred
        )
        moods = ["habit", "past", "not", "not past"]
        if not is_state:
            moods += ["future", "now", "now", "want", "can", "cannot", "must", "not future"]
        mood = self._draw.choice(moods)
        level = self._draw.choice(LEVELS)
        when = self._when(mood, is_state=is_state)
        said = self._english(subject, english, mood)
        spoken = before + self._korean(verb, mood, level, is_own=subject in ("I", "we", "you"))
        dropped = subject == "I" and mood != "habit" and self._draw.random() < 0.25
        start = "" if dropped else _polite(topic, level) + " "
        later = when[1] + " " if when[1] else ""
        return f"{said}{_spaced(when[0])}.", f"{start}{later}{_polite(spoken, level)}."

    def _when(self, mood: str, *, is_state: bool) -> Pair:
        kinds = {"not past": "past"} | {name: name for name in self._words.times}
        kind = kinds.get(mood)
        if kind is None or is_state or self._draw.random() < 0.35:
            return "", ""
        return self._words.filled(self._draw.choice(self._words.times[kind]))

    def _english(self, subject: str, phrase: str, mood: str) -> str:
        verb, _, rest = phrase.partition(" ")
        rest = _spaced(rest)
        many = subject in PLURAL_SUBJECTS
        do = "do" if many else "does"
        third = verb if many else third_person(verb)
        forms = {
            "habit": f"{third}{rest}",
            "now": f"{be(subject, many=many)} {progressive(verb)}{rest}",
            "past": f"{self._past_of(verb)}{rest}",
            "future": f"will {phrase}",
            "not": f"{do}n't {phrase}",
            "not past": f"didn't {phrase}",
            "not future": f"won't {phrase}",
            "want": f"{'want' if many else 'wants'} to {phrase}",
            "can": f"can {phrase}",
            "cannot": f"can't {phrase}",
            "must": self._draw.choice(
                [f"{'have' if many else 'has'} to {phrase}", f"must {phrase}"]
            ),
        }
        return f"{subject} {forms[mood]}"

    def _past_of(self, verb: str) -> str:
        return self._words.past.get(verb) or (verb + "d" if verb.endswith("e") else verb + "ed")

    def _korean(self, verb: Verb, mood: str, level: int, *, is_own: bool) -> str:
        if mood in ("not", "not past", "not future"):
            return self._negated(verb, mood, level)
        has, does = self._words.verbs["있다"], self._words.verbs["하다"]
        match mood:
            case "past":
                return verb.past(level)
            case "future":
                return verb.future(level)
            case "now":
                return f"{verb.stem}고 {has.present(level)}"
            case "want" if is_own:
                return f"{verb.stem}고 {self._words.verbs['싶다'].present(level)}"
            case "want":
                return f"{verb.stem}고 싶어 {does.present(level)}"
            case "can":
                return f"{verb.before_l} 수 {has.present(level)}"
            case "cannot":
                return f"{verb.before_l} 수 {self._words.verbs['없다'].present(level)}"
            case "must":
                return f"{verb.connective}야 {does.present(level)}"
        return verb.present(level)

    def _negated(self, verb: Verb, mood: str, level: int) -> str:
        tense = {"not": Verb.present, "not past": Verb.past, "not future": Verb.future}[mood]
        opposite = {"있": "없다", "알": "모르다"}.get(verb.stem)
        if opposite:
            return tense(self._words.verbs[opposite], level)
        if verb.stem == "하" or (not verb.stem.endswith("하") and self._draw.random() < 0.5):
            return f"안 {tense(verb, level)}"
        auxiliary = Verb("않", "않아", "않으", verb.is_adjective)
        return f"{verb.stem}지 {tense(auxiliary, level)}"

    def _request(self) -> Pair:
        """Asks for something, forbids it, proposes it or asks for leave."""
        english, before, verb = self._words.predicate(self._words.actions, barred="you")
        wordings = {
            f"Please {english}.": [
                f"{verb.connective} 주세요.",
                f"{verb.open_base}세요.",
                f"{verb.connective} 줘.",
            ],
            f"{english}.": [f"{verb.connective}.", f"{verb.open_base}세요."],
            f"Don't {english}.": [
                f"{verb.stem}지 마.",
                f"{verb.stem}지 마세요.",
                f"{verb.stem}지 마라.",
            ],
            f"Please don't {english}.": [f"{verb.stem}지 마세요.", f"{verb.stem}지 말아 주세요."],
            f"Let's {english}.": [
                f"{verb.stem}자.",
                f"{with_final(verb.open_base, B)}시다.",
                f"{verb.connective}요.",
            ],
            f"Shall we {english}?": [f"{verb.before_l}까?", f"{verb.before_l}까요?"],
            f"May I {english}?": [
                f"{verb.connective}도 돼?",
                f"{verb.connective}도 돼요?",
                f"{verb.connective}도 될까요?",
            ],
            f"Could you {english}?": [f"{verb.connective} 줄래?", f"{verb.connective} 주시겠어요?"],
            f"I'd like to {english}.": [
                f"{verb.stem}고 싶어요.",
                f"{verb.stem}고 싶습니다.",
                f"{verb.stem}고 싶어.",
            ],
        }
        said = self._draw.choice(list(wordings))
        return said, before + self._draw.choice(wordings[said])

    def _question(self) -> Pair:
        """Asks whether, when or why somebody does something."""
        others = [
            each for each in SUBJECTS if each[0] not in ("I", "we", "my sister", "my brother")
        ]
        you = ("you", "너는", "you")
        subject, topic, barred = you if self._draw.random() < 0.6 else self._draw.choice(others)
        is_state = self._draw.random() < 0.2
        english, before, verb = self._words.predicate(
            self._words.states if is_state else self._words.actions, barred
        )
        many = subject in PLURAL_SUBJECTS
        tenses = [("habit", "do" if many else "does"), ("past", "did")]
        if not is_state:
            tenses += [("future", "will"), ("can", "can")]
        tense, auxiliary = self._draw.choice(tenses)
        level = self._draw.choice(LEVELS if tense == "habit" else LEVELS[1:])
        reasons = [("", ""), ("", "")]
        if not is_state and tense != "can":
            reasons += [("when ", "언제 "), ("why ", "왜 ")]
        asking, how = self._draw.choice(reasons)
        asked = verb.asked(self._korean(verb, tense, level, is_own=True), level)
        dropped = subject == "you" and self._draw.random() < 0.5
        start = "" if dropped else _polite(topic, level) + " "
        return (
            f"{asking}{auxiliary} {subject} {english}?",
            f"{start}{how}{_polite(before, level)}{asked}",
        )

    def _description(self) -> Pair:
        """Says what a thing is like."""
        english, korean = self._draw.choice(self._words.descriptions)
        classes, _, english = english.partition(": ")
        noun = self._words.noun(self._draw.choice(classes.split(",")))
        owner = self._draw.choice(
            [("the", ""), ("the", ""), ("this", "이"), ("that", "그"), ("that", "저"), ("my", "내")]
        )
        is_named = noun in self._words.nouns["subject"]
        level = self._draw.choice(LEVELS)
        thing = noun[0] if is_named else f"{owner[0]} {bare(noun[0])}"
        named = noun[1] if is_named or not owner[1] else f"{_polite(owner[1], level)} {noun[1]}"
        many = is_plural(noun[0])
        if many and not is_named:
            thing = thing.replace("this ", "these ").replace("that ", "those ")
        degree = self._draw.choice(
            [("", "")] * 4
            + [("very ", "아주 "), ("very ", "매우 "), ("really ", "정말 "), ("too ", "너무 ")]
        )
        before, _, form = korean.rpartition(" ")
        verb = self._words.verbs[form]
        mood = self._draw.choice(["now"] * 4 + ["past", "not", "asked"])
        if english.startswith("tastes") or mood in ("not", "asked"):
            degree = ("", "")
        said = described(thing, english, degree[0], mood, many=many)
        spoken = f"{before} " if before else ""
        particle = self._draw.choice(["이/가", "은/는"])
        return said, f"{named}{particle} {degree[1]}{spoken}{self._ending(verb, mood, level)}"

    def _ending(self, verb: Verb, mood: str, level: int) -> str:
        if mood == "past":
            return verb.past(level) + "."
        if mood == "not":
            return self._negated(verb, "not", level) + "."
        if mood == "asked":
            return verb.asked(verb.present(level), level)
        exclaimed = self._draw.choice(
            [None, f"{verb.open_stem}네", f"{verb.open_stem}네요", f"{verb.stem}군요"]
        )
        return (exclaimed or verb.present(level)) + "."

    def _trait(self) -> Pair:
        """Says how somebody is."""
        subject, topic, _ = self._draw.choice(SUBJECTS)
        english, korean = self._draw.choice(self._words.traits)
        before, _, form = korean.rpartition(" ")
        level = self._draw.choice(LEVELS)
        mood = self._draw.choice(
            ["now", "now", "past", "not"] + ([] if subject == "I" else ["asked"])
        )
        degree = self._draw.choice(
            [("", ""), ("", ""), ("very ", "아주 "), ("very ", "매우 "), ("really ", "정말 ")]
        )
        if mood in ("not", "asked"):
            degree = ("", "")
        said = described(subject, english, degree[0], mood, many=subject in PLURAL_SUBJECTS)
        spoken = f"{before} " if before else ""
        ending = self._ending(self._words.verbs[form], mood, level)
        return said, f"{_polite(topic, level)} {degree[1]}{spoken}{ending}"

    def _identity(self) -> Pair:
        """Says who somebody or what something is."""
        level = self._draw.choice(LEVELS)
        if self._draw.random() < 0.5:
            subject, topic, _ = self._draw.choice(
                [each for each in SUBJECTS if each[0] not in ("we", "they", "the children")]
            )
            noun = self._words.noun("job")
        else:
            subject, topic = self._draw.choice(
                [("this", "이것은"), ("that", "그것은"), ("that", "저것은"), ("it", "그것은")]
            )
            owner = self._draw.choice([("", ""), *OWNERS])
            thing = self._words.noun("thing")
            owned = f"{owner[0]} {bare(thing[0])}", f"{_polite(owner[1], level)} {thing[1]}"
            noun = owned if owner[0] else thing
        is_ = be(subject, many=subject in PLURAL_SUBJECTS)
        was = "were" if is_ == "are" else "was"
        topic = _polite(topic, level)
        mood = self._draw.choice(["is", "is", "not", "was", "asked"])
        is_a = ("이다/다", "이야/야", "이에요/예요", "입니다")[level]
        if mood == "asked" and subject != "I":
            asked = ("이니?", "이야/야?", "이에요/예요?", "입니까?")[level]
            return f"{is_} {subject} {noun[0]}?", f"{topic} {noun[1]}{asked}"
        if mood == "not":
            ending = ("아니다", "아니야", "아니에요", "아닙니다")[level]
            return f"{subject} {is_} not {noun[0]}.", f"{topic} {noun[1]}이/가 {ending}."
        if mood == "was":
            ending = ("이었다", "이었어", "이었어요", "이었습니다")[level]
            return f"{subject} {was} {noun[0]}.", f"{topic} {noun[1]}{ending}."
        return f"{subject} {is_} {noun[0]}.", f"{topic} {noun[1]}{is_a}."


def _spaced(text: str) -> str:
    return f" {text}" if text else ""


def _polite(text: str, level: int) -> str:
    """Gives the humble forms of "I" and "my" in the polite levels."""
    if level in (PLAIN, INFORMAL):
        return text
    return " ".join(HUMBLE.get(word, word) for word in text.split(" "))

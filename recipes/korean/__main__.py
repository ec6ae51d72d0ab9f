"""Writes the everyday sentences of ko-en and en-ko: ``python -m recipes.korean``.

Tatoeba has 5,514 Korean pairs, so that most everyday words occur there once or never. The grammar
puts the words of everyday.toml into plain sentences, in four levels of politeness. It is the
project's own text. The sentences of shown.tsv, which models/README.md shows, are left out.
"""

import argparse
import gzip
import random
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recipes.korean import words as w
from recipes.korean.words import FORMAL, INFORMAL, PLAIN, POLITE, Lexicon, Pair, Verb

HERE = Path(__file__).parent
OUT = HERE / "everyday-eng-kor.tsv.gz"
LEVELS = (PLAIN, INFORMAL, POLITE, FORMAL)


class Grammar:
    """Draws sentences."""

    def __init__(self, words: dict[str, Any], seed: int) -> None:
        self._draw = random.Random(seed)
        self._choose = self._draw.choice
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
            english, korean = self._choose(kinds)()
            if self._draw.random() < 0.08:
                english, korean = english.removesuffix("."), korean.removesuffix(".")
            yield english[0].upper() + english[1:], w.choose_particles(korean)

    def _fixed(self) -> Pair:
        english, wordings = self._choose(self._words.sentences)
        return self._words.filled((english, self._choose(wordings.split(" | "))))

    def _clause(self) -> Pair:
        subject, topic, barred = self._choose(self._words.subjects)
        is_state = self._draw.random() < 0.25
        english, before, verb = self._words.predicate(
            self._words.states if is_state else self._words.actions, barred
        )
        moods = ["habit", "past", "not", "not past"]
        if not is_state:
            moods += ["future", "now", "now", "want", "can", "cannot", "must", "not future"]
        mood = self._choose(moods)
        level = self._choose(LEVELS)
        when = self._when(mood, is_state=is_state)
        said = self._english(subject, english, mood)
        spoken = before + self._korean(verb, mood, level, is_own=subject in ("I", "we", "you"))
        dropped = subject == "I" and mood != "habit" and self._draw.random() < 0.25
        start = "" if dropped else self._polite(topic, level) + " "
        later = when[1] + " " if when[1] else ""
        return f"{said}{_spaced(when[0])}.", f"{start}{later}{self._polite(spoken, level)}."

    def _when(self, mood: str, *, is_state: bool) -> Pair:
        kinds = {"not past": "past"} | {name: name for name in self._words.times}
        kind = kinds.get(mood)
        if kind is None or is_state or self._draw.random() < 0.35:
            return "", ""
        return self._words.filled(self._choose(self._words.times[kind]))

    def _english(self, subject: str, phrase: str, mood: str) -> str:
        verb, _, rest = phrase.partition(" ")
        rest = _spaced(rest)
        many = subject in w.PLURAL_SUBJECTS
        do = "do" if many else "does"
        third = verb if many else w.third_person(verb)
        forms = {
            "habit": f"{third}{rest}",
            "now": f"{w.be(subject, many=many)} {w.progressive(verb)}{rest}",
            "past": f"{self._past_of(verb)}{rest}",
            "future": f"will {phrase}",
            "not": f"{do}n't {phrase}",
            "not past": f"didn't {phrase}",
            "not future": f"won't {phrase}",
            "want": f"{'want' if many else 'wants'} to {phrase}",
            "can": f"can {phrase}",
            "cannot": f"can't {phrase}",
            "must": self._choose([f"{'have' if many else 'has'} to {phrase}", f"must {phrase}"]),
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
        english, before, verb = self._words.predicate(self._words.actions, barred="you")
        said, wordings = self._choose(self._words.requests)
        korean = self._choose(wordings.split(" | ")).format(verb=verb)
        return said.format(english), before + korean

    def _question(self) -> Pair:
        barred_subjects = ("I", "we", "my sister", "my brother")
        others = [each for each in self._words.subjects if each[0] not in barred_subjects]
        you = ("you", "너는", "you")
        subject, topic, barred = you if self._draw.random() < 0.6 else self._choose(others)
        is_state = self._draw.random() < 0.2
        english, before, verb = self._words.predicate(
            self._words.states if is_state else self._words.actions, barred
        )
        many = subject in w.PLURAL_SUBJECTS
        tenses = [("habit", "do" if many else "does"), ("past", "did")]
        if not is_state:
            tenses += [("future", "will"), ("can", "can")]
        tense, auxiliary = self._choose(tenses)
        level = self._choose(LEVELS if tense == "habit" else LEVELS[1:])
        reasons = [("", ""), ("", "")]
        if not is_state and tense != "can":
            reasons += [("when ", "언제 "), ("why ", "왜 ")]
        asking, how = self._choose(reasons)
        asked = verb.asked(self._korean(verb, tense, level, is_own=True), level)
        dropped = subject == "you" and self._draw.random() < 0.5
        start = "" if dropped else self._polite(topic, level) + " "
        return (
            f"{asking}{auxiliary} {subject} {english}?",
            f"{start}{how}{self._polite(before, level)}{asked}",
        )

    def _description(self) -> Pair:
        english, korean = self._choose(self._words.descriptions)
        classes, _, english = english.partition(": ")
        noun = self._words.noun(self._choose(classes.split(",")))
        owner = self._choose(
            [("the", ""), ("the", ""), ("this", "이"), ("that", "그"), ("that", "저"), ("my", "내")]
        )
        is_named = noun in self._words.nouns["subject"]
        level = self._choose(LEVELS)
        thing = noun[0] if is_named else f"{owner[0]} {w.bare(noun[0])}"
        owned = self._polite(owner[1], level)
        named = noun[1] if is_named or not owned else f"{owned} {noun[1]}"
        many = w.is_plural(noun[0])
        if many and not is_named:
            thing = thing.replace("this ", "these ").replace("that ", "those ")
        degree = self._choose(
            [("", "")] * 4
            + [("very ", "아주 "), ("very ", "매우 "), ("really ", "정말 "), ("too ", "너무 ")]
        )
        before, verb = self._words.divided(korean)
        mood = self._choose(["now"] * 4 + ["past", "not", "asked"])
        if english.startswith("tastes") or mood in ("not", "asked"):
            degree = ("", "")
        said = w.described(thing, english, degree[0], mood, many=many)
        particle = self._choose(["이/가", "은/는"])
        return said, f"{named}{particle} {degree[1]}{before}{self._ending(verb, mood, level)}"

    def _ending(self, verb: Verb, mood: str, level: int) -> str:
        if mood == "past":
            return verb.past(level) + "."
        if mood == "not":
            return self._negated(verb, "not", level) + "."
        if mood == "asked":
            return verb.asked(verb.present(level), level)
        exclaimed = self._choose(
            [None, f"{verb.open_stem}네", f"{verb.open_stem}네요", f"{verb.stem}군요"]
        )
        return (exclaimed or verb.present(level)) + "."

    def _trait(self) -> Pair:
        subject, topic, _ = self._choose(self._words.subjects)
        english, korean = self._choose(self._words.traits)
        before, verb = self._words.divided(korean)
        level = self._choose(LEVELS)
        mood = self._choose(["now", "now", "past", "not"] + ([] if subject == "I" else ["asked"]))
        degree = self._choose(
            [("", ""), ("", ""), ("very ", "아주 "), ("very ", "매우 "), ("really ", "정말 ")]
        )
        if mood in ("not", "asked"):
            degree = ("", "")
        said = w.described(subject, english, degree[0], mood, many=subject in w.PLURAL_SUBJECTS)
        ending = self._ending(verb, mood, level)
        return said, f"{self._polite(topic, level)} {degree[1]}{before}{ending}"

    def _identity(self) -> Pair:
        level = self._choose(LEVELS)
        if self._draw.random() < 0.5:
            several = ("we", "they", "the children")
            single = [each for each in self._words.subjects if each[0] not in several]
            subject, topic, _ = self._choose(single)
            noun = self._words.noun("job")
        else:
            subject, topic = self._choose(
                [("this", "이것은"), ("that", "그것은"), ("that", "저것은"), ("it", "그것은")]
            )
            owner = self._choose([("", ""), *self._words.owners])
            thing = self._words.noun("thing")
            owned = f"{owner[0]} {w.bare(thing[0])}", f"{self._polite(owner[1], level)} {thing[1]}"
            noun = owned if owner[0] else thing
        is_ = w.be(subject, many=subject in w.PLURAL_SUBJECTS)
        was = "were" if is_ == "are" else "was"
        topic = self._polite(topic, level)
        mood = self._choose(["is", "is", "not", "was", "asked"])
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

    def _polite(self, text: str, level: int) -> str:
        if level in (PLAIN, INFORMAL):
            return text
        return " ".join(self._words.humble.get(word, word) for word in text.split(" "))


def _spaced(text: str) -> str:
    return f" {text}" if text else ""


def shown() -> set[str]:
    """Returns the sentences, of both languages, that models/README.md shows: none is learnt."""
    lines = (HERE / "shown.tsv").read_text(encoding="utf-8").splitlines()
    return {sentence for line in lines for sentence in line.split("\t")}


def sentences(count: int, seed: int = 1) -> list[Pair]:
    """Draws a number of different pairs, none of which is shown."""
    words = tomllib.loads((HERE / "everyday.toml").read_text(encoding="utf-8"))
    barred = shown()
    pairs: dict[Pair, None] = {}
    for pair in Grammar(words, seed).pairs():
        if not barred.intersection(pair):
            pairs[pair] = None
        if len(pairs) == count:
            return list(pairs)
    raise AssertionError("a grammar draws without end")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m recipes.korean", description=__doc__)
    parser.add_argument("--count", type=int, default=30_000, help="number of pairs")
    parser.add_argument("--out", type=Path, default=OUT, help="file to write")
    arguments = parser.parse_args()
    text = "".join(f"{english}\t{korean}\n" for english, korean in sentences(arguments.count))
    arguments.out.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()

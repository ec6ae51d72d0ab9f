"""Texts that grow, made of the parts of a regular expression."""

import math
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

_PARSER = re._parser  # type: ignore[attr-defined]
# Parts of a pattern that are tried.
_MANY = 20


class Sampler:
    """Texts that a part of a pattern matches."""

    def __init__(self, pattern: re.Pattern[Any], seed: int) -> None:
        self._random = random.Random(seed)
        flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
        self.tree = _PARSER.parse(pattern.pattern, flags & ~re.DEBUG)
        self._groups: dict[int | None, str] = {}
        self.parts: dict[str, None] = {}
        self.whole = self.of(self.tree)

    def of(self, items: Any) -> str:
        """A text for some items; the texts of all their beginnings and bodies are kept."""
        text = ""
        for operation, value in items:
            text += self._of(str(operation), value)
            self.parts[text] = None
        return text

    def _of(self, operation: str, value: Any) -> str:
        match operation:
            case "LITERAL":
                return chr(value)
            case "IN":
                return self._one_of(value)
            case "NOT_LITERAL":
                return "a" if value != ord("a") else "b"
            case "ANY":
                return "a"
            case "GROUPREF":
                return self._groups.get(value, "")
        return self._of_body(operation, value)

    def _of_body(self, operation: str, value: Any) -> str:
        match operation:
            case "BRANCH":
                return self._random.choice([self.of(branch) for branch in value[1]])
            case "SUBPATTERN":
                group, *_, body = value
                text = self._groups[group] = self.of(body)
                return text
            case "ATOMIC_GROUP":
                return self.of(value)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, body = value
                return self.of(body) * max(least, min(int(most), self._random.choice([1, 1, 2])))
            case "ASSERT":
                direction, body = value
                return self.of(body) if direction > 0 else ""
            case "ASSERT_NOT":
                self.of(value[1])
        return ""

    def _one_of(self, items: list[Any]) -> str:
        is_not = str(items[0][0]) == "NEGATE"
        choices: list[str] = []
        for operation, value in items:
            match str(operation):
                case "LITERAL":
                    choices.append(chr(value))
                case "RANGE":
                    choices += [chr(value[0]), chr(value[1])]
                case "CATEGORY":
                    kind = str(value).rpartition("_")[2]
                    choices += {"DIGIT": "1", "SPACE": " \n", "WORD": "a_"}.get(kind, "-")
        if not is_not:
            return self._random.choice(choices or ["a"])
        return next(each for each in "a -1<&x\n\0é" if each not in choices)


def texts(pattern: re.Pattern[Any], seed: int) -> Iterator[Callable[[int], str]]:
    """Makers of a text of a length."""
    sampler = Sampler(pattern, seed)
    parts = [part for part in sampler.parts if part]
    draw = random.Random(seed)
    draw.shuffle(parts)
    parts = parts[:_MANY]

    def repeated(part: str, head: str, tail: str) -> Callable[[int], str]:
        return lambda length: head + part * (length // len(part) + 1) + tail

    def rising(part: str, end: str) -> Callable[[int], str]:
        def text(length: int) -> str:
            runs = int(math.sqrt(2 * length / len(part))) + 1
            return end.join(part * run for run in range(1, runs))

        return text

    for part in parts:
        for tail in ("", "\0", "\n"):
            yield repeated(part, "", tail)
        other = draw.choice(parts)
        yield repeated(part, other, "\0")
        yield repeated(part + other, "", "\0")
        yield rising(part, " ")
        yield rising(part, other)

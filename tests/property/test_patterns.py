"""Every regular expression of the product takes linear time, whatever the text.

The search finds each `re` call in the source, and builds its pattern in the module. From the parts
of the pattern it makes texts that grow: a part again and again, behind and before other parts, and
in runs of rising length. Time that grows with more than the power 1.6 of the length fails.
"""

import ast
import gc
import importlib
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from tests.property.growing_texts import texts

import seqserve
import seqserve_export
import seqserve_gateway
import seqserve_import
import seqserve_server
from seqserve.documents.formats import Format

PACKAGES = (seqserve, seqserve_gateway, seqserve_server, seqserve_import, seqserve_export)
# What a pattern contains that is built in a function; pages and callers choose it.
LOCAL_VALUES: dict[str, Any] = {
    "word": "a+",
    "within": "[aA](?=[aA])",
    "alone": "bB",
    "placeholders": r"\{[^{}]*\}",
    "mark": ",",
    "quoted": r'"(?:[^"]|"")*"',
    "plain": '(?!")',
    "delimiter": ",",
    "kept": ("ab", "c"),
    "kind": Format.DOCX,
    "match": {"name": "a"},
    "names": ("ab", "c"),
    "known": "ab|c",
    "first": "a",
    "last": "\x7f",
    "rest": ("b", "c"),
    "phrase": "ab c",
    "pattern": "a|b",
    "token": "ab",
    "symbols": "ab",
    "each": "[aen]",
    "language": "de",
    "source": {"others": "she|her", "orders": "(?:a|b)"},
    "units": ("km\\b", "kilo(?!m)"),
    "groups": ("(jan(?:u|uar)?)", "(mär(?:z|z)?)"),
    "words": ((7, "vierzig", 40), (4, "vier", 4)),
}
# Patterns of readers that are tried once for a line, or where the last one ended: a document is
# refused where one fails, or is known to be JSON. test_linear.py of documents tries the readers.
ONCE = (
    *(
        "attributes:_ATTRIBUTE",
        "app_strings:_ENTRY",
        "app_strings:_GAP",
        "gettext:_OTHER",
        "gettext:_STATEMENT",
    ),
    *("json_files:_TEXT", "markdown_blocks:_TITLE", "markdown_inline:_BRACKETS"),
    *("subtitles:_NUMBER", "table:pattern"),
)

STEEPEST, CERTAIN = 1.6, 3.0
"""Exponents of the growth; a linear pattern has 1, and a quadratic one 2."""
MEASUREMENTS = 6
# Below it, time says nothing of growth.
LEAST_S = 0.004
IS_SEARCH = not settings.default.derandomize
# Short steps first, for those whose time doubles with each repetition.
LENGTHS = [round(16 * 1.3**step) for step in range(16)] + [2048, 8192, *[32_768] * IS_SEARCH]

SCANNING = frozenset({"search", "sub", "subn", "split", "findall", "finditer", "compile"})
CALLS = SCANNING | {"match", "fullmatch"}


class Use(NamedTuple):
    """A pattern, where it is, and whether it is tried at each place of a text."""

    place: str
    pattern: re.Pattern[Any]
    is_scanned: bool


def modules() -> Iterator[tuple[str, Path, ast.Module]]:
    for package in PACKAGES:
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            text = path.read_text()
            if re.search(r"\bre\.\w", text):
                name = ".".join((package.__name__, *path.relative_to(root).with_suffix("").parts))
                yield name.removesuffix(".__init__"), path, ast.parse(text)


@cache
def methods() -> dict[str, set[str]]:
    """The methods that are called of each name of the product."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for _, _, tree in modules():
        held = set()
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Attribute(ast.Name(name), "match"), [_, _, *_]):
                    # Of a text and a place: it is tried at one place after the other.
                    found[name].add("finditer")
                case ast.Attribute(ast.Name(name) as value, method):
                    held.add(value)
                    found[name].add(method)
        for node in ast.walk(tree):
            match node:
                case ast.Name(name, ast.Load()) if node not in held:
                    # Handed on, to where it may be anything.
                    found[name].add("finditer")
    return found


def names_of(tree: ast.Module) -> dict[ast.expr, str]:
    """The names that results of calls are given."""
    return {
        node.value: target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


@cache
def uses() -> list[Use]:
    return list(_uses())


def _uses() -> Iterator[Use]:
    for name, _, tree in modules():
        names = names_of(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Attribute(ast.Name("re"), method), [pattern, *rest]) if (
                    method in CALLS
                ):
                    given = names.get(node, "")
                    scope = LOCAL_VALUES | vars(importlib.import_module(name))
                    flags = rest if method == "compile" else rest[2:]
                    flags += [each.value for each in node.keywords if each.arg == "flags"]
                    place = f"{name}:{given or node.lineno}"
                    try:
                        text, *flags = (
                            eval(ast.unparse(each), scope) for each in [pattern, *flags]
                        )
                    except NameError as error:
                        reason = f"{place}: give LOCAL_VALUES one for {error.name}"
                        raise AssertionError(reason) from None
                    used = methods()[given] if given else {method}
                    is_scanned = bool(used & SCANNING) and not place.endswith(ONCE)
                    yield Use(place, re.compile(text, sum(flags)), is_scanned)


def cpu_s(run: Callable[[Any], object], text: Any) -> float:
    # A collection takes longer than most patterns.
    gc.disable()
    began_s = time.thread_time()
    run(text)
    used_s = time.thread_time() - began_s
    gc.enable()
    return used_s


def runs(use: Use) -> Callable[[Any], object]:
    if use.is_scanned:
        return lambda text: [None for _ in use.pattern.finditer(text)]
    return lambda text: (use.pattern.match(text), use.pattern.fullmatch(text))


def growth(use: Use, make: Callable[[int], str]) -> float:
    """The exponent with which time grows, or 0 where it is too short to tell."""
    run = runs(use)

    def least_s(length: int, times: int) -> float:
        text: Any = make(length)
        if isinstance(use.pattern.pattern, bytes):
            text = text.encode("latin-1", "replace")
        return max(min(cpu_s(run, text) for _ in range(times)), 1e-6)

    for length in LENGTHS:
        if least_s(length, 1) >= LEAST_S:
            before = max((each for each in LENGTHS if 3 * each <= length), default=1)
            exponent = math.inf
            # What else runs on the machine makes one of them look steep, but not each.
            for _ in range(MEASUREMENTS):
                ratio = least_s(length, 3) / least_s(before, 3)
                exponent = min(exponent, math.log(ratio) / math.log(length / before))
                if not STEEPEST < exponent < CERTAIN:
                    break
            if exponent > STEEPEST:
                return exponent
    return 0.0


def worst(use: Use, seed: int) -> tuple[float, str]:
    """The exponent for the first text that is too slow, and that text; 0 if there is none."""
    for make in texts(use.pattern, seed):
        if exponent := growth(use, make):
            return exponent, make(24)
    return 0.0, ""


@pytest.mark.parametrize("seed", range(20 if IS_SEARCH else 1))
def test_time_is_linear(seed: int) -> None:
    found = {}
    for use in uses():
        exponent, text = worst(use, seed)
        if exponent:
            found[use.place] = f"{exponent:.1f} for {text!r}"
    assert not found


@pytest.mark.parametrize(
    "pattern", [r"a+b", r"<!--.*?-->", r"(a+)+b", r"(`+)[^`].*?\1(?!`)", r"\s+$", r"a?b*b*c"]
)
def test_slow_ones_are_found(pattern: str) -> None:
    use = Use("here", re.compile(pattern), is_scanned=True)
    assert any(worst(use, seed)[0] for seed in range(5))


@pytest.mark.parametrize("pattern", [r"a++b?", r"<!--|-->", r"(?<!\s)\s++$", r"\w{2}x"])
def test_fast_ones_are_not(pattern: str) -> None:
    use = Use("here", re.compile(pattern), is_scanned=True)
    assert not any(worst(use, seed)[0] for seed in range(5))

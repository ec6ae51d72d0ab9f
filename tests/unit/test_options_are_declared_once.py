"""A decoding option is written by hand only in the places that proto/README.md lists."""

import re
from pathlib import Path

import pytest

from seqserve.declarations import DECLARATIONS

ROOT = Path(__file__).parents[2]
SOURCES = ("clients/python", "server/seqserve_server", "proto")
GENERATED = ("clients/python/seqserve/v1", "clients/python/seqserve/open_inference")
# Has a field of the same name in manifests.
OF_MANIFESTS = ("server/seqserve_server/artifact/records.py",)
# Choose what an answer holds, so the code that builds and prints answers names them.
OF_ANSWERS = {
    "num_hypotheses",
    "replace_unknowns",
    "return_alignment",
    "return_attention",
    "return_scores",
    "return_token_scores",
    "return_top_tokens",
}
# Are common words too.
AMBIGUOUS = {
    *("glossary", "keep", "patience", "seed", "segmentation", "shortlist", "temperature", "terms")
}
# Are fields of the requests to score too.
OF_SCORES = {"source_language", "target_language"}
NAMES = DECLARATIONS.keys() - OF_ANSWERS - AMBIGUOUS - OF_SCORES


def listed() -> list[list[str]]:
    """Returns the paths of each place that the page lists for a new option."""
    page = (ROOT / "proto/README.md").read_text(encoding="utf-8")
    section = page.partition("## Adding an option\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d\. (.*?):", section, re.MULTILINE)
    return [re.findall(r"`(.+?)`", step) for step in steps]


def is_within(path: str, places: list[str] | tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def named_in(code: str) -> set[str]:
    # A name in a docstring declares nothing.
    return set(re.findall(r"\w+", re.sub(r"``\w+``", "", code))) & NAMES


def hand_written() -> dict[str, str]:
    files = [file for source in SOURCES for file in (ROOT / source).rglob("*.p[yr]*")]
    texts = {
        file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
        for file in files
        if file.suffix in (".py", ".proto")
    }
    return {
        path: text for path, text in texts.items() if not is_within(path, GENERATED + OF_MANIFESTS)
    }


def test_every_listed_place_exists() -> None:
    assert listed()
    for path in (path for place in listed() for path in place):
        assert (ROOT / path).exists(), path


def test_only_the_listed_places_name_options() -> None:
    places = [path for place in listed() for path in place]
    others = {path: text for path, text in hand_written().items() if not is_within(path, places)}
    assert others
    assert {path: names for path, text in others.items() if (names := named_in(text))} == {}


def test_the_proto_names_each_option_once() -> None:
    proto = hand_written()["proto/seqserve/v1/generation.proto"]
    for name in DECLARATIONS:
        assert len(re.findall(rf"\b{name} = \d+ \[\(decoding\)", proto)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "beam_size: int | None = option(None, help='Hypotheses.')",
        "class Options(TypedDict):\n    top_k: int | None",
        "FIELDS = {'length_penalty': (0, 16)}",
        "request.options.target_prefix = prefix",
    ],
)
def test_one_more_declaration_would_be_found(code: str) -> None:
    assert named_in(code)

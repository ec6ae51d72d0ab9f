from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import MAX_SOURCE, MAX_TARGET, echo_model, manifest
from tests.unit.server.front.generate.asking import DECODING as OPTIONS
from tests.unit.server.front.generate.asking import read as read_source
from tests.unit.server.front.generate.asking import refusal

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Limits
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.front.generate.languages import NO_AFFIXES, Affixes
from seqserve_server.front.generate.records import Options
from seqserve_server.front.generate.scoring import target_tokens
from seqserve_server.front.generate.source import SourceReader
from seqserve_server.front.overload.turns import run_now
from seqserve_server.text.splitting import Segmentation

MODEL = echo_model(max_rows=4)


def meant(**options: Any) -> Options:
    return Options(decoding=OPTIONS, **options)


def reader(affixes: Affixes | None = None, mode: SegmentationMode | None = None) -> SourceReader:
    segmentation = Segmentation(mode) if mode else None
    return SourceReader(MODEL, meant(affixes=affixes or NO_AFFIXES, segmentation=segmentation))


@pytest.mark.parametrize(
    "source",
    ["", " ", "\n\t", "\u3000\u2028", "a" * MAX_SOURCE, "a" * 1025, "a" * (MAX_SOURCE * 32 + 1)],
)
def test_sources_refused(source: str) -> None:
    assert refusal(lambda: run_now(reader().read(source))).field == "source"


@pytest.mark.parametrize("source", ["a", " a ", "a" * (MAX_SOURCE - 1)])
def test_sources_accepted(source: str) -> None:
    read = run_now(reader().read(source))
    [part] = read.parts
    assert (part.original, part.tokens) == (source, MODEL.tokenizer.encode(source))
    assert not read.is_divided


def test_a_term_is_in_a_word_with_a_soft_hyphen() -> None:
    term = generation_pb2.Term(source="coffee", target="Kaffee")
    [part] = read_source("some cof\u00adfee", MODEL, terms=[term]).parts
    assert part.terms == [term]
    assert part.tokens == MODEL.tokenizer.encode("some coffee")


def test_tokens_that_the_model_adds_count_too() -> None:
    affixes = Affixes(after=(5,))
    assert run_now(reader(affixes).read("a" * (MAX_SOURCE - 2))).num_tokens == MAX_SOURCE
    with pytest.raises(InvalidRequest, match="the end token and 1 of the model; echo/1 reads at"):
        run_now(reader(affixes).read("a" * (MAX_SOURCE - 1)))


def test_each_part_is_tokenized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = MODEL.tokenizer.encode

    def counted(text: str) -> list[int]:
        encoded.append(text)
        return encode(text)

    monkeypatch.setattr(MODEL.tokenizer, "encode", counted)
    steps = reader(mode=SegmentationMode.SENTENCES).read("It rains. We go.  Now\nfour")
    source = run_now(steps)
    assert encoded == [part.original for part in source.parts]
    assert len(encoded) == 4


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        *((text, False) for text in ("102", "2024-05-17", "$5.99", "♪ ♪", "-----", "4.")),
        ("\N{ROMAN NUMERAL FOUR}", False),
        ("\N{COMBINING ACUTE ACCENT}", False),
        *((text, True) for text in ("5 m", "ª", "漢", "ـ", "\u0939\u093f")),
    ],
)
@pytest.mark.parametrize("mode", [SegmentationMode.LINES, SegmentationMode.SENTENCES])
def test_only_what_has_a_letter_is_read(text: str, is_read: bool, mode: SegmentationMode) -> None:
    source = run_now(reader(mode=mode).read(f"{text}\nIt rains."))
    segments = [part.original for part in source.parts if part.tokens]
    assert segments == ([text, "It rains."] if is_read else ["It rains."])
    assert "\n".join(part.original for part in source.parts) == f"{text}\nIt rains."


@pytest.mark.parametrize(
    ("limit", "mode", "lengths"),
    [
        (200, SegmentationMode.SENTENCES, [100, 100, 50]),
        (100, SegmentationMode.SENTENCES, [64, 64, 64, 58]),
        (200, SegmentationMode.LINES, [200, 50]),
    ],
)
def test_a_sentence_of_more_than_half_of_the_limit_is_wrapped(
    limit: int, mode: SegmentationMode, lengths: list[int]
) -> None:
    limits = Limits(max_source_length=limit, max_target_length=MAX_TARGET)
    model = echo_model(replace(manifest(), limits=limits))
    reader = SourceReader(model, meant(segmentation=Segmentation(mode)))
    # Each part has its end token too.
    source = run_now(reader.read("a" * (250 - len(lengths))))
    assert [len(part.tokens) for part in source.parts] == lengths


def test_a_long_segment_without_a_letter_stays_and_a_source_that_is_not_divided_is_read() -> None:
    source = run_now(reader(mode=SegmentationMode.LINES).read("1, " * MAX_SOURCE + "\nword"))
    assert [part.original for part in source.parts if part.tokens] == ["word"]
    assert run_now(reader().read("102")).parts[0].tokens


def test_a_target_may_be_empty_and_has_a_longest_length() -> None:
    assert target_tokens(MODEL, "", NO_AFFIXES) == [MODEL.tokenizer.eos_id]
    assert len(target_tokens(MODEL, "a" * MAX_TARGET, Affixes())) == MAX_TARGET + 1
    for text in ("a" * (MAX_TARGET + 1), "a" * (MAX_TARGET * 32 + 1)):
        assert refusal(target_tokens, MODEL, text, Affixes()).field == "target"


@pytest.mark.parametrize("is_default", [False, True])
def test_a_lone_sentence_is_divided_only_where_asked_for_or_needed(is_default: bool) -> None:
    sentences = Segmentation(SegmentationMode.SENTENCES, is_default=is_default)
    reader = SourceReader(MODEL, meant(segmentation=sentences))
    alone = run_now(reader.read(" It rains. "))
    assert alone.is_divided is not is_default
    assert alone.parts[0].original == (" It rains. " if is_default else "It rains.")
    two = run_now(reader.read("It rains. We go."))
    assert two.is_divided and len(two.parts) == 2
    # With so much white space the model could not read it as a whole.
    wide = run_now(reader.read(" " * MAX_SOURCE * 40 + "It rains."))
    assert wide.is_divided and wide.parts[0].original == "It rains."

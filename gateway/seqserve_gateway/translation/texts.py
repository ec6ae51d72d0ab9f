"""Texts and documents through an array of calls: markup stays, and follows the words around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from seqserve.arguments import GenerateOptions
from seqserve.declarations import DECLARATIONS
from seqserve.documents.passage import (
    Passage,
    Translation,
    parts,
    parts_of,
    source_of,
    translation_of,
)
from seqserve.errors import FailedPrecondition
from seqserve.results import DetectedLanguage, Result, Segment
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure
from seqserve_gateway.translation.languages import Languages

Parse: TypeAlias = Callable[[str], Iterable[Passage]]
"""Reads the passages of a text of one format."""
_LONG = 20_000
# Each takes a kilobyte or two until the request ends; hardly more are translated by its deadline.
_MOST_PASSAGES = 20_000
_MOST_KEPT = DECLARATIONS["keep"].max_items
# Beams that find alternatives worth reading.
_LEAST_BEAMS = 5


@dataclass(frozen=True, slots=True)
class Translated:
    """The translation of a text, and the next best ones."""

    text: str
    source: DetectedLanguage
    """The language of its source."""
    alternatives: Sequence[str] = ()


def plain(text: str) -> list[Passage]:
    """Returns a text as one passage, or several if it is too long for a call."""
    return [Passage(line=0, source=part, text=part) for part in parts(text)]


async def translated(
    call: Call,
    texts: Sequence[str],
    parse: Parse,
    languages: Languages,
    options: GenerateOptions | None = None,
    alternatives: int = 0,
) -> list[Translated]:
    """Translates texts, in order. What has no letter, or is in the target language, stays as it is.

    A source language is detected once for each text, not for each passage of it.

    Args:
        call: The request; its calls share a window.
        texts: The texts.
        parse: Reads the passages of each.
        languages: The source and the target language.
        options: Of every call, beside the languages.
        alternatives: Most other translations of each text.

    Raises:
        CallError: A text could not be translated.
        Failure: The languages are wrong, or there is too much to translate.
    """
    options = {
        "segmentation": "sentences",
        "keep_placeholders": True,
        "target_language": languages.target,
        **(options or {}),
    }
    if alternatives:
        count = alternatives + 1
        options |= {"num_hypotheses": count, "beam_size": max(count, _LEAST_BEAMS)}
    documents = await _parsed(call, texts, parse)
    answers = [[text] for text in texts]
    with languages.errors():
        sources = [await languages.source_of(call, _words_of(document)) for document in documents]
        for code in dict.fromkeys(source.language for source in sources):
            if languages.are_equal(code):
                continue
            numbers = [number for number, source in enumerate(sources) if source.language == code]
            options["source_language"] = code
            written = await _documents(call, [documents[n] for n in numbers], options)
            for number, ranked in zip(numbers, written, strict=True):
                answers[number] = ranked
    return [
        Translated(best, source, others[:alternatives])
        for (best, *others), source in zip(answers, sources, strict=True)
    ]


async def _parsed(call: Call, texts: Sequence[str], parse: Parse) -> list[list[Passage]]:
    """Reads the passages of each text; long ones beside the event loop, which others wait for."""

    def parsed() -> list[list[Passage]]:
        documents, left = [], _MOST_PASSAGES
        for text in texts:
            documents.append([*islice(parse(text), left + 1)])
            left -= len(documents[-1])
            if left < 0:
                reason = f"there are more than {_MOST_PASSAGES:,} passages to translate"
                raise Failure("INVALID_ARGUMENT", f"{reason}; send them in parts", 413)
        return documents

    return await call.aside(parsed) if sum(map(len, texts)) > _LONG else parsed()


def _words_of(document: Sequence[Passage]) -> str:
    return "\n".join(passage.text for passage in document if passage.has_words)


async def _documents(
    call: Call, documents: Sequence[Sequence[Passage]], options: GenerateOptions
) -> list[list[str]]:
    """Returns the translations of each document, the best first."""
    passages = [passage for document in documents for passage in document]
    answers = iter(await _answers(call, passages, options))
    return [_joined([next(answers) for _ in document]) for document in documents]


async def _answers(
    call: Call, passages: Sequence[Passage], options: GenerateOptions
) -> list[list[str]]:
    """Returns the translations of each passage, the best first, with what stands before it."""
    answers = [[passage.before + passage.source] for passage in passages]
    for is_marked in (False, True):
        numbers = [
            number
            for number, passage in enumerate(passages)
            if passage.has_words and (passage.split_passages is not None) is is_marked
        ]
        results = await _results(call, [passages[n] for n in numbers], options, is_marked)
        for number, result in zip(numbers, results, strict=True):
            answers[number] = await _written(call, passages[number], result, options)
    return answers


async def _results(
    call: Call, passages: Sequence[Passage], options: GenerateOptions, is_marked: bool
) -> Sequence[Result | None]:
    """Returns the results of passages; None if the model cannot align what it writes."""
    results: list[Result | None] = []
    for group, own in _requests(passages):
        try:
            results += await call.generate_all([passage.text for passage in group], **options | own)
        except FailedPrecondition as error:
            # Failures within a batch have no reason that programs can read.
            if not is_marked or "scorer" not in error.details:
                raise
            results += [None] * len(group)
    return results


def _requests(
    passages: Sequence[Passage],
) -> Iterator[tuple[list[Passage], GenerateOptions]]:
    """Groups passages, in order, with what their markup needs; a request keeps so many texts."""
    group: list[Passage] = []
    options: GenerateOptions = {}
    keep: set[str] = set()
    for passage in passages:
        if len(keep.union(passage.kept)) > _MOST_KEPT:
            yield group, options
            group, options, keep = [], {}, set()
        group.append(passage)
        keep.update(passage.kept)
        _, own = source_of(passage)
        options |= own
        if keep:
            options["keep"] = sorted(keep)
    if group:
        yield group, options


async def _written(
    call: Call, passage: Passage, result: Result | None, options: GenerateOptions
) -> list[str]:
    if passage.split_passages is not None and (
        result is None or not translation_of(result).alignment
    ):
        # Its markup cannot be placed, so it divides the text.
        answers = await _answers(call, [*parts_of(passage)], options)
        return ["".join(texts[0] for texts in answers)]
    assert result is not None
    translations = [translation_of(result)]
    if passage.split_passages is None:
        translations += map(Translation, _others(result))
    return [passage.before + passage.written(each) for each in translations]


def _others(result: Result) -> list[str]:
    """Returns the texts after the best one, in which every segment has its next hypothesis."""
    if not result.segments:
        return [hypothesis.text for hypothesis in result.hypotheses[1:]]
    count = max(len(segment.hypotheses) for segment in result.segments)
    return [_nth(result, rank) for rank in range(1, count)]


def _nth(result: Result, rank: int) -> str:
    pieces, end = [], 0
    for segment in result.segments:
        pieces += [result.text[end : segment.target_begin], _text_of(result, segment, rank)]
        end = segment.target_end
    return "".join([*pieces, result.text[end:]])


def _text_of(result: Result, segment: Segment, rank: int) -> str:
    if rank < len(segment.hypotheses):
        return segment.hypotheses[rank].text
    return result.text[segment.target_begin : segment.target_end]


def _joined(answers: Sequence[Sequence[str]]) -> list[str]:
    """Joins the passages of a text, for each rank; one that has no more has its best again."""
    count = max(map(len, answers), default=0)
    texts = [
        "".join(each[rank if rank < len(each) else 0] for each in answers) for rank in range(count)
    ]
    return list(dict.fromkeys(texts)) or [""]

"""Translates texts and documents; markup stays, and follows the words that it encloses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from seqserve.arguments import GenerateOptions
from seqserve.declarations import DECLARATIONS
from seqserve.documents.passage import (
    ParseError,
    Passage,
    Translation,
    parts,
    parts_of,
    translation_of,
)
from seqserve.documents.xml_source import Node
from seqserve.documents.xml_text import Role, Table
from seqserve.errors import FailedPrecondition
from seqserve.language_codes import folded
from seqserve.results import DetectedLanguage, Result, Segment
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure, refusal
from seqserve_gateway.languages import sources_of

Parse: TypeAlias = Callable[[str], Iterable[Passage]]
"""Reads the passages of a text of one format."""
_LONG = 20_000
# Each takes one or two kilobytes until the request ends; hardly more are done by its deadline.
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
    source: str,
    target: str,
    options: GenerateOptions | None = None,
    alternatives: int = 0,
) -> list[Translated]:
    """Translates texts, in order; without a letter, or in the target language, one stays as it is.

    A source language is detected once for each text, not for each passage of it.

    Args:
        call: The request; its calls share a window.
        texts: The texts.
        parse: Reads the passages of each.
        source: Code of the language of the texts, or AUTO.
        target: Code of the language to translate to.
        options: Further options of every call.
        alternatives: Most other translations of each text.
    """
    options = {
        "segmentation": "sentences",
        "keep_placeholders": True,
        "target_language": target,
        **(options or {}),
    }
    if alternatives:
        count = alternatives + 1
        options |= {"num_hypotheses": count, "beam_size": max(count, _LEAST_BEAMS)}
    documents = await _parsed(call, texts, parse)
    answers = [[text] for text in texts]
    sources = await sources_of(call, [_words_of(each) for each in documents], source, target)
    for code in dict.fromkeys(each.language for each in sources):
        # A text in the target language stays, whatever the regions are.
        if folded(code).may_be(folded(target)):
            continue
        numbers = [number for number, each in enumerate(sources) if each.language == code]
        options["source_language"] = code
        written = await _documents(call, [documents[n] for n in numbers], options)
        for number, ranked in zip(numbers, written, strict=True):
            answers[number] = ranked
    return [
        Translated(best, detected, others[:alternatives])
        for (best, *others), detected in zip(answers, sources, strict=True)
    ]


async def _parsed(call: Call, texts: Sequence[str], parse: Parse) -> list[list[Passage]]:
    def parsed() -> list[list[Passage]]:
        documents, left = [], _MOST_PASSAGES
        for text in texts:
            documents.append([*islice(parse(text), left + 1)])
            left -= len(documents[-1])
            if left < 0:
                reason = f"there are more than {_MOST_PASSAGES:,} passages to translate"
                raise Failure("INVALID_ARGUMENT", f"{reason}; send them in parts", 413)
        return documents

    # Other requests wait for the event loop.
    return await call.in_thread(parsed) if sum(map(len, texts)) > _LONG else parsed()


def _words_of(document: Sequence[Passage]) -> str:
    return "\n".join(passage.text for passage in document if passage.has_words)


async def _documents(
    call: Call, documents: Sequence[Sequence[Passage]], options: GenerateOptions
) -> list[list[str]]:
    passages = [passage for document in documents for passage in document]
    answers = iter(await _answers(call, passages, options))
    return [_joined([next(answers) for _ in document]) for document in documents]


async def _answers(
    call: Call, passages: Sequence[Passage], options: GenerateOptions
) -> list[list[str]]:
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
    # None where the model cannot align its text.
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
    # A request keeps a limited number of texts.
    group: list[Passage] = []
    options: GenerateOptions = {}
    keep: set[str] = set()
    for passage in passages:
        if len(keep.union(passage.kept)) > _MOST_KEPT:
            yield group, options
            group, options, keep = [], {}, set()
        group.append(passage)
        keep.update(passage.kept)
        if passage.split_passages:
            options["return_alignment"] = True
        if keep:
            options["keep"] = sorted(keep)
    if group:
        yield group, options


async def _written(
    call: Call, passage: Passage, result: Result | None, options: GenerateOptions
) -> list[str]:
    best = None if result is None else translation_of(result)
    if passage.split_passages is not None and (best is None or not best.alignment):
        # Its markup cannot be placed, so it divides the text.
        divided = list(parts_of(passage))
        answers = await _answers(call, divided, options)
        return ["".join(texts[0] for texts in answers)]
    assert best is not None and result is not None
    others = [] if passage.split_passages else _others(result)
    translations = [best, *map(Translation, others)]
    return [passage.before + passage.written(each) for each in translations]


def _others(result: Result) -> list[str]:
    # In each text after the best one, every segment has its next hypothesis.
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
    # A passage without a text of a rank has its best one again.
    count = max(map(len, answers), default=0)
    texts = [
        "".join(each[rank if rank < len(each) else 0] for each in answers) for rank in range(count)
    ]
    return list(dict.fromkeys(texts)) or [""]


def xml(
    text: str,
    ignored: Collection[str] = (),
    splitting: Collection[str] = (),
    non_splitting: Collection[str] = (),
    *,
    has_outline: bool = True,
) -> Iterator[Passage]:
    """Returns the passages of XML as translators exchange it: tags follow the words they enclose.

    Args:
        text: XML, or a part of it.
        ignored: Names of elements that stay as they are, with their content.
        splitting: Names of elements that divide the text.
        non_splitting: Names of elements that do not.
        has_outline: Whether elements beside which there is no text divide it, as paragraphs do.

    Raises:
        Failure: It is not well-formed.
    """
    inline: set[int] = set()

    def role(node: Node, parent: Node) -> Role:
        if node.name in ignored:
            return Role.PROTECTED
        if node.name in splitting:
            return Role.STRUCTURE
        is_within = not has_outline or parent.is_mixed or id(parent) in inline
        if not is_within and node.name not in non_splitting:
            return Role.STRUCTURE
        inline.add(id(node))
        return Role.INLINE

    try:
        return Table(roles={}, namespaces=None, is_text=True, role=role).passages(text)
    except ParseError as error:
        raise refusal("text", f"{error}; with tag_handling=xml it must be") from None

"""Translates texts, whose languages it tells; markup stays, and follows the words it encloses."""

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

from seqserve.arguments import GenerateOptions
from seqserve.declarations import DECLARATIONS
from seqserve.documents.attributes import Languages
from seqserve.errors import FailedPrecondition
from seqserve.language_codes import AUTO, folded
from seqserve.responses import result_of
from seqserve.results import DetectedLanguage, Result
from seqserve.v1.generation_pb2 import STOP_REASON_EOS, GenerateResponse
from seqserve_gateway import RESOURCES
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure, refusal
from seqserve_gateway.reading import (
    Answer,
    Divided,
    Job,
    Part,
    Unreadable,
    outcome,
    ranked,
    warnings_of,
)

Targets: TypeAlias = dict[str, list[str]]
"""Codes of target languages by the source language that is translated into them, in order."""
DETECTION_CHARS = 1000
"""The server detects a language by no more of a text."""
_NAMES: dict[str, str] = json.loads((RESOURCES / "languages.json").read_text("utf-8"))
_DETECTIONS = 8
"""Texts of an array whose languages are detected at a time."""
_BYTES_OF_ANSWER = 4
"""Memory that a byte of a body takes for each answer beyond the first."""
_LONG = 20_000
"""Characters of plain texts that keep others from the event loop for a few milliseconds."""
_TEXT = 50
"""Characters that take as long as one more text."""
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
    warnings: Sequence[str] = ()
    """Probable faults of the best one, in words."""


class Reading:
    """The texts or the file of a job: read, and written with translations."""

    def __init__(self, call: Call, job: Job, field: str) -> None:
        """Reads nothing yet; errors name the field of the request."""
        self._call, self._job, self._field = call, job, field
        self.characters = 0
        """Characters of the translated texts, once they were read."""
        size = sum(_TEXT + len(text) for text in job.texts)
        self._is_short = job.form == "plain" and size <= _LONG

    async def __call__(self, function: str, *given: Any) -> Any:
        """Returns what a function of :mod:`.reading` returns for the job.

        It runs in another process, but for a short plain text.
        """
        try:
            if self._is_short:
                return outcome(function, self._job, *given)
            return await self._call.reading(function, self._job, *given)
        except Unreadable as error:
            if error.status == 413:
                raise Failure("INVALID_ARGUMENT", error.reason, 413) from None
            raise refusal(self._field, error.reason) from None


async def translated(
    call: Call,
    job: Job,
    field: str,
    source: str,
    target: str,
    options: GenerateOptions | None = None,
    alternatives: int = 0,
) -> list[Translated]:
    """Translates texts, in order; without a letter, or in the target language, one stays as it is.

    A source language is detected once for each text, not for each passage.

    Args:
        field: Their field of the request.
        source: Code of the language of the texts, or AUTO.
        alternatives: Most other translations of each text.
    """
    if alternatives:
        call.take_memory(_BYTES_OF_ANSWER * alternatives * len(call.body))
        count = alternatives + 1
        beams: GenerateOptions = {"num_hypotheses": count, "beam_size": max(count, _LEAST_BEAMS)}
        options = (options or {}) | beams
    reading = Reading(call, job._replace(languages=Languages(source, target)), field)
    sources, answers = await answers_of(call, reading, source, target, options)
    written: list[list[str]] = await reading("write", answers)
    return [
        Translated(best, detected, others[:alternatives], [*warnings_of(own or ())])
        for (best, *others), detected, own in zip(written, sources, answers, strict=True)
    ]


async def _sources_of(
    call: Call, texts: Sequence[str], source: str, target: str
) -> list[DetectedLanguage]:
    # If the source is AUTO, the most probable one. A text without words may be in any language, so
    # it counts as one in the target language, as does a text whose language cannot be told.
    if source != AUTO:
        return [DetectedLanguage(language=source, confidence=1.0)] * len(texts)
    known = await call.recent(targets_of) if any(texts) else {}
    if any(texts) and not known:
        raise refusal(
            "source_language", "is auto, but no model of the server declares its languages"
        )

    async def detected(text: str) -> DetectedLanguage:
        beginning, codes = text[:DETECTION_CHARS], [*known, target]
        found = beginning and await call.client.detect_language(
            beginning, codes, timeout_s=call.left_s
        )
        return found[0] if found else DetectedLanguage(language=target, confidence=0.0)

    return await call.in_turns(detected, texts, _DETECTIONS)


async def _check_target(call: Call, source: str, target: str) -> None:
    # As the server does when it gets a text.
    known = await call.recent(targets_of)
    codes = {*known, *chain(*known.values())}
    if known and not any(folded(code).may_be(folded(target)) for code in codes | {source} - {AUTO}):
        models = f"the models know {', '.join(sorted(codes))}"
        raise refusal("target_language", f"no model writes {target!r:.80}; {models}")


async def targets_of(call: Call) -> Targets:
    """Lists what the server translates; for ``call.recent``, because there may be many pairs."""
    pairs = await call.client.language_pairs(timeout_s=call.left_s)

    def grouped() -> Targets:
        targets: Targets = {}
        for pair in pairs:
            # Share one object between the many pairs of a language.
            source, target = sys.intern(pair.source_language), sys.intern(pair.target_language)
            targets.setdefault(source, []).append(target)
        return {source: sorted(targets[source]) for source in sorted(targets)}

    return await asyncio.to_thread(grouped)


def name_of(code: str) -> str:
    """Returns the English name of a language; the code itself if it is unknown."""
    return _NAMES.get(folded(code).name, code)


async def answers_of(
    call: Call, reading: Reading, source: str, target: str, options: GenerateOptions | None = None
) -> tuple[list[DetectedLanguage], list[list[Answer] | None]]:
    """Returns the language of each text of a reading, and the answers for its passages, None for a
    text that stays."""
    options = {
        "segmentation": "sentences",
        "keep_placeholders": True,
        # Nobody sees them, and steps without are cheaper.
        "return_scores": False,
        "target_language": target,
        **(options or {}),
    }
    documents: list[list[Part]] = await reading("read")
    reading.characters = sum(len(part.text) for each in documents for part in each)
    # There may be many; others have their turn before each step with them.
    await asyncio.sleep(0)
    answers: list[list[Answer] | None] = [None] * len(documents)
    sources = await _sources_of(call, [_beginning(each) for each in documents], source, target)
    for code in dict.fromkeys(each.language for each in sources):
        # A text in the target language stays, whatever the regions are.
        if folded(code).may_be(folded(target)):
            continue
        numbers = [number for number, each in enumerate(sources) if each.language == code]
        options["source_language"] = code
        parts = {(n, m): part for n in numbers for m, part in enumerate(documents[n])}
        await asyncio.sleep(0)
        found = dict(zip(parts, await _answers(call, [*parts.values()], options), strict=True))
        if places := [place for place, each in found.items() if isinstance(each, Divided)]:
            # Their markup cannot be placed, so it divides the text.
            divided: list[list[Part]] = await reading("divided", frozenset(places))
            inner = iter(await _answers(call, [*chain(*divided)], options))
            for place, group in zip(places, divided, strict=True):
                found[place] = Divided([*islice(inner, len(group))])
        for n in numbers:
            answers[n] = [found[n, m] for m in range(len(documents[n]))]
    if not any(chain.from_iterable(each or () for each in answers)):
        # No call has shown yet whether the server accepts the caller, and knows the language.
        await call.check_token()
        await _check_target(call, source, target)
    return sources, answers


def _beginning(document: Sequence[Part]) -> str:
    texts = (part.text for part in document if part.text)
    # Each has a character at least.
    return "\n".join(islice(texts, DETECTION_CHARS))


async def _answers(call: Call, parts: Sequence[Part], options: GenerateOptions) -> list[Answer]:
    answers: list[Answer] = [None] * len(parts)
    for is_marked in (False, True):
        numbers = [n for n, part in enumerate(parts) if part.text and part.is_marked is is_marked]
        results = await _results(call, [parts[n] for n in numbers], options, is_marked)
        for number, result in zip(numbers, results, strict=True):
            answers[number] = result
    return answers


async def _results(
    call: Call, parts: Sequence[Part], options: GenerateOptions, is_marked: bool
) -> Sequence[Answer]:
    is_plain = not (is_marked or options.get("num_hypotheses"))

    def needed(response: GenerateResponse) -> Answer:
        best = response.hypotheses[0]
        is_sound = best.stop_reason == STOP_REASON_EOS and not best.warnings
        is_alone = len(response.hypotheses) == 1 and not response.source_warnings
        if is_plain and is_sound and is_alone:
            return [(best.text, b"", ())]
        result = result_of(response)
        answer = ranked(result, () if is_marked else texts_of(result)[1:], is_marked)
        return answer if answer[0][1] or not is_marked else Divided([])

    results: list[Answer] = []
    for group, keep in _requests(parts):
        texts = [part.text for part in group]
        own: GenerateOptions = {"keep": sorted(keep)} if keep else {}
        if is_marked:
            own["return_alignment"] = True
        try:
            results += await call.generate_all(texts, needed, **options | own)
        except FailedPrecondition as error:
            # Failures within a batch have no reason that programs can read.
            if not is_marked or "scorer" not in error.details:
                raise
            results += [Divided([])] * len(group)
    return results


def _requests(parts: Sequence[Part]) -> Iterator[tuple[list[Part], set[str]]]:
    # Parts, and what they keep: a request keeps a limited number of texts.
    group: list[Part] = []
    keep: set[str] = set()
    for part in parts:
        if part.kept and len(keep.union(part.kept)) > _MOST_KEPT:
            yield group, keep
            group, keep = [], set()
        group.append(part)
        keep.update(part.kept)
    if group:
        yield group, keep


def texts_of(result: Result) -> list[str]:
    """Returns the texts of a result, best first.

    In each text after the best one, every segment has its next hypothesis.
    """
    if not result.segments:
        return [hypothesis.text for hypothesis in result.hypotheses]

    def text(rank: int) -> str:
        pieces, end = [], 0
        for segment in result.segments:
            texts = [each.text for each in segment.hypotheses[rank : rank + 1]]
            own = texts or [result.text[segment.target_begin : segment.target_end]]
            pieces += [result.text[end : segment.target_begin], *own]
            end = segment.target_end
        return "".join([*pieces, result.text[end:]])

    count = max(len(segment.hypotheses) for segment in result.segments)
    return [result.text, *map(text, range(1, count))]

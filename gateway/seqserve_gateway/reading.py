"""Texts and files as passages: finds the text to translate, and writes the translation.

It runs in the processes of :class:`.Readers`, and imports no more than they need. A process keeps
nothing between two jobs, because the answers may take minutes: to write a document, it reads it
again.
"""

import io
import zipfile
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from seqserve.documents import html
from seqserve.documents.archive import check, opened, parser_within, rewrite, text_of, texts_of
from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.formats import ARCHIVES, encoding_of, errors_of, format_of, parser_of
from seqserve.documents.passage import (
    Link,
    ParseError,
    Passage,
    Translation,
    parts,
    parts_of,
    translation_of,
)
from seqserve.documents.plain_text import decoded, encoded, undecoded
from seqserve.documents.report import Report
from seqserve.documents.xml_source import Node, Role
from seqserve.documents.xml_text import Table
from seqserve.errors import OptionError
from seqserve.results import Result

# Each takes about a kilobyte; hardly more are done by the deadline of a request.
_MOST_PASSAGES = 20_000
# Texts that were left, of which a header tells.
_MOST_LEFT = 5
_MAX_UNPACKED = 64 << 20
_MAX_TEXT = 4 << 20


class Unreadable(Exception):
    """A text or a file cannot be read; says why, and a status of HTTP."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason, status)
        self.reason, self.status = reason, status


class Job(NamedTuple):
    """Texts or a file, and how to read them."""

    form: str
    """``"plain"``, ``"html"``, ``"xml"``, or the name of the file, whose suffix tells more."""
    texts: Sequence[str] = ()
    content: bytes | None = None
    """Content of the file."""
    options: Mapping[str, Any] = {}
    """Further arguments of the reader of XML."""
    languages: Languages = UNKNOWN
    """Languages of the texts and of their translations."""


class Part(NamedTuple):
    """A passage as it goes to the server."""

    text: str
    """Empty if there is nothing to translate."""
    kept: tuple[str, ...] = ()
    is_marked: bool = False
    """Whether it needs an alignment, because markup follows its words."""


Ranked: TypeAlias = list[tuple[str, bytes, tuple[str, ...]]]
"""Translations, the best one first, each with its links as bytes: a document has many; and with
what is probably wrong with it."""


class Divided(NamedTuple):
    """A passage whose markup cannot be placed, so that it divides the text."""

    answers: list[Any]
    """Answers of its parts: an ``Answer`` for each."""


Answer: TypeAlias = Ranked | Divided | None
"""Answer for a passage; None if it stays as it is."""


def ranked(result: Result, others: Iterable[str], is_marked: bool) -> Ranked:
    """Returns what is needed of a result, and of the next best texts."""
    best = translation_of(result)
    links = best.alignment if is_marked else ()
    packed = array("I", (place for link in links for place in link)).tobytes()
    alternatives = others if best.text else ()
    return [(best.text, packed, best.warnings), *((text, b"", ()) for text in alternatives)]


def warnings_of(answers: Iterable[Answer]) -> Iterator[str]:
    """Yields what is probably wrong with the best translations of some passages."""
    for answer in answers:
        if isinstance(answer, Divided):
            yield from warnings_of(answer.answers)
        elif answer:
            yield from answer[0][2]


def read(job: Job) -> list[list[Part]]:
    """Returns the passages of each text of a job; a file may have several texts."""
    documents, left = [], _MOST_PASSAGES
    for passages in _documents(job):
        documents.append([_part(passage) for passage in islice(passages, left + 1)])
        left -= len(documents[-1])
        if left < 0:
            reason = f"there are more than {_MOST_PASSAGES:,} passages to translate"
            raise Unreadable(f"{reason}; send them in parts", 413)
    return documents


def divided(job: Job, places: Collection[tuple[int, int]]) -> list[list[Part]]:
    """Returns the parts of passages, which are numbered by their texts and within them."""
    return [
        [_part(part) for part in parts_of(passage)]
        for number, passages in enumerate(_documents(job))
        for place, passage in enumerate(passages)
        if (number, place) in places
    ]


def write(job: Job, answers: Sequence[Sequence[Answer] | None]) -> list[list[str]]:
    """Returns the translations of each text, the best one first.

    Args:
        answers: Of the passages of each text; None for a text that stays.
    """
    return [*_translations(job, answers, Report()).values()]


def write_file(
    job: Job, answers: Sequence[Sequence[Answer] | None]
) -> tuple[bytes, dict[str, Any]]:
    """Returns the file of a job with the best translations, and what became of its texts.

    See :func:`write` and :class:`.Report`.
    """
    report = Report()
    texts = {name: best for name, (best, *_) in _translations(job, answers, report).items()}
    facts = report.facts(_MOST_LEFT)
    assert job.content is not None
    kind, packed = format_of(Path(job.form)), io.BytesIO()
    if kind not in ARCHIVES:
        _, mark, encoding = decoded(job.content, encoding_of(kind, job.content))
        try:
            text = mark + texts[job.form]
            return encoded(text, encoding, errors_of(kind, job.content)), facts
        except OptionError as error:
            raise Unreadable(f"{error}; convert the file to UTF-8") from None
    with (
        opened(io.BytesIO(job.content), job.form, _MAX_UNPACKED) as source,
        zipfile.ZipFile(packed, "w") as archive,
    ):
        rewrite(source, archive, kind, lambda part: texts[part.filename])
    return packed.getvalue(), facts


def outcome(name: str, *given: Any) -> Any:
    """Returns what one of the functions above returns, or why it cannot read its job."""
    functions: dict[str, Any] = {f.__name__: f for f in (read, divided, write, write_file)}
    try:
        return functions[name](*given)
    except RecursionError:
        return Unreadable("is nested too deeply", 413)
    except (ParseError, OptionError) as error:
        return Unreadable(str(error))
    except Unreadable as error:
        return error


def _translations(
    job: Job, answers: Sequence[Sequence[Answer] | None], report: Report
) -> dict[str, list[str]]:
    parse, texts = _opened(job)
    translations: dict[str, list[str]] = {}
    for (name, text), own in zip(texts.items(), answers, strict=True):
        # A text in the target language stays.
        part, translations[name] = "" if name == job.form else name, [text]
        if own is not None:
            passages = zip(parse(text), own, strict=True)
            written = [_written(*each, report, part) for each in passages]
            translations[name] = _joined(written)
        if job.content is not None:
            report.check(parse(translations[name][0]), part)
    return translations


def _documents(job: Job) -> Iterator[Iterable[Passage]]:
    parse, texts = _opened(job)
    return map(parse, texts.values())


def _opened(job: Job) -> tuple[Callable[[str], Iterable[Passage]], Mapping[str, str]]:
    """Returns the parser of the texts of a job, and the texts by their names."""
    if job.content is None:
        parsers: dict[str, Any] = {
            "plain": lambda text: [Passage(line=0, source=p, text=p) for p in parts(text)],
            "xml": partial(xml, **job.options),
        }
        page = partial(html.parse, languages=job.languages)
        return parsers.get(job.form, page), {
            str(number): text for number, text in enumerate(job.texts)
        }
    kind = format_of(Path(job.form))
    parser = parser_of(kind, languages=job.languages)
    if kind not in ARCHIVES:
        texts = {job.form: decoded(job.content, encoding_of(kind, job.content))[0]}
        return lambda text: parser(io.StringIO(text, "")), texts
    with opened(io.BytesIO(job.content), job.form, _MAX_UNPACKED) as archive:
        own_parts = texts_of(kind, archive)
        if (size := sum(part.file_size for part in own_parts)) > _MAX_TEXT:
            raise OptionError(f"{job.form}: has text of {size:,} bytes; {_MAX_TEXT:,} can be read")
        check(archive)
        own = parser_within(archive, kind, parser)
        texts = {part.filename: text_of(archive, part) for part in own_parts}
        return lambda text: own(io.StringIO(text, "")), texts


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
        ignored: Names of elements that stay as they are, with their content.
        splitting: Names of elements that divide the text.
        non_splitting: Names of elements that do not.
        has_outline: Whether elements without text next to them divide it, as paragraphs do.

    Raises:
        ParseError: It is not well-formed.
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

    return Table(roles={}, namespaces=None, is_text=True, role=role).parse([text])


def _part(passage: Passage) -> Part:
    if not passage.has_words:
        return Part("")
    if place := undecoded(passage.text):
        raise Unreadable(f"line {passage.line} has {place}, which is not text")
    return Part(passage.text, passage.kept, passage.split_passages is not None)


def _written(passage: Passage, answer: Answer, report: Report, part: str) -> list[str]:
    if isinstance(answer, Divided):
        both = zip(parts_of(passage), answer.answers, strict=True)
        return ["".join(_written(*each, report, part)[0] for each in both)]
    translations = [*starmap(_translation, answer or ())]
    texts = [each for each in translations if not each.fault]
    if translations and not texts:
        report.leave(passage, translations[0].fault, part)
    written = [passage.before + passage.written(each) for each in texts]
    if not answer or texts:
        best, warnings = (texts[0].text, texts[0].warnings) if texts else (None, ())
        report.add(passage, best, part, warnings)
    return written or [passage.before + passage.source]


def _translation(text: str, packed: bytes, warnings: tuple[str, ...]) -> Translation:
    numbers = iter(array("I", packed))
    return Translation(text, tuple(map(Link, numbers, numbers, numbers, numbers)), warnings)


def _joined(answers: Sequence[Sequence[str]]) -> list[str]:
    # A passage without a text of a rank has its best one again.
    count = max(map(len, answers), default=0)
    texts = [
        "".join(each[rank if rank < len(each) else 0] for each in answers) for rank in range(count)
    ]
    return list(dict.fromkeys(texts)) or [""]

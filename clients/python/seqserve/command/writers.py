"""Output of ``seqserve generate`` and ``seqserve translate``: answers in order, and reports."""

import math
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

from seqserve.command.journal import Journal
from seqserve.command.process import OutputLost
from seqserve.documents.passage import Passage, Translation, ends_of, translation_of
from seqserve.documents.plain_text import encoded
from seqserve.documents.report import Report
from seqserve.errors import CallError, OptionError, invalid_argument
from seqserve.output import json_line
from seqserve.results import Hypothesis, Piece, Result, SourceWarning

Outcome: TypeAlias = Result | CallError | None
"""The result of a passage or its own error; None for a passage that was not sent."""

_MAX_RANGES = 20
_WARNINGS = {
    SourceWarning.UNKNOWN_CHARACTERS: "letters or symbols that it does not know",
    SourceWarning.OTHER_SCRIPT: "another script, perhaps for the model of another"
    " --source-language",
    SourceWarning.MARKUP: "markup",
    SourceWarning.UNSPECIFIED: "for a reason that this client does not know",
}


class LineNumbers:
    """Counts line numbers, which never decrease, and shows the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self._ranges: list[tuple[int, int]] = []
        self._others = 0

    def add(self, number: int) -> None:
        """Adds a number; one that is the last one again counts once more and is shown once."""
        self.count += 1
        last = self._ranges[-1][1] if self._ranges else 0
        if number == last:
            return
        if self._others or (len(self._ranges) == _MAX_RANGES and last < number - 1):
            self._others += 1
        elif self._ranges and last == number - 1:
            self._ranges[-1] = (self._ranges[-1][0], number)
        else:
            self._ranges.append((number, number))

    def of(self, label: str) -> str:
        """Shows them after their word: ``line 9``, ``lines 2-3, 9``."""
        return f"{label}{'' if str(self).isdecimal() else 's'} {self}"

    def __str__(self) -> str:
        """Shows ranges: ``2-3, 9``."""
        ranges = (str(a) if a == b else f"{a}-{b}" for a, b in self._ranges)
        return ", ".join(ranges) + (f" and {self._others} more" if self._others else "")


@dataclass(kw_only=True)
class Writer(ABC):
    """Receives the passages of a document in order, with their outcomes."""

    label: str
    """The word before the number of a source in reports, such as "line"."""
    before_report: Callable[[], object] = lambda: None
    """Called before each report."""
    count: int = 0
    """Number of sources that have their answer or error."""
    failed: LineNumbers = field(default_factory=LineNumbers)
    """Numbers of the sources that failed."""

    def is_sent(self, passage: Passage) -> bool:
        """Returns whether the server is to answer a passage; the thread that reads calls it."""
        return True

    @abstractmethod
    def write(self, passage: Passage, outcome: Outcome) -> None:
        """Writes the answer of a passage."""

    def report(self, number: int, what: object) -> None:
        """Reports something about a source on standard error."""
        self.before_report()
        print(f"seqserve: {self.label} {number}: {what}", file=sys.stderr, flush=True)


@dataclass(kw_only=True)
class AnswerWriter(Writer):
    """Writes an answer for every source on standard output; subclasses choose the format."""

    verbose: bool
    """Whether to report token counts and timings too."""
    line_end: str = "\n"
    """How lines of the output end."""
    shared: dict[str, LineNumbers] = field(default_factory=lambda: defaultdict(LineNumbers))
    """Faults that many sources may have, with the numbers of these; reported at the end."""

    def write(self, passage: Passage, outcome: Outcome) -> None:
        """Writes the answer of a source; an empty one has an empty answer."""
        number, is_empty = passage.line, not passage.text.strip()
        if passage.fault:
            outcome = invalid_argument("source", passage.fault)
        if isinstance(outcome, CallError) and not is_empty:
            # Ends the line that a stream may have begun, so that later lines match their sources.
            self._write(number, self._of_failure(outcome))
            self.failed.add(number)
            self.report(number, outcome)
        else:  # the server refuses an empty source
            result = None if isinstance(outcome, CallError) else outcome
            self._write(number, self._of_result(result))
            self._report_result(number, result)

    def report_shared(self) -> None:
        """Reports each fault that many sources may have, in one line."""
        for fault, numbers in self.shared.items():
            print(f"seqserve: {numbers.of(self.label)}: {fault}", file=sys.stderr)

    def piece(self, number: int, piece: Piece) -> None:
        """Writes a piece of a stream; the last one ends the answer."""
        self._write(self.count if piece.result is None else number, self._of_piece(piece))
        self._report_result(number, piece.result)

    def _write(self, count: int, text: str) -> None:
        # Counted first: if an interrupt comes meanwhile, the end of the process does the rest.
        before, self.count = self.count, count
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OutputLost:
            self.count = before
            raise

    def _of_result(self, result: Result | None) -> str:
        raise NotImplementedError

    def _of_piece(self, piece: Piece) -> str:
        raise NotImplementedError

    def _of_failure(self, error: CallError) -> str:
        return self._of_result(None)

    def _report_result(self, number: int, result: Result | None) -> None:
        if not self.verbose or result is None:
            return
        timings = result.timings
        score = "" if result.score is None else f", score {result.score:.3f}"
        models = " → ".join(f"{leg.model}/{leg.version}" for leg in result.legs or (result,))
        detected = result.detected_language
        language = f"{detected.language} ({detected.confidence:.2f}), " if detected else ""
        self.report(
            number,
            f"{language}{models}, {result.source_tokens} tokens in, {result.generated_tokens} out, "
            f"stop {result.stop_reason.value}{score}; "
            f"queue {timings.queue_ms:.1f} ms, encode {timings.encode_ms:.1f} ms, "
            f"decode {timings.decode_ms:.1f} ms, first token {timings.first_token_ms:.1f} ms, "
            f"total {timings.total_ms:.1f} ms",
        )


@dataclass(kw_only=True)
class TextWriter(AnswerWriter):
    """Writes a fixed number of lines for each source, empty ones for missing hypotheses.

    The answer to a text in segments has as many lines as the text. Unmet terms and warnings go to
    standard error, because a line has no room for them.
    """

    hypotheses: int
    """Number of lines for each source."""
    scores: bool
    """Whether to write the score and a tab before each text."""
    keeps_lines: bool = False
    """Whether line breaks of an answer are written, because its source has them too."""

    def _of_result(self, result: Result | None) -> str:
        return self._lines([self._line_of(each) for each in result.hypotheses] if result else [])

    def _of_piece(self, piece: Piece) -> str:
        return self._shown(piece.text) + ("" if piece.result is None else self.line_end)

    def _report_result(self, number: int, result: Result | None) -> None:
        super()._report_result(number, result)
        if result and result.source_warnings:
            reasons = ", ".join(_WARNINGS[each] for each in result.source_warnings)
            self.shared[f"the model probably cannot read it: {reasons}"].add(number)
        for rank, hypothesis in enumerate(result.hypotheses if result else (), start=1):
            unmet = ", ".join("=".join(term) for term in hypothesis.unmet_terms)
            which = f"hypothesis {rank}: " if self.hypotheses > 1 else ""
            for fault in [f"unmet terms: {unmet}"] * bool(unmet) + [*hypothesis.warnings]:
                self.report(number, f"{which}{fault}")
            for fault in ends_of(hypothesis):
                self.shared[which + fault].add(number)

    def _lines(self, lines: list[str]) -> str:
        end = self.line_end
        missing = [""] * (self.hypotheses - len(lines))
        return end.join([*lines, *missing]) + end

    def _line_of(self, hypothesis: Hypothesis) -> str:
        if not self.scores:
            return self._shown(hypothesis.text)
        # A hypothesis that its time limit ended in the queue has no score.
        score = math.nan if hypothesis.normalized_score is None else hypothesis.normalized_score
        return f"{score:.4f}\t{self._shown(hypothesis.text)}"

    def _shown(self, text: str) -> str:
        # Each character by itself: "\r" may end one piece of a stream and "\n" begin the next.
        return text if self.keeps_lines else text.replace("\r", " ").replace("\n", " ")


class JsonWriter(AnswerWriter):
    """Writes one JSON object a line: a result, a piece of a stream, or an error."""

    def _of_result(self, result: Result | None) -> str:
        facts = {"text": result.text, **asdict(result)} if result else {"text": ""}
        return f"{json_line(facts)}\n"

    def _of_piece(self, piece: Piece) -> str:
        if piece.result is not None:
            return self._of_result(piece.result)
        return f"{json_line({'piece': piece.text, 'token_ids': piece.token_ids})}\n"

    def _of_failure(self, error: CallError) -> str:
        facts = {"code": error.code, "details": error.details, "field": error.field}
        return f"{json_line({'error': facts})}\n"


@dataclass(kw_only=True)
class DocumentWriter(Writer):
    """Writes the translations of passages and everything between them.

    A passage that fails stays as it is.
    """

    encoding: str
    """Encoding of the document."""
    errors: str = "strict"
    """What to do with characters that the encoding lacks, as ``str.encode`` takes it."""
    output: Callable[[str], object]
    """A stream to write to."""
    journal: Journal | None = None
    """Translations that an earlier run has made."""
    totals: Report = field(default_factory=Report)
    """Report of the passages."""
    part: str = ""
    """The part of an archive that is written."""

    def is_sent(self, passage: Passage) -> bool:
        """Returns whether a passage has words whose translation is not known."""
        return passage.has_words and not passage.fault and self._known(passage) is None

    def write(self, passage: Passage, outcome: Outcome) -> None:
        """Writes the translation of a passage, or the passage itself if it failed."""
        self.count += passage.has_words or bool(passage.fault)
        if passage.fault:
            self._fail(passage, passage.fault)
        elif isinstance(outcome, CallError):
            self._fail(passage, str(outcome))
        elif outcome is None:
            known = self._known(passage) if passage.has_words else None
            text = passage.source if known is None else self._encodable(passage.written(known))
            best, warnings = (known.text, known.warnings) if known else (None, ())
            self.totals.add(passage, best, self.part, warnings)
            self.output(passage.before + text)
        else:
            self._add(passage, translation_of(outcome))

    def _add(self, passage: Passage, translation: Translation) -> None:
        if translation.fault:
            self._fail(passage, translation.fault)
            return
        text = passage.written(translation)
        try:
            text = self._encodable(text)
        except OptionError as error:
            self._fail(passage, str(error))
            return
        if self.journal is not None:
            self.journal.add(passage.text, translation)
        self.totals.add(passage, translation.text, self.part, translation.warnings)
        for warning in translation.warnings:
            self.report(passage.line, warning)
        self.output(passage.before + text)

    def _encodable(self, text: str) -> str:
        return encoded(text, self.encoding, self.errors).decode(self.encoding)

    def _known(self, passage: Passage) -> Translation | None:
        known = None if self.journal is None else self.journal.get(passage.text)
        return known if known is None or known.alignment or not passage.split_passages else None

    def _fail(self, passage: Passage, reason: str) -> None:
        self.failed.add(passage.line)
        self.totals.leave(passage, reason, self.part)
        self.output(passage.before + passage.source)
        self.report(passage.line, reason)

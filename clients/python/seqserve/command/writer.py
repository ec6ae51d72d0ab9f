"""Output of ``seqserve generate``: answers on standard output, reports on standard error."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from seqserve.command.process import OutputLost
from seqserve.command.run.document_run import Outcome
from seqserve.command.run.order import LineNumbers
from seqserve.documents.passage import Passage
from seqserve.errors import CallError, invalid_argument
from seqserve.output import json_line
from seqserve.results import Hypothesis, Piece, Result, SourceWarning

_WARNINGS = {
    SourceWarning.UNKNOWN_CHARACTERS: "letters or symbols that it does not know",
    SourceWarning.OTHER_SCRIPT: "another script, perhaps for the model of another"
    " --source-language",
    SourceWarning.MARKUP: "markup",
    SourceWarning.UNSPECIFIED: "for a reason that this client does not know",
}


@dataclass(kw_only=True)
class Writer:
    """Writes the answer of each source; subclasses choose the format."""

    unit: str
    """Name of a source in reports: text or line."""
    verbose: bool
    """Whether to report token counts and timings too."""
    count: int = 0
    """Number of sources that have their answer or error."""
    line_end: str = "\n"
    """How lines of the output end."""
    before_report: Callable[[], object] = lambda: None
    """Called before each report."""
    failed: LineNumbers = field(default_factory=LineNumbers)
    """Numbers of the sources that failed."""

    def is_sent(self, passage: Passage) -> bool:
        """Tells that the server gets every source, so that each is answered when it is read."""
        return True

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
        else:
            # The server refuses an empty source.
            result = None if isinstance(outcome, CallError) else outcome
            self._write(number, self._of_result(result))
            self._report_result(number, result)

    def piece(self, number: int, piece: Piece) -> None:
        """Writes a piece of a stream; the last one ends the answer."""
        self._write(self.count if piece.result is None else number, self._of_piece(piece))
        self._report_result(number, piece.result)

    def _write(self, count: int, text: str) -> None:
        """Hands text on, after which so many sources have their answer."""
        # Counted first: if an interrupt comes while it is handed on, the end of the process does
        # the rest.
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
        raise NotImplementedError

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
            f"{language}{models}, "
            f"{result.source_tokens} tokens in, {result.generated_tokens} out, "
            f"stop {result.stop_reason.value}{score}; "
            f"queue {timings.queue_ms:.1f} ms, encode {timings.encode_ms:.1f} ms, "
            f"decode {timings.decode_ms:.1f} ms, first token {timings.first_token_ms:.1f} ms, "
            f"total {timings.total_ms:.1f} ms",
        )

    def report(self, number: int, what: object) -> None:
        """Reports something about a source on standard error."""
        self.before_report()
        print(f"seqserve: {self.unit} {number}: {what}", file=sys.stderr, flush=True)


@dataclass(kw_only=True)
class TextWriter(Writer):
    """Writes a fixed number of lines for each source, empty ones for missing hypotheses.

    A text in segments is answered in as many lines as it has. Reports unmet terms and warnings of
    sources on standard error, because a line has no place for them.
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

    def _of_failure(self, error: CallError) -> str:
        return self._lines([])

    def _report_result(self, number: int, result: Result | None) -> None:
        super()._report_result(number, result)
        if result and result.source_warnings:
            reasons = ", ".join(_WARNINGS[each] for each in result.source_warnings)
            self.report(number, f"the model probably cannot read it: {reasons}")
        for rank, hypothesis in enumerate(result.hypotheses if result else (), start=1):
            if hypothesis.unmet_terms:
                terms = ", ".join("=".join(term) for term in hypothesis.unmet_terms)
                which = f" of hypothesis {rank}" if self.hypotheses > 1 else ""
                self.report(number, f"unmet terms{which}: {terms}")

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


class JsonWriter(Writer):
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

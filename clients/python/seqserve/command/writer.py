"""How ``seqserve generate`` writes: answers on standard output, reports on standard error."""

from __future__ import annotations

import sys
from dataclasses import asdict

from seqserve.command.json_line import json_line
from seqserve.errors import CallError
from seqserve.results import Hypothesis, Piece, Result


class Writer:
    """Writes what came of each source; the subclasses say in which form."""

    def __init__(self, unit: str, *, verbose: bool) -> None:
        """Keeps the settings.

        Args:
            unit: What a source is called in reports: a text or a line.
            verbose: Report tokens and timings too.
        """
        self.failures = 0
        self._unit = unit
        self._verbose = verbose

    def result(self, number: int, result: Result | None) -> None:
        """Writes an answer in one line; None answers an empty source."""
        self._write_result(result)
        self._report(number, result)

    def piece(self, number: int, piece: Piece) -> None:
        """Writes a piece of a stream; the last one ends the answer."""
        self._write_piece(piece)
        self._report(number, piece.result)

    def failure(self, number: int, error: CallError) -> None:
        """Writes that there is no answer, and reports why."""
        self.failures += 1
        self._write_failure(error)
        self._say(number, error)

    def _write_result(self, result: Result | None) -> None:
        raise NotImplementedError

    def _write_piece(self, piece: Piece) -> None:
        raise NotImplementedError

    def _write_failure(self, error: CallError) -> None:
        raise NotImplementedError

    def _report(self, number: int, result: Result | None) -> None:
        if not self._verbose or result is None:
            return
        timings = result.timings
        self._say(
            number,
            f"{result.model}/{result.version}, "
            f"{result.source_tokens} tokens in, {result.generated_tokens} out, "
            f"stop {result.stop_reason.value}, score {result.score:.3f}; "
            f"queue {timings.queue_ms:.1f} ms, encode {timings.encode_ms:.1f} ms, "
            f"decode {timings.decode_ms:.1f} ms, first token {timings.first_token_ms:.1f} ms, "
            f"total {timings.total_ms:.1f} ms",
        )

    def _say(self, number: int, what: object) -> None:
        print(f"seqserve: {self._unit} {number}: {what}", file=sys.stderr, flush=True)


class TextWriter(Writer):
    """Writes so many lines for each source; those that no hypothesis fills are empty.

    Terms that a hypothesis does not contain are reported, for a line has no place for them.
    """

    def __init__(self, unit: str, *, verbose: bool, hypotheses: int, scores: bool) -> None:
        """Keeps the settings.

        Args:
            unit: What a source is called in reports: a text or a line.
            verbose: Report tokens and timings too.
            hypotheses: Lines for each source.
            scores: Write the score, and a tab, before each text.
        """
        super().__init__(unit, verbose=verbose)
        self._hypotheses = hypotheses
        self._scores = scores

    def _write_result(self, result: Result | None) -> None:
        lines = [] if result is None else [self._line_of(each) for each in result.hypotheses]
        self._write_lines(lines)

    def _write_piece(self, piece: Piece) -> None:
        print(_one_line(piece.text), end="" if piece.result is None else "\n", flush=True)

    def _write_failure(self, error: CallError) -> None:
        # Ends what a stream may have begun; the lines stay in step with their source.
        self._write_lines([])

    def _report(self, number: int, result: Result | None) -> None:
        super()._report(number, result)
        for rank, hypothesis in enumerate(() if result is None else result.hypotheses, start=1):
            if hypothesis.unmet_terms:
                terms = ", ".join("=".join(term) for term in hypothesis.unmet_terms)
                which = f" of hypothesis {rank}" if self._hypotheses > 1 else ""
                self._say(number, f"unmet terms{which}: {terms}")

    def _write_lines(self, lines: list[str]) -> None:
        missing = [""] * (self._hypotheses - len(lines))
        print(*lines, *missing, sep="\n", flush=True)

    def _line_of(self, hypothesis: Hypothesis) -> str:
        score = f"{hypothesis.normalized_score:.4f}\t" if self._scores else ""
        return score + _one_line(hypothesis.text)


class JsonWriter(Writer):
    """Writes one JSON object a line: a result, a piece of a stream, or an error."""

    def _write_result(self, result: Result | None) -> None:
        facts = {} if result is None else asdict(result)
        text = "" if result is None else result.text
        print(json_line({"text": text, **facts}), flush=True)

    def _write_piece(self, piece: Piece) -> None:
        if piece.result is None:
            print(json_line({"piece": piece.text, "token_ids": piece.token_ids}), flush=True)
        else:
            self._write_result(piece.result)

    def _write_failure(self, error: CallError) -> None:
        facts = {"code": error.code, "details": error.details, "field": error.field}
        print(json_line({"error": facts}), flush=True)


def _one_line(text: str) -> str:
    # Each by itself: "\r" may end one piece of a stream and "\n" begin the next.
    return text.replace("\r", " ").replace("\n", " ")

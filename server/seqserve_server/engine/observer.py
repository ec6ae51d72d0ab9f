"""The hooks through which the engine reports what it does; called from any thread."""

from __future__ import annotations

from collections.abc import Sequence

from seqserve_server.contract.events import Event
from seqserve_server.engine.request import Request


class Observer:
    """Ignores every report. Subclasses override what they need, and raise nothing.

    The engine calls no method per row and step.
    """

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        """Sources of these lengths, in tokens, were encoded together."""

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """A worker ran one step: every running row has one more token.

        Args:
            rows: Running rows.
            duration_s: The whole step, encoding included; running rows waited for it.
            outside_s: The part of it that was spent outside ONNX Runtime.
        """

    def drafted(self, drafted: int, accepted: int) -> None:
        """A part of a draft was read, of as many tokens; greedy search writes ``accepted``."""

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Requests have their first token."""

    def ended(self, request: Request, event: Event) -> None:
        """A request has finished or failed."""

    def cancelled(self, request: Request) -> None:
        """A request was cancelled and has left."""

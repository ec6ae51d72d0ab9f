"""What the engine tells of itself; metrics implement it. Called from any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from seqserve_server.contract.events import Event
from seqserve_server.contract.request import Request


class Observer(Protocol):
    """Takes the figures of one engine, and raises nothing. No method is called per row and step."""

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        """Sources of these lengths, in tokens, were encoded together."""

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """A turn is over: every running row has one token more.

        Args:
            rows: Rows that ran.
            duration_s: The whole turn, encoding included; what running rows waited.
            outside_s: The part of it that was spent outside ONNX Runtime.
        """

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Requests have got their first token."""

    def ended(self, request: Request, event: Event) -> None:
        """A request has finished or failed."""

    def cancelled(self, request: Request) -> None:
        """A request was cancelled and has left."""


class NullObserver:
    """Takes no notice."""

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        """Does nothing."""

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """Does nothing."""

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Does nothing."""

    def ended(self, request: Request, event: Event) -> None:
        """Does nothing."""

    def cancelled(self, request: Request) -> None:
        """Does nothing."""

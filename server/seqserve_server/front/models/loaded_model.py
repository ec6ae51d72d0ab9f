"""A model that answers requests: what the reading and the answering of a request need of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.messages import Ready
from seqserve_server.contract.request import Spec
from seqserve_server.front.engine_client.refusals import RefusalCache
from seqserve_server.front.models.answer_cache import VersionAnswers
from seqserve_server.text.tokenizer import Tokenizer


class AnsweringEngine(Protocol):
    """What answers requests, in this process or in others; used in the event loop."""

    capacity: Ready
    """What it can hold."""
    refusals: RefusalCache
    """Its recent refusals."""

    @property
    def pending(self) -> int:
        """Requests that have not ended."""

    def submit(self, spec: Spec, receive: Callable[[Event, Timeline | None], None]) -> int:
        """Begins a request, whose events ``receive`` gets in the loop.

        Returns:
            The request id, for :meth:`cancel`.

        Raises:
            ServiceError: No requests are taken.
        """

    def cancel(self, request_id: int, *, is_late: bool = False) -> None:
        """Cancels a request; no event follows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel:
    """One version of a model: its manifest, tokenizer and engine."""

    manifest: Manifest
    tokenizer: Tokenizer
    engine: AnsweringEngine
    answers: VersionAnswers | None = None
    """Its kept answers; None if none are kept."""
    known_options: dict[bytes, Any] = field(default_factory=dict)
    """Options of recent requests, as they were sent and as they were read."""

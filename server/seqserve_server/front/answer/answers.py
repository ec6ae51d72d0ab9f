"""Prepares the answers to the sources of a request, by one model or by the two of a pivot."""

from __future__ import annotations

from dataclasses import dataclass

from seqserve_server.contract.errors import ServiceError
from seqserve_server.front.answer.pivot import PivotAnswer
from seqserve_server.front.answer.source_answer import SourceAnswer
from seqserve_server.front.answer.window import Windows
from seqserve_server.front.call.answer_size import AnswerSize
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.request.parts import Source
from seqserve_server.front.request.pivot import Pivot
from seqserve_server.front.request.prepared import GenerateRequest, Prepared, prepare
from seqserve_server.front.request.route import Route


@dataclass(frozen=True)
class Answers:
    """The answers to the sources of a request that is prepared."""

    prepared: Prepared | Pivot
    call: ServerCall
    windows: Windows

    @property
    def sources(self) -> list[Source | ServiceError]:
        """The sources, in the order of the request."""
        return self.prepared.sources

    @property
    def answer_size(self) -> AnswerSize:
        """Bound of all answers."""
        return self.prepared.answer_size

    def to(self, source: Source | ServiceError) -> SourceAnswer | PivotAnswer:
        """Prepares the answer to one of the sources.

        Raises:
            ServiceError: The source is one that cannot be answered.
        """
        if isinstance(self.prepared, Pivot):
            return PivotAnswer(self.prepared, source, self.call, self.windows)
        return SourceAnswer(self.prepared, source, self.call, self.windows.parts)


async def answers_of(
    request: GenerateRequest,
    route: Route,
    call: ServerCall,
    windows: Windows | None = None,
    *,
    is_bulk: bool = False,
) -> Answers:
    """Reads a request, and waits until there is memory for its answers.

    Args:
        request: A request for one source or for a batch.
        route: The models that answer it.
        call: The call that it came in.
        windows: Those of the call, if it has more requests.
        is_bulk: Whether the request is one of many of the call.

    Raises:
        ServiceError: As :func:`~seqserve_server.front.request.prepared.prepare`.
    """
    prepared: Prepared | Pivot
    if len(route.models) > 1:
        prepared = await Pivot.prepare(request, route.legs, route.models, call, is_bulk=is_bulk)
    else:
        prepared = await prepare(
            request, route.models[0], call, glossary=route.glossary, is_bulk=is_bulk
        )
    return Answers(prepared, call, windows or Windows.of(route.slots))

"""Runs a request on an engine, unless its answer is kept or an equal request is under way."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from seqserve_server.contract.events import Finished, Timeline
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.refusals import QueueKey
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.calls.call import EngineCall
from seqserve_server.front.telemetry.cache_metrics import Lookup


class CachedCall(EngineCall):
    """A call whose answer need not be computed again.

    A request waits only for one behind which it would wait in the queue too, so it never loses by
    that. Streams wait for no other, because its tokens would come all at once; nor do requests with
    a time limit, because they may end before it. Both take what is kept.
    """

    def __init__(self, model: ServedModel, spec: GenerateSpec) -> None:
        """Prepares the call to a model that keeps answers."""
        super().__init__(model.engine, spec)
        assert model.answers is not None
        self._answers = model.answers
        self._key = model.answers.key_of(spec)
        self._is_shared = not spec.streamed and spec.limit_s == math.inf

    async def finished(self) -> Finished:
        """Finds the answer, waits for that of an equal request, or submits the request.

        Raises:
            ServiceError: The request failed.
        """
        if self._find():
            return self.result()
        if not self._is_shared:
            return await self._computed()
        flight = self._key, QueueKey.of(self.spec)
        if (answer := await self._answers.flights.join(flight)) is not None:
            return self._take(answer, Lookup.JOINED)
        return await self._answers.flights.run(flight, self._computed)

    async def progress(self) -> AsyncGenerator[list[int], None]:
        """Yields all tokens at once if the answer is kept, else as they come.

        Raises:
            ServiceError: The request failed.
        """
        if self._find():
            if cast(GenerateSpec, self.spec).reports_progress:
                yield self.result().best.token_ids
            return
        async with aclosing(super().progress()) as progress:
            async for tokens in progress:
                yield tokens
        self._keep()

    def _find(self) -> bool:
        answer = self._answers.get(self._key)
        if answer is None:
            return False
        self._take(answer, Lookup.HIT)
        return True

    def _take(self, answer: Finished, found: Lookup) -> Finished:
        """Ends with an answer that no engine computed for this call: all its time was waiting."""
        self._answers.counts.lookups[found] += 1
        self.timeline = Timeline(arrived_s=self.spec.arrived_s, finished_s=time.monotonic())
        self._end(answer)
        return answer

    async def _computed(self) -> Finished:
        await super().finished()
        return self._keep()

    def _keep(self) -> Finished:
        answer = self.result()
        self._answers.counts.lookups[Lookup.MISS] += 1
        self._answers.keep(self._key, answer)
        return answer

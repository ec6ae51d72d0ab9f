"""The request of a part: to an engine, or for an answer that is kept."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Self

from seqserve_server.contract.events import Finished, Timeline
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.engine import AnsweringEngine, QueueKey
from seqserve_server.front.generate.engine_call import EngineCall, Result, answer_of
from seqserve_server.front.generate.job import Job
from seqserve_server.front.generate.records import Part
from seqserve_server.front.models.answer_cache import VersionAnswers


class CachedCall(EngineCall[Result]):
    """A call whose answer need not be computed again.

    A request waits only for one that is ahead of it in the queue anyway. Streams wait for no other,
    because all tokens would come at once; nor do requests with a time limit.
    """

    def __init__(
        self,
        answers: VersionAnswers,
        engine: AnsweringEngine,
        spec: GenerateSpec,
        *others: Any,
    ) -> None:
        super().__init__(engine, spec, *others)
        self._answers = answers
        self._key = answers.key_of(spec)
        self._sharing: asyncio.Task[None] | None = None
        self._is_shared = not spec.streamed and spec.limit_s == math.inf

    def begin(self) -> Self:
        """Submits the request unless its answer is kept or in flight."""
        answer = self._answers.get(self._key)
        if answer is not None:
            # Without progress: a stop sequence cuts off some of its tokens.
            self._take(answer, "hit")
        elif self._is_shared:
            self._sharing = asyncio.ensure_future(self._share())
        else:
            super().begin()
        return self

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancels the request, unless its answer is another one's."""
        if self._sharing is not None:
            self._sharing.cancel()
        return super().cancel(msg)

    async def _share(self) -> None:
        key = self._key, QueueKey.of(self.spec)
        under_way = self._answers.under_way
        try:
            if (answer := await under_way.join(key)) is not None:
                self._take(answer, "joined")
                return
            self.answer = await under_way.run(key, self._computed)
            self._improve()
        except BaseException as error:
            if not self.done():
                self._fail(error)

    async def _computed(self) -> Finished:
        call = EngineCall(self._engine, self.spec, self._record, answer_of)
        answer: Finished = await call.begin()
        self.timeline = call.timeline
        self._keep(answer)
        return answer

    def _whole(self) -> None:
        self._keep(self.answer)
        super()._whole()

    def _take(self, answer: Finished, lookup: str) -> None:
        """Ends with an answer that no engine computed for this call: all its time was waiting."""
        self._answers.counts.lookups[lookup] += 1
        self.timeline = Timeline(arrived_s=self.spec.arrived_s, finished_s=time.monotonic())
        self.answer = answer
        super()._whole()

    def _keep(self, answer: Finished) -> None:
        self._answers.counts.lookups["miss"] += 1
        self._answers.keep(self._key, answer)


def engine_call(
    job: Job,
    part: Part,
    make: Callable[[EngineCall[Any]], Result],
    *,
    streamed: bool = False,
) -> EngineCall[Result]:
    """Prepares the request of a part."""
    (model, options, _), call = job.hop, job.call
    fields = call.spec_fields()
    if job.route.is_bulk:
        # A call of many requests is a separate flow, which the client's other calls pass.
        fields["flow_id"] = fields["call_id"]
    spec = GenerateSpec(
        source=part.tokens,
        options=part.decoding,
        draft=part.draft,
        streamed=streamed,
        priority=job.route.priority,
        start_token=options.affixes.start_token,
        is_bulk=job.route.is_bulk,
        **fields,
    )

    def wants_attention(answer: Finished) -> bool:
        return any(feature.needs_attention(part, answer) for feature in options.features)

    wants = wants_attention if options.features else None
    if model.answers is not None and options.is_repeatable:
        return CachedCall(model.answers, model.engine, spec, call, make, wants)
    return EngineCall(model.engine, spec, call, make, wants)

"""The job of a request, and its bounds: parts in flight, and the memory of its answers."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.records import (
    ANSWER_BYTES,
    FLOAT_BYTES,
    HYPOTHESIS_BYTES,
    ID_BYTES,
    PACKED_BYTES,
    STRING_BYTES,
    Hop,
    Options,
    Part,
    Route,
    Source,
)
from seqserve_server.front.overload.memory import MAX_WAIT_S, AnswerSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Sources that the first model of a route has read."""

    route: Route
    sources: list[Source | ServiceError]
    """A source that cannot be answered is an error."""
    call: ServerCall
    window: Window
    """Bounds how many parts of divided sources are in flight."""

    @property
    def hop(self) -> Hop:
        """The model that has read the sources."""
        return self.route.hops[0]

    @property
    def only_source(self) -> Source:
        """The source of a request that has one."""
        [source] = self.sources
        assert isinstance(source, Source)
        return source

    def spec(self, part: Part, *, streamed: bool = False) -> GenerateSpec:
        """Builds the request of a part."""
        fields, is_bulk = self.call.spec_fields(), self.route.is_bulk
        if is_bulk:
            # A call of many requests is a separate flow, which the client's other calls pass.
            fields["flow_id"] = fields["call_id"]
        return GenerateSpec(
            source=part.tokens,
            options=part.decoding,
            draft=part.draft,
            streamed=streamed,
            priority=self.route.priority,
            start_token=self.hop.options.affixes.start_token,
            is_bulk=is_bulk,
            **fields,
        )


Item = TypeVar("Item")


Answer = TypeVar("Answer")


class Window:
    """A number of places, of which callers take some at a time.

    A call has somewhat more than its model can run: calls take turns in the engine's queue, and
    what waits there is bounded.
    """

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        # For each list with more items than places: begins its next item.
        self._waiting: deque[Callable[[], None]] = deque()

    @cached_property
    def inner(self) -> Window:
        """Another one of this size, for texts that a second model divides once more.

        Parts of the source wait for it, and hold their places meanwhile.
        """
        return Window(self._size)

    async def in_order(
        self, items: Sequence[Item], run: Callable[[Item], Awaitable[Answer]]
    ) -> AsyncGenerator[asyncio.Future[Answer], None]:
        """Yields the answers in the order of their items, as futures that are done.

        ``run`` begins to answer one item: a future costs less than a coroutine, which gets a task.
        Leaving early cancels the answers in flight.
        """
        left = deque(items)
        begun: deque[asyncio.Future[Answer]] = deque()
        has_begun = asyncio.Event()

        def begin() -> None:
            while left and self._free:
                self._free -= 1
                answer = _begun(run, left.popleft())
                answer.add_done_callback(self._leave)
                begun.append(answer)
            if left:
                self._waiting.append(begin)
            has_begun.set()

        begin()
        try:
            for _ in items:
                while not begun:
                    has_begun.clear()
                    await has_begun.wait()
                if not begun[0].done():
                    with suppress(Exception):
                        await begun[0]
                yield begun.popleft()
        finally:
            if left:
                self._waiting.remove(begin)
            for unfinished in begun:
                unfinished.cancel()
            if begun:
                await asyncio.gather(*begun, return_exceptions=True)

    def _leave(self, _: object) -> None:
        self._free += 1
        if self._waiting:
            self._waiting.popleft()()


def _begun(run: Callable[[Item], Awaitable[Answer]], item: Item) -> asyncio.Future[Answer]:
    try:
        return asyncio.ensure_future(run(item))
    except BaseException as error:
        failed: asyncio.Future[Answer] = asyncio.Future()
        failed.set_exception(error)
        return failed


# Invalid UTF-8 takes three bytes for two; a text exists as text and as wire bytes.
_TEXT_BYTES = 3


def longest_wait_s(options: Options, *, is_bulk: bool) -> float:
    """Returns how long a request waits for memory."""
    # Many requests of a call wait when a single one is refused.
    return math.inf if is_bulk else min(MAX_WAIT_S, options.decoding.time_limit_s)


def answer_size(job: Job) -> AnswerSize:
    """Bounds the answers to all sources, each counted as the answer to the longest part."""
    hop = job.route.hops[-1]
    sources = [source for source in job.sources if isinstance(source, Source)]
    parts = [part for source in sources for part in source.parts]
    decoding, added = hop.options.decoding, {}
    for feature in hop.options.features:
        if feature.field:
            added[feature.field] = max(map(feature.max_bytes, parts), default=0)
    for part in parts:
        if part.check is not None:
            added[part.check.field] = part.check.max_bytes(part)
    if hop.options.features and any(part.protected for part in parts):
        decoding = replace(decoding, return_attention=True)
    size = generated_size(
        decoding,
        source_tokens=max((len(part.tokens) for part in parts), default=0),
        token_bytes=hop.model.tokenizer.token_bytes,
        sources=len(parts),
        text_bytes=sum(len(source.text.encode()) for source in sources if source.is_divided),
        added=added,
    )
    if not job.route.is_pivot:
        return size
    # The second model has one answer for each part of the source.
    first = job.hop.options.decoding.max_decoding_length * job.hop.model.tokenizer.token_bytes
    between = size.parts["source"] + _TEXT_BYTES * first
    return replace(size, parts=size.parts | {"source": between})


def generated_size(
    options: DecodingOptions,
    *,
    source_tokens: int,
    token_bytes: int,
    sources: int = 1,
    text_bytes: int = 0,
    added: Mapping[str, int] | None = None,
) -> AnswerSize:
    """Bounds the size of the answer to a request to generate.

    Args:
        options: Its options.
        source_tokens: Of the longest source.
        token_bytes: Of the longest token, in UTF-8.
        sources: Number of sources or segments.
        text_bytes: Of texts that are divided; their answers come twice, in segments and joined.
        added: Bytes that features add to a hypothesis, by their options.
    """
    # The end token has a score too.
    tokens = options.max_decoding_length + 1
    string = token_bytes + STRING_BYTES
    # Tokens of invalid UTF-8 have two bytes each, and their text has three.
    text = 3 * token_bytes // 2 + 3
    times = 2 if text_bytes else 1
    spelled = tokens * (times * text + string + ID_BYTES) + HYPOTHESIS_BYTES
    count, top = options.num_hypotheses, options.return_top_tokens
    if options.coverage_penalty:
        # It ranks all that have finished.
        count = math.ceil(options.beam_size * (options.patience + 1))
    # The first one needs no more than an ordinary answer.
    others = "patience" if count > options.beam_size else "num_hypotheses"
    parts = {
        "options.max_decoding_length": spelled,
        f"options.{others}": (count - 1) * spelled,
        "source": ANSWER_BYTES + math.ceil(text_bytes / max(1, sources)),
    }
    of_tokens = count * tokens
    if options.return_token_scores:
        parts["options.return_token_scores"] = of_tokens * FLOAT_BYTES
    if top:
        each = top * (string + ID_BYTES + FLOAT_BYTES) + PACKED_BYTES
        parts["options.return_top_tokens"] = of_tokens * each
    if options.return_attention:
        # An alignment has four places: where a token begins and ends, and its source token.
        each = source_tokens * FLOAT_BYTES + PACKED_BYTES + 4 * ID_BYTES
        parts["options.return_attention"] = of_tokens * each
        parts["source"] += source_tokens * string
    for field, size in (added or {}).items():
        parts[field] = count * times * size
    return AnswerSize(parts, sources, "segments" if text_bytes else "sources")

"""An engine whose answers a script computes from the request, and which keeps the requests.

``ScriptedEngines`` stands for ``LaunchedGroup``, so everything before and behind it is the front.
Each hypothesis is the source behind the prefix; what is not the best lacks its last tokens.
"""

import asyncio
import itertools
import struct
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import Bound, EngineFault, QueueFull
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Hypothesis,
    Progress,
    StopReason,
    TargetScored,
    Timeline,
    TopTokens,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, ScoreSpec, Spec
from seqserve_server.contract.stats import EngineStats, Ready, StatsReply
from seqserve_server.front.engine_client.engine import EngineStatus, Receive
from seqserve_server.front.engine_client.group import LaunchedGroup
from seqserve_server.text.tokenizer import Tokenizer

BUSY, BROKEN = "busy", "broken"
"""A source that begins with this word is refused at its first try, or fails."""
_RETRY_S = 0.001
_NUM_CONTROLS = 4
_STAMPS = {
    "encode_began_s": 1.0,
    "encode_ended_s": 2.0,
    "first_token_s": 3.0,
    "finished_s": 4.0,
}


@dataclass(slots=True)
class Script:
    """What all engines of a server have done, and how well they write."""

    is_rough: bool = False
    """Whether they leave out braces, write each ``q`` as unknown and each ``=`` twice."""
    specs: list[Spec] = field(default_factory=list)
    """Every request, in the order in which they came."""
    refused: set[str] = field(default_factory=set)

    def forget(self) -> None:
        self.specs.clear()
        self.refused.clear()


class ScriptedEngines(LaunchedGroup):
    """Answers in the loop's next iterations; see the top of the file."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, script: Script) -> None:
        super().__init__([], label="scripted")
        self._script = script
        self.capacity = Ready(slots=4, max_rows=4, cache_bytes=0)
        self._manifest, self._tokenizer = manifest, tokenizer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ids = itertools.count()

    status = EngineStatus(is_up=True, is_ready=True, last_error="", restarts=0, pids=())  # type: ignore[assignment]
    last_reply = StatsReply(0, 0, EngineStats())  # type: ignore[assignment]

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def request_stats(self) -> list[Future[StatsReply]]:
        return []

    def submit(self, spec: Spec, receive: Receive) -> int:
        self._script.specs.append(spec)
        request_id = next(self._ids)
        self._tasks[request_id] = asyncio.create_task(self._run(request_id, spec, receive))
        return request_id

    def cancel(self, request_id: int, *, is_late: bool = False) -> None:
        if task := self._tasks.pop(request_id, None):
            task.cancel()

    async def _run(self, request_id: int, spec: Spec, receive: Receive) -> None:
        await asyncio.sleep(0)
        last = self._answer(spec)
        timeline = Timeline(arrived_s=spec.arrived_s, **_STAMPS)
        if isinstance(last, Finished) and isinstance(spec, GenerateSpec) and spec.reports_progress:
            for ids in _in_twos(last.best.token_ids):
                receive(Progress(ids), None)
                await asyncio.sleep(0)
        del self._tasks[request_id]
        receive(last, timeline)

    def _answer(self, spec: Spec) -> Event:
        text = self._tokenizer.decode(spec.source)
        if text.startswith(BROKEN):
            return Failed(EngineFault("the script says so"))
        if text.startswith(BUSY) and text not in self._script.refused:
            self._script.refused.add(text)
            return Failed(QueueFull("the script says so", _RETRY_S, Bound.DEADLINE))
        if isinstance(spec, ScoreSpec):
            return self._scored(spec)
        if spec.answer is not None:
            width = len(spec.source)
            with_attention = [
                hypothesis._replace(attention=_attention(len(hypothesis.token_ids), width))
                for hypothesis in spec.answer.hypotheses
            ]
            return Finished(with_attention)
        return Finished(
            [self._hypothesis(spec, rank) for rank in range(spec.options.num_hypotheses)]
        )

    def _scored(self, spec: ScoreSpec) -> TargetScored:
        read, written = len(spec.source), len(spec.target)
        scores = [-0.25 * (1 + index % 3) for index in range(written)]
        weights: list[bytes] = []
        if spec.wants_attention:
            shapes = (read * read, written * written, written * read)
            weights = [_floats(0.5 for _ in range(size)) for size in shapes]
        return TargetScored(scores, weights)

    def _hypothesis(self, spec: GenerateSpec, rank: int) -> Hypothesis:
        options = spec.options
        source = [id_ for id_ in spec.source if id_ >= _NUM_CONTROLS]
        if self._script.is_rough:
            source = [id_ for each in source for id_ in self._roughly(each)]
        ids = [*options.prefix, *source][: options.max_decoding_length]
        # What is not first lacks its last tokens.
        ids = ids[: max(1, len(ids) - rank)]
        text = self._tokenizer.decode(ids)
        reason, length = StopReason.EOS, None
        if stop := next((stop for stop in options.stops if stop in text), None):
            reason, length = StopReason.STOP_SEQUENCE, text.index(stop)
        elif len(ids) == options.max_decoding_length:
            reason = StopReason.LENGTH
        score = -0.5 * (len(ids) + 1) - rank
        has_score = options.return_scores or options.num_hypotheses > 1
        return Hypothesis(
            token_ids=ids,
            score=score if has_score else None,
            stop_reason=reason,
            normalized_score=score / (len(ids) + 1) if has_score else None,
            token_scores=[-0.5] * (len(ids) + 1) if options.return_token_scores else (),
            top_tokens=_top_tokens(ids, options),
            text_length=length,
            unmet_terms=[index for index in range(len(options.terms)) if index % 2],
        )

    def _roughly(self, token_id: int) -> list[int]:
        match self._tokenizer.decode([token_id]):
            case "{" | "}":
                return []
            case "q":
                return [self._manifest.tokens.unk]
            case "=":
                return [token_id, token_id]
        return [token_id]


def _top_tokens(ids: Sequence[int], options: DecodingOptions) -> list[TopTokens]:
    count = options.return_top_tokens
    return [TopTokens.of([(4 + n, -0.5 - n) for n in range(count)]) for _ in ids] if count else []


def _attention(rows: int, width: int) -> bytes:
    """Every token attends to the source token of its own place, float32 ``[T, S]``."""
    return _floats(
        float(column == row % max(1, width - 1)) for row in range(rows) for column in range(width)
    )


def _floats(values: Any) -> bytes:
    listed = list(values)
    return struct.pack(f"{len(listed)}f", *listed)


def _in_twos(ids: list[int]) -> list[list[int]]:
    return [ids[begin : begin + 2] for begin in range(0, len(ids), 2)]

"""Pictures of continuous batching: which request ran at which step, traced in the real engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from seqserve_plot.picture import grid, heat_map
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.events import Event
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.local_engine import PendingAnswer, running
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer

_WIDTH, _MARGIN, _LINE = 9.0, 0.9, 0.16


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The steps in which a request had a slot, and what its slot then held."""

    source_tokens: int
    """Keys and values of its source, in the cache of cross-attention."""
    begin: int
    """The first step."""
    end: int
    """The step after the last one."""

    @property
    def steps(self) -> int:
        """Number of steps: one for each token written, the end token counted."""
        return self.end - self.begin


class Trace(Observer):
    """Notes at which step each request of one worker got its first token and ended."""

    def __init__(self) -> None:
        self._steps = 0
        self._began: dict[Request, int] = {}
        self._ended: dict[Request, int] = {}

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Notes the step that runs."""
        self._began.update(dict.fromkeys(requests, self._steps))

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """Counts the step, before it is told what ended in it."""
        self._steps += 1

    def ended(self, request: Request, event: Event) -> None:
        """Notes the step after the one that ran last."""
        self._ended[request] = self._steps

    def stay(self, request: Request) -> Stay:
        """Returns when a request that has ended had a slot."""
        return Stay(
            source_tokens=len(request.spec.source),
            begin=self._began[request],
            end=self._ended[request],
        )


def trace(folder: Path, texts: Sequence[str], slots: int) -> list[Stay]:
    """Decodes texts greedily, all of them there before the first step; tells when each ran."""
    manifest = Manifest.load(folder)
    tokenizer, observed = Tokenizer.of_artifact(folder, manifest), Trace()
    limits = EngineLimits(
        workers=1, slots=slots, max_queue=len(texts), max_source_tokens_per_step=512
    )
    runtime = Runtime(folder, manifest, Provider.CPU, threads=1)
    options = DecodingOptions(max_decoding_length=manifest.limits.max_target_length)
    length = manifest.limits.max_source_length
    requests = [
        PendingAnswer(GenerateSpec(source=tokenizer.truncate(source, length), options=options))
        for source in tokenizer.encode_batch(texts)
    ]
    with running(runtime, tokenizer, limits, observer=observed, requests=requests):
        for request in requests:
            request.wait()
    return [observed.stay(request) for request in requests]


def one_batch_after_another(stays: Sequence[Stay], slots: int) -> list[Stay]:
    """Computes when the same requests would run if a batch had to end before the next one."""
    stays_in_batches: list[Stay] = []
    begin = 0
    for first in range(0, len(stays), slots):
        batch = stays[first : first + slots]
        stays_in_batches += [
            Stay(source_tokens=stay.source_tokens, begin=begin, end=begin + stay.steps)
            for stay in batch
        ]
        begin = max(stay.end for stay in stays_in_batches)
    return stays_in_batches


def tokens_held(stays: Sequence[Stay], steps: int) -> NDArray[np.float64]:
    """Counts the tokens whose keys and values each request's slot holds, ``[requests, steps]``.

    It is NaN where the request has no slot.
    """
    table = np.full((len(stays), steps), np.nan)
    for row, stay in enumerate(stays):
        table[row, stay.begin : stay.end] = stay.source_tokens + 1 + np.arange(stay.steps)
    return table


def draw(stays: Sequence[Stay], slots: int) -> Figure:
    """Draws the traced steps, and below them the same requests one batch after another."""
    batches = one_batch_after_another(stays, slots)
    steps = max(stay.end for stay in (*stays, *batches))
    figure, axes = grid(2, 1, cell=(_WIDTH, _MARGIN + _LINE * len(stays)))
    both = {
        f"continuous batching, traced: {slots} slots": stays,
        "one batch after another, computed": batches,
    }
    for [cell], (title, drawn) in zip(axes, both.items(), strict=True):
        most = max(stay.source_tokens + stay.steps for stay in drawn)
        heat_map(
            cell,
            tokens_held(drawn, steps),
            f"{title}, {max(stay.end for stay in drawn)} steps",
            x="step",
            y="request",
            bounds=(0, most),
            bar="tokens in the cache",
        )
    return figure

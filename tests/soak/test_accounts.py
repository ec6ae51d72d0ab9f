"""Every call is accounted for, with clients of all kinds and versions that are swapped.

Each call ends once, as its caller, the log and the counters agree, which do not fall before their
series end; and memory stays flat.
"""

import asyncio
import json
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.resources import TOLERANCE_MB, anonymous_mb, growth_mb
from tests.support.process import MODELS, PATIENCE_S, ServerProcess, until
from tests.support.swapping import publish

from seqserve import AsyncClient, ModelState
from seqserve.open_inference import open_inference_pb2, open_inference_pb2_grpc
from seqserve.v1 import generation_pb2, generation_pb2_grpc

from .test_memory import DURATION_S, WORDS

NAME = "en-de"
ORIGINAL = f"{NAME}/2"
CALLERS = 24
PAUSE_S = 3.0
"""Seconds between two swaps."""
LONGEST = 24
"""Maximum tokens of an answer, so that most answers are short."""

OK, INVALID, FULL = "OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"
ENDS_OF_WHO_LEFT = {OK, "CANCELLED", "DEADLINE_EXCEEDED", FULL}

Options = generation_pb2.GenerationOptions
Generate = generation_pb2.GenerateRequest
Infer = open_inference_pb2.ModelInferRequest

pytestmark = pytest.mark.soak


@dataclass(slots=True)
class Call:
    """What a client knows about one of its calls."""

    code: str = ""
    left: bool = False
    """Whether the client left before the end and cannot know the status."""
    tokens: int = 0
    """Generated tokens over all hypotheses."""
    hypotheses: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Status codes of its sources without an answer."""

    def count(self, *responses: generation_pb2.GenerateResponse) -> None:
        for response in responses:
            self.tokens += response.generated_tokens
            self.hypotheses += len(response.hypotheses)

    def count_outcomes(self, outcomes: Iterable[generation_pb2.Outcome]) -> None:
        for outcome in outcomes:
            if outcome.HasField("failure"):
                self.failed[_CODES[outcome.failure.code]] += 1
            else:
                self.count(outcome.response)


_CODES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


class Callers:
    """All clients and the records of their calls."""

    def __init__(self, channel: Any, until_s: float) -> None:
        self._generation: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        self._inference: Any = open_inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._until_s = until_s
        self.calls: dict[str, Call] = {}

    async def call_on(self, seed: int) -> None:
        draw = random.Random(seed)
        kinds, weights = zip(*KINDS.items(), strict=True)
        number = 0
        while time.monotonic() < self._until_s:
            [kind] = draw.choices(kinds, weights)
            call = self.calls[f"{seed}-{number}"] = Call()
            given = {"metadata": (("x-request-id", f"{seed}-{number}"),), "timeout": PATIENCE_S}
            try:
                await kind(self, draw, call, given)
            except grpc.aio.AioRpcError as error:
                call.code = error.code().name
            except asyncio.CancelledError:
                if not call.left:
                    raise
                call.code = "CANCELLED"
            else:
                call.code = OK
            number += 1

    async def generate(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        call.count(await self._generation.Generate(request(draw), **given))

    async def stream(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        async for message in self._generation.GenerateStream(request(draw), **given):
            if message.HasField("result"):
                call.count(message.result)

    async def batch(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        sources = [draw.choice(["", text(draw), text(draw)]) for _ in range(draw.randint(1, 12))]
        batch = generation_pb2.GenerateBatchRequest(sources=sources, options=plain(draw))
        response = await self._generation.GenerateBatch(batch, **given)
        assert len(response.outcomes) == len(sources)
        call.count_outcomes(response.outcomes)

    async def bulk(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        requests = [request(draw) for _ in range(draw.randint(1, 12))]
        requests[0].model = draw.choice(["", NAME, "none"])
        requests[-1].source = draw.choice(["", "Nobody"])

        async def sent() -> AsyncIterator[generation_pb2.GenerateBulkRequest]:
            for number, each in enumerate(requests):
                yield generation_pb2.GenerateBulkRequest(id=number, request=each)

        found = [each async for each in self._generation.GenerateBulk(sent(), **given)]
        assert sorted(each.id for each in found) == list(range(len(requests)))
        call.count_outcomes(each.outcome for each in found)

    async def score(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        pair = generation_pb2.ScoreRequest(source=text(draw), target=text(draw))
        await self._generation.Score(pair, **given)

    async def attention(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        pair = generation_pb2.AttentionRequest(source=text(draw), target=text(draw))
        await self._generation.Attention(pair, **given)

    async def infer(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        texts = [text(draw) for _ in range(draw.randint(1, 6))]
        await self._inference.ModelInfer(tensor(draw, texts), **given)

    async def stream_infer(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        tensors = [tensor(draw, [draw.choice(["", text(draw)])]) for _ in range(3)]
        for each in tensors:
            each.parameters["stream"].bool_param = draw.random() < 0.5
        async for message in self._inference.ModelStreamInfer(iter_of(tensors), **given):
            if message.error_message:
                is_wrong = message.error_message.startswith("inputs.text")
                call.failed[INVALID if is_wrong else FULL] += 1

    async def wrong(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        invalid = request(draw)
        invalid.source, invalid.model = draw.choice([("", ""), ("a", "none"), ("a 1 " * 200, "")])
        await self._generation.Generate(invalid, **given)

    async def late(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        call.left = True
        given["timeout"] = draw.choice([0.001, 0.01, 0.03, 0.1])
        await self._generation.Generate(request(draw), **given)

    async def given_up(self, draw: random.Random, call: Call, given: dict[str, Any]) -> None:
        call.left = True
        stream = asyncio.ensure_future(self._drained(request(draw), given))
        await asyncio.sleep(draw.random() / 20)
        stream.cancel()
        await stream

    async def _drained(self, sent: Generate, given: dict[str, Any]) -> None:
        async for _ in self._generation.GenerateStream(sent, **given):
            pass


Kind = Callable[[Callers, random.Random, Call, dict[str, Any]], Awaitable[None]]
KINDS: dict[Kind, float] = {
    Callers.generate: 6,
    Callers.stream: 4,
    Callers.batch: 1,
    Callers.bulk: 1,
    Callers.score: 1,
    Callers.attention: 0.5,
    Callers.infer: 1,
    Callers.stream_infer: 1,
    Callers.wrong: 1,
    Callers.late: 2,
    Callers.given_up: 2,
}


# ---- requests


def text(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.choice((1, 5, 12, 25))))


def plain(draw: random.Random) -> Options:
    return Options(max_decoding_length=draw.randint(1, LONGEST))


def request(draw: random.Random) -> Generate:
    options = plain(draw)
    options.MergeFrom(draw.choice(MIXED))
    if options.target_prefix:
        options.max_decoding_length = LONGEST
    priority: Any = draw.choice((0, 1, 2))
    return Generate(source=text(draw), options=options, priority=priority)


MIXED = [
    Options(),
    Options(return_token_scores=True, return_top_tokens=3),
    Options(beam_size=4, num_hypotheses=2),
    Options(beam_size=2, length_penalty=0.6, coverage_penalty=0.2),
    Options(temperature=0.8, top_k=20, num_hypotheses=3, seed=5),
    Options(top_p=0.9, min_p=0.02),
    Options(target_prefix="Der Kaffee"),
    Options(stop_sequences=[".", "der"]),
    Options(beam_size=2, terms=[generation_pb2.Term(source="coffee", target="Tee")]),
    Options(vocabulary_allow=["▁der", "▁die", "▁und", "."]),
    Options(repetition_penalty=1.3, no_repeat_ngram_size=3),
    Options(return_attention=True, replace_unknowns=True),
    Options(return_alternatives=True, num_hypotheses=3),
    Options(return_scores=False, disable_unk=True, min_decoding_length=1),
    Options(time_limit_ms=5),
    Options(time_limit_ms=50, beam_size=3),
]


def tensor(draw: random.Random, texts: list[str]) -> Infer:
    made = Infer(model_name=NAME)
    part = made.inputs.add(name="text", datatype="BYTES", shape=[len(texts)])
    part.contents.bytes_contents.extend(each.encode() for each in texts)
    made.parameters["max_decoding_length"].int64_param = draw.randint(1, LONGEST)
    return made


async def iter_of(requests: list[Infer]) -> AsyncIterator[Infer]:
    for each in requests:
        yield each


# ---- versions


async def swap_on(server: ServerProcess, models: Path, until_s: float) -> int:
    """Replaces the serving version by a newer one, again and again; returns the last."""
    version = 1
    async with AsyncClient(server.target, timeout_s=PATIENCE_S) as client:
        while time.monotonic() < until_s:
            version += 1
            await asyncio.to_thread(publish, MODELS, models, version, ORIGINAL)
            while [model.version for model in await client.models() if is_loaded(model)] != [
                version
            ]:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(shutil.rmtree, models / NAME / str(version - 1))
            await asyncio.sleep(PAUSE_S)
    return version


def is_loaded(model: Any) -> bool:
    return model.state in (ModelState.READY, ModelState.LOADING, ModelState.DRAINING)


# ---- accounts


Counters = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def counters_of(server: ServerProcess) -> Counters:
    """Returns every sample that must never fall."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(server.get("/metrics")[1])
        for sample in family.samples
        if sample.name.startswith("seqserve_") and family.type != "gauge"
    }


def total(counters: Counters, name: str, **wanted: str) -> float:
    return sum(
        value
        for (sample, labels), value in counters.items()
        if sample == f"seqserve_{name}" and wanted.items() <= dict(labels).items()
    )


async def watched(
    server: ServerProcess, models: Path
) -> tuple[dict[str, Call], int, list[float], list[str], Counters]:
    """Returns the calls, the last version, memory by second, counters that fell, and all counters.

    Series end some time after their version; their last values are among the counters.
    """
    samples: list[float] = []
    fallen: list[str] = []
    counters: Counters = {}
    until_s = time.monotonic() + DURATION_S
    async with grpc.aio.insecure_channel(server.target) as channel:
        callers = Callers(channel, until_s)
        calling = asyncio.gather(*(callers.call_on(seed) for seed in range(CALLERS)))
        swapping = asyncio.create_task(swap_on(server, models, until_s))
        while not calling.done():
            await asyncio.sleep(1.0)
            # Only the main process: engines come and go.
            samples.append(anonymous_mb(server.pid))
            now = await asyncio.to_thread(counters_of, server)
            fallen += [str(key) for key, value in now.items() if value < counters.get(key, 0.0)]
            counters |= now
        await calling
        return callers.calls, await swapping, samples, fallen, counters


def logged(server: ServerProcess) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    return [line for line in lines if line["event"] == "call"]


def check_ends(calls: dict[str, Call], lines: list[dict[str, Any]]) -> None:
    """Checks that each call ended once, with one status for client and server."""
    by_id: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_id.setdefault(line["id"], []).append(line)
    for id_, call in calls.items():
        found = by_id.get(id_, [])
        codes = [line["code"] for line in found]
        if call.left:
            # A call that ends on its way never reaches the server.
            assert len(codes) <= 1 and {call.code, *codes} <= ENDS_OF_WHO_LEFT, (id_, call, codes)
            continue
        assert codes == [call.code], (id_, call, codes)
        if call.hypotheses:
            assert found[0]["generated_tokens"] == call.tokens, (id_, call, found)


def check_counters(counters: Counters, calls: dict[str, Call], lines: list[Any]) -> None:
    """Checks that the counters equal the records of the clients."""
    for (method, code), count in Counter((line["method"], line["code"]) for line in lines).items():
        counted = total(counters, "requests_total", method=method, code=code)
        assert counted == count, (method, code)
    assert total(counters, "requests_total") == len(lines)
    assert total(counters, "request_duration_seconds_count") == len(lines)
    failed = sum((call.failed for call in calls.values()), Counter[str]())
    refused = {INVALID: total(counters, "rejected_total", reason="invalid")}
    refused[FULL] = total(counters, "rejected_total") - refused[INVALID]
    for code, counted in refused.items():
        ended = sum(line["code"] == code for line in lines)
        assert counted == ended + failed[code], (code, counted, ended, failed)
    logged = sum(line.get("generated_tokens", 0) for line in lines)
    left = sum(call.left for call in calls.values())
    generated = total(counters, "generated_tokens_total")
    stopped = total(counters, "stop_total")
    # Some clients left after their answer was complete; it has at most three hypotheses.
    assert 0 <= generated - logged <= 3 * LONGEST * left
    hypotheses = sum(call.hypotheses for call in calls.values())
    gone = total(counters, "cancelled_total") + total(counters, "deadline_exceeded_total")
    assert gone <= left
    assert total(counters, "generated_tokens_count") == stopped >= hypotheses


def test_every_call_is_accounted_for(tmp_path: Path) -> None:
    models = tmp_path / "models"
    publish(MODELS, models, 1, ORIGINAL)
    options = ("--keep-versions", "1", "--watch-interval-s", "0.2", "--log-format", "json")
    with ServerProcess(models, tmp_path, *options, "--slots", "32") as server:
        calls, version, samples, fallen, counters = asyncio.run(watched(server, models))
        until(server.is_idle)
        lines: list[dict[str, Any]] = []
        ended = {id_ for id_, call in calls.items() if not call.left}

        def are_all_told() -> bool:
            # A call is counted and logged just after its answer.
            nonlocal counters, lines
            counters |= counters_of(server)
            lines = logged(server)
            is_equal = total(counters, "requests_total") == len(lines)
            return is_equal and ended <= {line["id"] for line in lines}

        until(are_all_told)
        codes = Counter(call.code for call in calls.values())
        print(
            f"\n{len(calls)} calls, {dict(codes)}, {version - 1} swaps in {len(samples)} s;"
            f" anonymous memory grew by {growth_mb(samples):.1f} MB to {samples[-1]:.1f} MB"
        )
        assert version > 2
        assert fallen == []
        check_ends(calls, lines)
        check_counters(counters, calls, lines)
        assert codes.keys() <= {*ENDS_OF_WHO_LEFT, INVALID, "NOT_FOUND"}
        assert growth_mb(samples) < TOLERANCE_MB
        assert len(server.engines()) == 1
        assert "Traceback" not in server.stderr

"""Calls a front over a scripted engine, and writes down all that a caller and the engine see of it.

``python -m tests.unit.server.front.golden.recording`` makes the recorded calls again and records
what is seen of them now; a commit that changes ``answers.jsonl.gz`` says why. The calls were drawn
at random once; :func:`write` takes more.
"""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from tests.unit.server.front.echo import PATIENCE_S, byte_tokenizer, manifest
from tests.unit.server.front.golden.calls import GLOSSARY, OTHERS, SERVERS, Call
from tests.unit.server.front.golden.scripted_engine import Script, ScriptedEngines
from tests.unit.server.front.service import rollout_of

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.files import FileDigest
from seqserve_server.artifact.manifest import SCORER, Manifest
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.overload.memory import FairMemory
from seqserve_server.front.services.server import Server
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import logs
from seqserve_server.text.glossary_folder import GlossaryFolder

FILE = Path(__file__).with_name("answers.jsonl.gz")
_ID = "golden"
_DETAILS = (BadRequest, ErrorInfo, RetryInfo)


@dataclass(frozen=True, slots=True)
class Front:
    """A running server over a scripted engine."""

    channel: grpc.aio.Channel
    script: Script

    async def record(self, call: Call) -> dict[str, Any]:
        """Runs a call, and returns all that was seen of it."""
        self.script.forget()
        reserved: list[list[float]] = []
        lines: list[dict[str, Any]] = []
        with _watched_memory(reserved), mock.patch.object(logs, "event", _collect(lines)):
            responses, status = await self._answers(call)
            # The line of a call may come after its answer.
            async with asyncio.timeout(PATIENCE_S):
                while not lines:
                    await asyncio.sleep(0)
        return {
            "responses": _settled(call.name, [_plain(response) for response in responses]),
            "status": status,
            "specs": sorted((_spec(spec) for spec in self.script.specs), key=json.dumps),
            "reserved": reserved,
            "log": _facts(lines[-1]),
        }

    async def _answers(self, call: Call) -> tuple[list[Message], dict[str, Any]]:
        method = call.method
        kind = f"{_SIDES[method.client_streaming]}_{_SIDES[method.server_streaming]}"
        multi = getattr(self.channel, kind)(
            method.path,
            request_serializer=lambda data: data,
            response_deserializer=method.response.FromString,
        )
        requests = call.requests if method.client_streaming else call.requests[0]
        handle = multi(iter(requests) if method.client_streaming else requests, metadata=_METADATA)
        responses: list[Message] = []
        try:
            if method.server_streaming:
                async for response in handle:
                    responses.append(response)
            else:
                responses.append(await handle)
        except grpc.aio.AioRpcError as error:
            return responses, _status(error)
        return responses, {"code": "OK"}


_SIDES = {False: "unary", True: "stream"}
_METADATA = (("x-request-id", _ID),)


@asynccontextmanager
async def front(server_name: str) -> AsyncIterator[Front]:
    """Starts one of the servers that calls are drawn for."""
    metrics = Metrics()
    script = Script(is_rough=server_name in ("features", "pivot"))
    described = replace(manifest(version=2), **SERVERS[server_name])
    models = [described]
    for name, template in OTHERS.get(server_name, {}).items():
        models.append(replace(manifest(name), template=template))
    if script.is_rough:
        # Attention is fetched where what is kept was not written.
        models = [replace(each, files={SCORER: FileDigest(sha256="", bytes=0)}) for each in models]
    repository = Repository([_entry(each, script) for each in models])
    repository.choose_default("echo")
    options = ServeOptions(port=0, max_message_bytes=1 << 20)
    with TemporaryDirectory() as folder:
        lines = "".join(f"{source}\t{target}\n" for source, target in GLOSSARY.items())
        Path(folder, "drinks.en-de.tsv").write_text(lines)
        glossaries = GlossaryFolder(Path(folder))
        glossaries.open()
    server = Server(options, rollout_of(repository, metrics), metrics, glossaries=glossaries)
    try:
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Front(channel, script)
    finally:
        await server.drain(PATIENCE_S)


def _entry(described: Manifest, script: Script) -> Entry:
    tokenizer = byte_tokenizer()
    model = ServedModel(
        manifest=described,
        tokenizer=tokenizer,
        engine=ScriptedEngines(described, tokenizer, script),
        provider=Provider.CPU,
    )
    return Entry(
        name=described.name, version=described.version, state=ModelState.READY, model=model
    )


def recorded() -> Iterator[tuple[Call, dict[str, Any]]]:
    """Reads the calls and what was seen of them."""
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            yield Call.parse(entry["call"]), entry["seen"]


def _watched_memory(reserved: list[list[float]]) -> Any:
    reserve = FairMemory.reserve

    async def watched(memory: FairMemory, caller: str, size: int, **more: float) -> Any:
        reserved.append([size, *more.values()])
        return await reserve(memory, caller, size, **more)  # type: ignore[arg-type]

    return mock.patch.object(FairMemory, "reserve", watched)


def _collect(lines: list[dict[str, Any]]) -> Any:
    def event(name: str, fields_: dict[str, Any], level: int = 0) -> None:
        if name == "call":
            lines.append(fields_)

    return event


def _facts(line: dict[str, Any]) -> dict[str, Any]:
    """Leaves out times."""
    return {key: value for key, value in line.items() if not key.endswith("ms")}


def _plain(response: Message) -> Any:
    """Writes a message, times set to zero."""
    for timings in _all_timings(response):
        for field, _ in timings.ListFields():
            timings.ClearField(field.name)
    plain: Any = json_format.MessageToDict(response)
    return plain


def _settled(method: str, responses: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leaves out what depends on time: how tokens form pieces, which answer comes first."""
    if method == "GenerateStream":
        return _joined([each["piece"] for each in responses if "piece" in each]) + [
            each for each in responses if "piece" not in each
        ]
    if method == "ModelStreamInfer":
        return [
            response for _, group in groupby(responses, _id_of) for response in _rejoined(group)
        ]
    return sorted(responses, key=lambda response: int(response.get("id", 0)))


def _joined(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    text = "".join(piece.get("text", "") for piece in pieces)
    token_ids = [token_id for piece in pieces for token_id in piece.get("tokenIds", [])]
    return [{"text": text, "tokenIds": token_ids}]


def _id_of(response: dict[str, Any]) -> Any:
    return response["inferResponse"].get("id")


def _rejoined(responses: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins the texts of all but the last response to a request."""
    *pieces, last = responses
    return [{"text": "".join(map(_text_of, pieces))}, last]


def _text_of(piece: dict[str, Any]) -> str:
    response = piece["inferResponse"]
    if raw := response.get("rawOutputContents"):
        # Behind its length of four bytes.
        return base64.b64decode(raw[0])[4:].decode()
    [text] = response["outputs"][0]["contents"]["bytesContents"]
    return base64.b64decode(text).decode()


def _all_timings(message: Message) -> Iterator[Message]:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.full_name == generation_pb2.Timings.DESCRIPTOR.full_name:
            yield value
        elif field.message_type.GetOptions().map_entry:
            continue
        else:
            for part in value if field.is_repeated else [value]:
                yield from _all_timings(part)


def _status(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    trailers: Any = dict(error.trailing_metadata() or ())  # type: ignore[call-overload]
    status = Status.FromString(trailers.get("grpc-status-details-bin", b""))
    details = []
    for detail in status.details:
        kind = next(kind for kind in _DETAILS if detail.Is(kind.DESCRIPTOR))
        message = kind()
        detail.Unpack(message)
        if isinstance(message, RetryInfo):
            # It depends on when the call came.
            message.ClearField("retry_delay")
        details.append([kind.DESCRIPTOR.name, json_format.MessageToDict(message)])
    return {"code": error.code().name, "message": error.details(), "details": details}


def _spec(spec: Spec) -> dict[str, Any]:
    """Writes a request to the engine, without times and addresses."""
    written = {field.name: getattr(spec, field.name) for field in fields(spec)}
    for name in ("arrived_s", "deadline_s", "client_id"):
        del written[name]
    written["flow_is_call"] = written.pop("flow_id") == written.pop("call_id")
    if isinstance(spec, GenerateSpec):
        options = written.pop("options")
        if options.sampling and options.sampling.seed > 1 << 32:
            options = replace(options, sampling=options.sampling._replace(seed=-1))
        written["options"] = repr(options)
        written["answer"] = spec.answer is not None
        # Most have none.
        if draft := written.pop("draft"):
            written["draft"] = list(draft)
    written["priority"] = spec.priority.value
    return written


async def write(calls: list[Call]) -> None:
    """Makes calls and writes what was seen of them in the place of what was recorded."""
    with gzip.GzipFile(FILE, "wb", mtime=0) as file:
        for name in SERVERS:
            async with front(name) as running:
                for call in calls:
                    if call.server == name:
                        seen = await running.record(call)
                        entry = {"call": call.written(), "seen": seen}
                        file.write(f"{json.dumps(entry, ensure_ascii=False)}\n".encode())


if __name__ == "__main__":
    asyncio.run(write([call for call, _ in recorded()]))

"""One HTTP request as its endpoint sees it: the caller, the time left, and the server."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, nullcontext
from typing import Any, TypeVar, Unpack

from google.protobuf.message import Message
from starlette.requests import Request

from seqserve import AsyncClient
from seqserve._transport.connection import Method
from seqserve._transport.status import error_within
from seqserve.arguments import GenerateOptions, Priority
from seqserve.auth import token_of
from seqserve.metadata import REQUEST_ID, request_id
from seqserve.requests import generate_request, with_sources
from seqserve.v1.generation_pb2 import GenerateResponse, Outcome
from seqserve_gateway.admission import BYTES_OF_VALUE, Body
from seqserve_gateway.failure import Failure
from seqserve_gateway.upstream import METADATA, T, Upstream

S = TypeVar("S")
BATCH = 128
"""Most texts of an array in one call of the server, which shares its slots among all calls."""
RICH_BATCH = 12
"""Most texts if answers have more than a text, and take much memory."""
_RICH = ("return_alignment", "return_token_scores")
_BATCHES = 2
# Limit of a batch, so that all of its texts find memory.
_MAX_CHARACTERS = 20_000
TIMEOUT_HEADER = "x-request-timeout-s"
JSON = "application/json"
_TRACE = ("traceparent", "tracestate")
# More than a request may translate.
_MOST_VALUES = 25_000
_FEW_VALUES = 1000
# One without an end takes the rest: looking for the end of each would take quadratic time.
_JSON_TEXT = re.compile(rb'"[^"\\]*+(?:\\.?+[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_PRINTABLE = re.compile(r"[\x20-\x7e]{1,512}")


class Call:
    """A request whose body was read, and which was admitted."""

    def __init__(
        self,
        request: Request,
        body: Body,
        upstream: Upstream,
        request_id: str,
        timeout_s: float,
        names: dict[str, str],
    ) -> None:
        """Starts the clock of the deadline; an endpoint gets the call, it makes none."""
        self.request = request
        """Path, query and headers; its body is in ``body``."""
        self.body = body.content
        self.request_id = request_id
        """Id of the call in the server's log; it is in every answer as ``x-request-id``."""
        self.names = names
        """``Form.names``, which may be others for this call."""
        self.afterwards: Callable[[], Awaitable[None]] | None = None
        """Work after the answer, until the deadline or the drain of the gateway; if it fails, the
        request counts as failed."""
        self._upstream, self._held = upstream, body
        self._deadline_s = time.monotonic() + timeout_s
        self._token = bearer_of(request)
        self._identify()

    @property
    def client(self) -> AsyncClient:
        """The client of the server. Pass ``timeout_s=call.left_s`` to each of its calls."""
        return self._upstream.client

    @property
    def caller(self) -> str:
        """The caller's identity."""
        return self._held.caller

    @property
    def token(self) -> str | None:
        """The caller's token; an endpoint that reads it from elsewhere than the header sets it."""
        return self._token

    @token.setter
    def token(self, token: str | None) -> None:
        self._token = token
        self._identify()

    @property
    def media_type(self) -> str:
        """The ``Content-Type`` of the body in lower case, without parameters."""
        return self.request.headers.get("content-type", "").partition(";")[0].strip().lower()

    def check_json(self) -> None:
        """Refuses a body that is not said to be JSON.

        Browsers let pages of other sites send any other type without a CORS preflight.
        """
        if self.media_type != JSON:
            reason = f"the Content-Type must be {JSON}"
            raise Failure("INVALID_ARGUMENT", reason, 415, field="content-type")

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; a moment at least, so that a call can report its end."""
        return max(1e-3, self._deadline_s - time.monotonic())

    def json(self, **hooks: Any) -> Any:
        """Returns the body as JSON, once there is memory for its values.

        Raises:
            ValueError: It is not JSON, or not UTF-8.
            RecursionError: It is nested too deeply.
            Failure: It has too many values, or there is too little memory for them.
        """
        self.take_memory(_values_of(self.body) * BYTES_OF_VALUE)
        return json.loads(self.body.decode("utf-8-sig"), **hooks)

    def take_memory(self, size: int) -> None:
        """Takes memory before it is used, until the request ends; raises if there is too little."""
        self._held.take_memory(size)

    async def reading(self, function: str, *given: Any) -> Any:
        """Returns what a function of :mod:`.reading` returns, from a process with limits.

        The server has accepted the caller's token before: :meth:`check_token`.

        Raises:
            Unreadable: The document cannot be read.
            Failure: It takes too much time or memory, or too many documents wait.
        """
        await self.check_token()
        outcome = self._upstream.readers.outcome
        return await outcome(self.caller, self.take_memory, function, *given)

    async def check_token(self) -> None:
        """Raises the server's refusal, if it does not know the caller's token."""
        await self.recent(_accepted)

    async def recent(self, listing: Callable[[Call], Awaitable[T]]) -> T:
        """Returns this caller's listing of the last seconds, or a new one."""
        return await self._upstream.recent((listing, self._token), lambda: listing(self))

    async def message(self, method: Method, request: Message) -> Any:
        """Makes a unary call with messages of ``seqserve.v1``."""
        async with aclosing(self._upstream.messages(method, request, self.left_s)) as messages:
            return await anext(messages)

    def messages(self, method: Method, request: Message) -> Any:
        """Yields the messages of a stream; closing the generator cancels it on the server."""
        return self._upstream.messages(method, request, self.left_s)

    async def generate_all(
        self,
        sources: Sequence[str],
        needed: Callable[[GenerateResponse], S],
        **options: Unpack[GenerateOptions],
    ) -> list[S]:
        """Generates from each text of an array, and returns in its order what is needed of each.

        A single text is an ordinary call. Several go in batches of low priority: the server gives
        them the slots that callers of single texts leave. Batches of callers take turns.

        Args:
            needed: Called with each response as it comes: whole ones of a long array would take
                much memory, and to read all of their fields takes time.
        """
        if len(sources) == 1:
            request = generate_request(sources[0], **options)
            return [needed(await self.message(Method.GENERATE, request))]
        options.setdefault("priority", Priority.LOW)

        async def answered(batch: Sequence[str]) -> list[S]:
            request = with_sources(template, batch)
            answer = await self.message(Method.GENERATE_BATCH, request)
            return [needed(_response(outcome)) for outcome in answer.outcomes]

        template = generate_request("", **options)
        is_rich = any(map(options.get, _RICH)) or (options.get("num_hypotheses") or 1) > 1
        batches = [*_batches(sources, RICH_BATCH if is_rich else BATCH)]
        # One batch runs while the last texts of another one end.
        answers = await self.in_turns(answered, batches, _BATCHES, size=len)
        return [result for answer in answers for result in answer]

    async def in_turns(
        self,
        function: Callable[[S], Awaitable[T]],
        items: Sequence[S],
        width: int,
        size: Callable[[S], int] = lambda item: 1,
    ) -> list[T]:
        """Awaits a function for each item, in turns with other callers; returns results in order.

        Up to ``width`` items are in progress at a time. If one fails, the others are cancelled, and
        its error is raised. A lone item of size 1 does not wait.
        """
        results: dict[int, T] = {}
        numbered = iter(enumerate(items))
        is_one = sum(map(size, items)) == 1

        async def work() -> None:
            for number, item in numbered:
                turn = self._upstream.turns.turn(self.caller, size(item))
                async with nullcontext() if is_one else turn:
                    results[number] = await function(item)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(width):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [results[number] for number in range(len(results))]

    def _identify(self) -> None:
        headers = self.request.headers
        trace = (
            (key, headers[key])
            for key in _TRACE
            if key in headers and _PRINTABLE.fullmatch(headers[key])
        )
        # By this a server with --caller-metadata x-forwarded-for tells callers apart.
        peer = self.request.client
        caller = (("x-forwarded-for", peer.host),) if peer else ()
        authorization = self._upstream.authorization(self._token)
        METADATA.set(((REQUEST_ID, self.request_id), *caller, *trace, *authorization))


async def _accepted(call: Call) -> bool:
    # The server refuses a token that it does not know.
    await call.client.models(timeout_s=call.left_s)
    return True


def _values_of(body: bytes) -> int:
    """Returns an upper bound of the number of values and names in JSON, before parsing."""
    count, texts = _signs_in(body), (body.count(b'"') - body.count(b'\\"')) // 2
    if count > _MOST_VALUES >= texts // 2 or count > _FEW_VALUES >= texts:
        # Most of them may be within texts.
        count = _signs_in(_JSON_TEXT.sub(b"", body))
    if count > _MOST_VALUES:
        raise Failure("INVALID_ARGUMENT", f"the body has more than {_MOST_VALUES:,} values", 413)
    return count


def _signs_in(body: bytes) -> int:
    return sum(map(body.count, (b",", b"[", b"{")))


def _response(outcome: Outcome) -> GenerateResponse:
    if outcome.HasField("failure"):
        raise error_within(outcome.failure)
    return outcome.response


def _batches(sources: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    begin = characters = 0
    for place, source in enumerate(sources):
        characters += len(source)
        if place - begin == size or (characters > _MAX_CHARACTERS and place > begin):
            yield sources[begin:place]
            begin, characters = place, len(source)
    if sources:
        yield sources[begin:]


def bearer_of(request: Request) -> str | None:
    """Returns the token of ``Authorization: Bearer``, empty if malformed; None without one."""
    value = request.headers.get("authorization", "")
    if value.partition(" ")[0].lower() != "bearer":
        return None
    return token_of([("authorization", value)])


def request_id_of(request: Request) -> str:
    """Returns the id that the caller chose, if it is one, or else a new one."""
    return request_id([(REQUEST_ID, request.headers.get(REQUEST_ID, ""))])


def timeout_of(request: Request, default_s: float, max_s: float) -> float:
    """Returns the seconds that a caller gives its request."""
    text = request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return default_s
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s <= max_s:
        reason = f"{TIMEOUT_HEADER}: must be a number of seconds, above 0 and at most {max_s:g}"
        raise Failure("INVALID_ARGUMENT", reason, field=TIMEOUT_HEADER)
    return timeout_s

"""The client that blocks: a call returns when its answer is there. May be shared by threads."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Self, TypeVar, Unpack

from seqserve import requests, verbs
from seqserve.attention import AttentionResult
from seqserve.bulk import bulk
from seqserve.calls import messages_of
from seqserve.channel import GrpcTransport
from seqserve.decoding import GenerateOptions
from seqserve.errors import CallError
from seqserve.groups import CallGroup
from seqserve.many import checked_sources, in_order
from seqserve.results import Model, Piece, Result, ScoreResult
from seqserve.retry import Attempts, RetryPolicy
from seqserve.streams import pieces_of
from seqserve.tls import TLS
from seqserve.transport import MetadataSource, Transport

R = TypeVar("R")

DEFAULT_TARGET = "localhost:50051"
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_CONCURRENCY = 32
# More than a server runs at once, so that the next ones are there when it has room.
BULK_CONCURRENCY = 256
MAX_MESSAGE_BYTES = 64 << 20


class Client:
    """Generates texts with the models of a seqserve server.

    Example::

        with Client("localhost:50051") as client:
            print(client.generate("The coffee tastes good.").text)
            for piece in client.stream("We watched a film."):
                print(piece.text, end="", flush=True)

    Every call has a deadline, 30 s where none is given. A call that finds the server unreachable,
    loading, draining or full is tried again until then, as :class:`~seqserve.RetryPolicy` says.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        tls: TLS | None = None,
        token: str | None = None,
        retry: RetryPolicy | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        metadata: MetadataSource | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Keeps the settings; the connection is made at the first call.

        Args:
            target: Where the server is: ``host:port``, several as ``host:port,host:port``.
            timeout_s: Time for a call and its retries where a call gives none; ``math.inf`` for no
                limit.
            tls: How to encrypt the connection; not at all where None.
            token: What a server that asks for one knows you by; not sent over a network in clear.
            retry: When to try again.
            max_message_bytes: Longest answer to accept.
            metadata: Gives pairs of text to send with a call, asked at every attempt: an
                ``x-request-id``, or the ``traceparent`` of what is being traced.
            transport: What to send calls with, instead of gRPC.

        Raises:
            OptionError: The target is malformed, or one of several hosts cannot be resolved; a file
                of ``tls`` is not sound; or the token would be sent in clear.
        """
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._transport = transport or GrpcTransport(
            target, max_message_bytes, tls=tls, token=token, metadata=metadata
        )
        self._calls = CallGroup(self._transport)

    def generate(
        self,
        source: str,
        *,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Result:
        """Generates from one source.

        Args:
            source: The text to generate from.
            timeout_s: Time for the call and its retries; the client's where None.
            **options: See :class:`~seqserve.GenerateOptions`.

        Raises:
            CallError: The call failed; the class says how.
        """
        return self._ask(self._calls, verbs.generate(source, options), timeout_s)

    def generate_many(
        self,
        sources: Iterable[str],
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generator[Result, None, None]:
        """Generates from many sources at once and gives the results in their order.

        Sources are read as results are taken, by threads of the client, one at a time: an endless
        iterable needs no more memory than a short one. Leaving the loop cancels what is under way.

        Args:
            sources: The texts to generate from.
            concurrency: Most calls at once.
            timeout_s: Time for each call and its retries; the client's where None.
            **options: See :class:`~seqserve.GenerateOptions`.

        Raises:
            CallError: A call failed. The results before it have been given, those after it are
                cancelled.
        """
        group = self._calls.group()

        def generate(source: str) -> Result:
            return self._ask(group, verbs.generate(source, options), timeout_s)

        try:
            with closing(in_order(generate, checked_sources(sources), concurrency)) as outcomes:
                for outcome in outcomes:
                    yield outcome.result()
        finally:
            group.cancel()

    def generate_batch(
        self,
        sources: Sequence[str],
        *,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Result | CallError]:
        """Generates from many sources in one call.

        For what is at hand as a whole; :meth:`generate_bulk` takes sources without end.

        Args:
            sources: The texts to generate from, 1 to 1024.
            timeout_s: Time for the call and its retries; the client's where None.
            **options: See :class:`~seqserve.GenerateOptions`.

        Returns:
            For each source, in their order, its result, or the error that it alone has met.

        Raises:
            CallError: The call as a whole failed; the class says how.
        """
        return self._ask(self._calls, verbs.generate_batch(sources, options), timeout_s)

    def generate_bulk(
        self,
        sources: Iterable[str],
        *,
        concurrency: int = BULK_CONCURRENCY,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generator[tuple[int, Result | CallError], None, None]:
        """Generates from any number of sources in one call; results come as they are ready.

        The server reads on only while few are under way, and the client has at most ``concurrency``
        sources in memory: an endless iterable is as welcome as a list. Sources are read by a thread
        of the client. Leaving the loop cancels what is under way; the thread ends as soon as the
        source is there that it waits for.

        A call that finds the server unreachable, or that a server ends to shut down, is followed by
        another one for the sources that have no answer, as :class:`~seqserve.RetryPolicy` says; an
        answer makes it count from the beginning.

        Args:
            sources: The texts to generate from.
            concurrency: Most sources between input and output; those beyond what the server has
                under way are on their way to it.
            timeout_s: Time for the whole call and its retries; no limit where None.
            **options: See :class:`~seqserve.GenerateOptions`.

        Yields:
            The number of a source, from 0, and its result, or the error that it alone has met.

        Raises:
            CallError: The call as a whole failed; the class says how.
        """
        template = requests.generate_request("", **options)
        attempts = self._attempts(math.inf if timeout_s is None else timeout_s)
        return bulk(self._calls, template, sources, concurrency, attempts)

    def stream(
        self,
        source: str,
        *,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generator[Piece, None, None]:
        """Generates from one source and gives the text piece by piece as it is decoded.

        The texts of the pieces, joined, are the text of the result; the last piece has no text but
        the result. Leaving the loop, or closing the iterator, cancels the call on the server. A
        stream is tried again only before its first message.

        Args:
            source: The text to generate from.
            timeout_s: Time for the whole stream and its retries; the client's where None.
            **options: See :class:`~seqserve.GenerateOptions`.

        Raises:
            CallError: The call failed; the class says how.
        """
        request = requests.generate_request(source, **options)
        return pieces_of(self._calls, request, self._attempts(timeout_s))

    def score(
        self,
        source: str,
        target: str,
        *,
        model: str | None = None,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> ScoreResult:
        """Gives the log-probability of every token of a target that is known.

        Args:
            source: The source text.
            target: The target text.
            model: Name of the model; the server's default where None.
            version: Version of the model; the highest sound one where None.
            timeout_s: Time for the call and its retries; the client's where None.

        Raises:
            CallError: The call failed; the class says how.
        """
        return self._ask(self._calls, verbs.score(source, target, model, version), timeout_s)

    def attention(
        self,
        source: str,
        target: str | None = None,
        *,
        model: str | None = None,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> AttentionResult:
        """Gives what every layer and head attended to.

        Args:
            source: The source text.
            target: The target text; what greedy search gives where None.
            model: Name of the model; the server's default where None.
            version: Version of the model; the highest sound one where None.
            timeout_s: Time for the call and its retries; the client's where None.

        Raises:
            CallError: The call failed; the class says how.
        """
        return self._ask(self._calls, verbs.attention(source, target, model, version), timeout_s)

    def models(self, *, timeout_s: float | None = None) -> list[Model]:
        """Lists every version of every model of the server.

        Raises:
            CallError: The call failed; the class says how.
        """
        return self._ask(self._calls, verbs.models(), timeout_s)

    def model(
        self,
        name: str | None = None,
        version: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Model:
        """Describes one version of one model: the server's default, the highest, where not said.

        Raises:
            CallError: The call failed; the class says how.
        """
        return self._ask(self._calls, verbs.model(name, version), timeout_s)

    def load_model(
        self,
        name: str | None,
        version: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Model:
        """Loads a version of a model, and gives it when it takes calls.

        It stays loaded until it is unloaded, whatever the server would decide by itself. The server
        goes on with it where the time here runs out.

        Args:
            name: Name of the model; the server's default where None.
            version: The version; the highest one in the server's repository where None.
            timeout_s: Time for the call and its retries; the client's where None.

        Raises:
            FailedPrecondition: It cannot be loaded; the message says why.
            CallError: The call failed; the class says how.
        """
        return self._ask(self._calls, verbs.load_model(name, version), timeout_s)

    def unload_model(
        self, name: str | None, version: int, *, timeout_s: float | None = None
    ) -> Model:
        """Takes a version out of service, and gives it when its calls have ended.

        It stays unloaded until it is loaded, whatever the server would decide by itself.

        Args:
            name: Name of the model; the server's default where None.
            version: The version.
            timeout_s: Time for the call and its retries; the client's where None.

        Raises:
            CallError: The call failed; the class says how.
        """
        return self._ask(self._calls, verbs.unload_model(name, version), timeout_s)

    def set_traffic(
        self, name: str | None, weights: Mapping[int, int], *, timeout_s: float | None = None
    ) -> list[Model]:
        """Shares the calls that name no version among versions of a model.

        Args:
            name: Name of the model; the server's default where None.
            weights: Weight by version, such as ``{1: 90, 2: 10}``; none for all calls to the
                highest version that is ready.
            timeout_s: Time for the call and its retries; the client's where None.

        Returns:
            Every version of the model, with its ``traffic_share``.

        Raises:
            CallError: The call failed; the class says how.
        """
        return self._ask(self._calls, verbs.set_traffic(name, weights), timeout_s)

    def close(self) -> None:
        """Cancels the calls under way and closes the connection."""
        self._calls.cancel()
        self._transport.close()

    def __enter__(self) -> Self:
        """Gives the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the client."""
        self.close()

    def _attempts(self, timeout_s: float | None) -> Attempts:
        return Attempts(self._retry, self._timeout_s if timeout_s is None else timeout_s)

    def _ask(self, group: CallGroup, question: verbs.Question[R], timeout_s: float | None) -> R:
        attempts = self._attempts(timeout_s)
        with closing(messages_of(group, question.method, question.request, attempts)) as answer:
            return question.read(next(answer))

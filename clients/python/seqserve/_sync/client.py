# Generated from seqserve/_async/client.py by `make clients`; do not edit.
"""The blocking client: a call returns when its answer has arrived."""

import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Self, Unpack

from seqserve import arguments, requests, responses
from seqserve._sync.bulk import BulkRun
from seqserve._sync.calls import CallGroup, Transport, WorkerPool, pieces_of
from seqserve._sync.model_client import ModelClient
from seqserve._transport.channels import GrpcTransport
from seqserve._transport.connection import Connection, Method
from seqserve.arguments import BulkSource, GenerateOptions, ModelOptions, SourceOptions
from seqserve.attention import AttentionResult, ScoreResult, TokenizeResult
from seqserve.errors import CallError
from seqserve.metadata import MetadataSource
from seqserve.results import DetectedLanguage, Piece, Result
from seqserve.retry import Availability, RetryPolicy
from seqserve.tls import TLS


class Client(ModelClient):
    """Generates texts with the models of a seqserve server. Threads may share it.

    Example::

        with Client("localhost:50051") as client:
            result = client.generate("The coffee tastes good.")
            print(result.text)
            for piece in client.stream("We saw a good film."):
                print(piece.text, end="", flush=True)

    Calls that generate take the options of :class:`~seqserve.GenerateOptions`.
    Every call takes ``timeout_s``, the time for the call and its retries, by default the client's.
    Until then the client retries a call if the server is unreachable, loading, draining or full; a
    server that was never reached is tried for 5 s only. :class:`~seqserve.RetryPolicy` sets both.
    A call that fails raises a :class:`~seqserve.CallError`, whose class names the reason.
    """

    def __init__(
        self,
        target: str = arguments.DEFAULT_TARGET,
        *,
        timeout_s: float = arguments.DEFAULT_TIMEOUT_S,
        tls: TLS | None = None,
        token: str | None = None,
        retry: RetryPolicy | None = None,
        max_message_bytes: int = arguments.MAX_MESSAGE_BYTES,
        metadata: MetadataSource | None = None,
        connections: int | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Stores the settings; the first call connects.

        Args:
            target: Address of the server, ``host:port``, or of several: ``host:port,host:port``.
            timeout_s: Default time for a call and its retries; ``math.inf`` for no limit.
            token: Token for a server that requires one; never sent over a network unencrypted.
            max_message_bytes: Maximum size of a response.
            metadata: Returns pairs of texts to send with a call, such as ``x-request-id`` or
                ``traceparent``; called for every attempt.
            connections: Maximum number of connections to each server, 8 by default. There is one
                until many calls are in flight.
            transport: Sends the calls, instead of gRPC.

        Raises:
            OptionError: A setting is malformed, one of several hosts cannot be resolved, a file of
                ``tls`` is invalid, or the token would be sent unencrypted.
        """
        self._transport = transport or GrpcTransport(
            Connection(target, max_message_bytes, tls, token, metadata, connections)
        )
        self._max_message_bytes = max_message_bytes
        calls, availability = CallGroup(self._transport), Availability(target)
        super().__init__(calls, RetryPolicy() if retry is None else retry, timeout_s, availability)

    def generate(
        self, source: str, *, timeout_s: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Result:
        """Generates from one source."""
        request = requests.generate_request(source, **options)
        return self._unary(Method.GENERATE, request, responses.result_of, timeout_s)

    def generate_many(
        self,
        sources: Iterable[str],
        *,
        concurrency: int = arguments.DEFAULT_CONCURRENCY,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generator[Result, None, None]:
        """Generates from many sources at once and yields the results in their order.

        Reads sources only as results are taken: an endless iterable needs no more memory than a
        short one. Leaving the loop, or closing the iterator, cancels the calls in flight.

        Args:
            sources: The texts to generate from; threads read them, one at a time.
            concurrency: Maximum number of calls at once.
            timeout_s: Time for each call and its retries; the client's by default.

        Raises:
            CallError: A call failed. The results before it have been yielded, the calls after it
                are cancelled.
        """
        group = self._calls.group()

        def generate(source: str) -> Result:
            request = requests.generate_request(source, **options)
            return self._unary(Method.GENERATE, request, responses.result_of, timeout_s, group)

        try:
            pool = WorkerPool(generate, arguments.checked_sources(sources), concurrency)
            with closing(pool.outcomes()) as outcomes:
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
        """Generates from up to 1024 sources in one call; each has its result or its own error.

        :meth:`generate_bulk` takes any number of sources.
        """
        request = requests.with_sources(requests.generate_request("", **options), sources)
        read = partial(responses.outcomes_of, sources=len(sources))
        return self._unary(Method.GENERATE_BATCH, request, read, timeout_s)

    def generate_bulk(
        self,
        sources: Iterable[BulkSource],
        *,
        concurrency: int = arguments.BULK_CONCURRENCY,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generator[tuple[int, Result | CallError], None, None]:
        """Generates from any number of sources in one call; yields results as they are ready.

        The client holds at most ``concurrency`` sources and the server reads on only while few are
        in flight, so the iterable may be endless. Leaving the loop, or closing the iterator,
        cancels the call.

        If the server becomes unreachable or shuts down, or cannot answer a source for now, another
        call is sent the sources without an answer, as :class:`~seqserve.RetryPolicy` says; every
        answer resets the count of attempts.

        Args:
            sources: The texts to generate from, each perhaps in a pair with options that it alone
                has; threads read them, one at a time.
            concurrency: Maximum number of sources between input and output, whether the server
                works on them or they are on their way.
            timeout_s: Time for the whole call and its retries; no limit by default.

        Yields:
            The index of a source, from 0, and its result or its own error.
        """
        template = requests.generate_request("", **options)
        attempts = self._attempts(math.inf if timeout_s is None else timeout_s)
        limit = self._max_message_bytes
        return BulkRun(self._calls, template, sources, concurrency, attempts, limit).outcomes()

    def stream(
        self, source: str, *, timeout_s: float | None = None, **options: Unpack[GenerateOptions]
    ) -> Generator[Piece, None, None]:
        """Generates from one source and yields the text piece by piece as it is decoded.

        The joined texts of the pieces are the text of the result; the last piece has no text but
        the result. Leaving the loop, or closing the iterator, cancels the call on the server. A
        stream is retried only before its first message.

        Args:
            timeout_s: Time for the whole stream and its retries; the client's by default.
        """
        request = requests.generate_request(source, **options)
        return pieces_of(self._calls, request, self._attempts(timeout_s))

    def score(
        self,
        source: str,
        target: str,
        *,
        timeout_s: float | None = None,
        **options: Unpack[SourceOptions],
    ) -> ScoreResult:
        """Returns the log-probability of every token of a target."""
        request = requests.score_request(source, target, **options)
        return self._unary(Method.SCORE, request, responses.score_of, timeout_s)

    def attention(
        self,
        source: str,
        target: str | None = None,
        *,
        timeout_s: float | None = None,
        **options: Unpack[SourceOptions],
    ) -> AttentionResult:
        """Returns the attention weights of every layer and head.

        Without a target, the output of greedy search is used.
        """
        request = requests.attention_request(source, target=target, **options)
        return self._unary(Method.ATTENTION, request, responses.attention_of, timeout_s)

    def tokenize(
        self,
        text: str,
        *,
        is_target: bool = False,
        timeout_s: float | None = None,
        **options: Unpack[SourceOptions],
    ) -> TokenizeResult:
        """Divides a text into the tokens of a model, and counts them as its limits do.

        A text has at most 100,000 characters; it is a source unless ``is_target`` is set.
        """
        request = requests.tokenize_request(text, is_target, **options)
        return self._unary(Method.TOKENIZE, request, responses.tokens_of, timeout_s)

    def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        timeout_s: float | None = None,
        **options: Unpack[ModelOptions],
    ) -> str:
        """Joins up to 100,000 tokens to a text; control tokens are left out."""
        request = requests.detokenize_request(token_ids, **options)
        return self._unary(Method.DETOKENIZE, request, responses.text_of, timeout_s)

    def detect_language(
        self, text: str, languages: Sequence[str] = (), *, timeout_s: float | None = None
    ) -> list[DetectedLanguage]:
        """Returns the languages that a text may be in, the most probable one first.

        ``source_language="auto"`` of the other calls does the same for their source.

        Args:
            text: The text, of at most 100,000 characters; the first 1,000 count.
            languages: Codes of the languages that it may be in; by default all that models read.

        Raises:
            FailedPrecondition: The server has no detector; the message says what to install.
        """
        request = requests.detect_language_request(text, languages)
        return self._unary(Method.DETECT_LANGUAGE, request, responses.languages_of, timeout_s)

    def close(self) -> None:
        """Cancels the calls in flight and closes the connections."""
        self._calls.cancel()
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

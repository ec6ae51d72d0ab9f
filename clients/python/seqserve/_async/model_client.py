"""The calls of ModelService, and how any unary call is sent."""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from google.protobuf.message import Message

from seqserve import requests, responses
from seqserve._async.calls import CallGroup, messages_of
from seqserve._transport.connection import Method
from seqserve.errors import OptionError
from seqserve.model import Glossary, LanguagePair, Model, Usage
from seqserve.retry import Attempts, Availability, RetryPolicy
from seqserve.v1 import model_pb2

R = TypeVar("R")


class AsyncModelClient:
    """Lists the models of a server, loads and unloads them, splits traffic among versions, and
    lists glossaries. A model whose name is None is the server's default."""

    def __init__(
        self, calls: CallGroup, retry: RetryPolicy, timeout_s: float, availability: Availability
    ) -> None:
        self._calls = calls
        if not isinstance(retry, RetryPolicy):
            raise OptionError(f"retry: {retry!r:.80} is not RetryPolicy(...)")
        self._retry = retry
        self._timeout_s = timeout_s
        self._availability = availability

    async def models(self, *, timeout_s: float | None = None) -> list[Model]:
        """Lists every version of every model of the server."""
        request = model_pb2.ListModelsRequest()
        return await self._unary(Method.LIST_MODELS, request, responses.models_of, timeout_s)

    async def language_pairs(self, *, timeout_s: float | None = None) -> list[LanguagePair]:
        """Lists the pairs of languages that calls without a model can have now, and the models."""
        request = model_pb2.ListModelsRequest(with_pairs=True)
        return await self._unary(Method.LIST_MODELS, request, responses.pairs_of, timeout_s)

    async def model(
        self, name: str | None = None, version: int | None = None, *, timeout_s: float | None = None
    ) -> Model:
        """Describes one version of a model, by default the highest one of the default model."""
        request = requests.get_model_request(model=name, version=version)
        return await self._unary(Method.GET_MODEL, request, _model_of, timeout_s)

    async def load_model(
        self, name: str | None, version: int | None = None, *, timeout_s: float | None = None
    ) -> Model:
        """Loads a version of a model and returns it when it takes calls.

        The version stays loaded until :meth:`unload_model`, whatever the server's own rules are. If
        the time runs out, the server still goes on loading.

        Args:
            version: The version; the highest one in the server's repository if None.

        Raises:
            FailedPrecondition: The version cannot be loaded; the message says why.
        """
        request = requests.load_model_request(model=name, version=version)
        return await self._unary(Method.LOAD_MODEL, request, _model_of, timeout_s)

    async def unload_model(
        self, name: str | None, version: int, *, timeout_s: float | None = None
    ) -> Model:
        """Unloads a version of a model and returns it when its calls have ended.

        The version stays unloaded until :meth:`load_model`, whatever the server's own rules are.
        """
        request = requests.unload_model_request(version, model=name)
        return await self._unary(Method.UNLOAD_MODEL, request, _model_of, timeout_s)

    async def set_traffic(
        self, name: str | None, weights: Mapping[int, int], *, timeout_s: float | None = None
    ) -> list[Model]:
        """Splits the calls that name no version among the versions of a model.

        Args:
            weights: Weight by version, such as ``{1: 90, 2: 10}``; if empty, all calls go to the
                highest version that is ready.

        Returns:
            Every version of the model, with its ``traffic_share``.
        """
        request = requests.set_traffic_request(weights, model=name)
        return await self._unary(Method.SET_TRAFFIC, request, responses.models_of, timeout_s)

    async def glossaries(self, *, timeout_s: float | None = None) -> list[Glossary]:
        """Lists the glossaries that requests may name, without their entries."""
        request = model_pb2.ListGlossariesRequest()
        return await self._unary(
            Method.LIST_GLOSSARIES, request, responses.glossaries_of, timeout_s
        )

    async def glossary(
        self,
        name: str,
        source_language: str | None = None,
        target_language: str | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Glossary:
        """Returns a glossary with its entries.

        The languages are not needed if no other glossary has its name.

        Raises:
            InvalidArgument: No glossary matches, or several do.
        """
        request = requests.get_glossary_request(
            name, source_language=source_language, target_language=target_language
        )
        return await self._unary(Method.GET_GLOSSARY, request, responses.glossary_of, timeout_s)

    async def usage(self, *, timeout_s: float | None = None) -> list[Usage]:
        """Returns the usage of this client's token name, today and this month.

        Empty if the server keeps no counts.
        """
        request = model_pb2.GetUsageRequest()
        return await self._unary(Method.GET_USAGE, request, responses.usages_of, timeout_s)

    async def _unary(
        self,
        method: Method,
        request: Message,
        read: Callable[[Any], R],
        timeout_s: float | None,
        group: CallGroup | None = None,
    ) -> R:
        attempts = self._attempts(timeout_s)
        async with aclosing(
            messages_of(group or self._calls, method, request, attempts)
        ) as messages:
            return read(await anext(messages))

    def _attempts(self, timeout_s: float | None) -> Attempts:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return Attempts(self._retry, timeout_s, self._availability)


def _model_of(response: Any) -> Model:
    return responses.model_of(response.model)

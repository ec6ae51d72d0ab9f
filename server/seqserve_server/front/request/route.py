"""Which models answer a request: the one that it names, or those of its languages."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.models.pairs import Legs
from seqserve_server.front.models.repository import Repository, ServedModel
from seqserve_server.front.request.languages import languages_of

Request: TypeAlias = (
    generation_pb2.GenerateRequest
    | generation_pb2.GenerateBatchRequest
    | generation_pb2.ScoreRequest
    | generation_pb2.AttentionRequest
    | generation_pb2.TokenizeRequest
    | generation_pb2.DetokenizeRequest
)


class Route(NamedTuple):
    """The models that answer a request, in their order; they stay loaded until the call ends."""

    models: list[ServedModel]
    legs: Legs
    """Their languages; empty where the request names a model, or no language."""

    @classmethod
    def of(cls, request: Request, repository: Repository, call: ServerCall) -> Route:
        """Finds the models of a request.

        Raises:
            InvalidRequest: No model serves the languages.
            ServiceError: As :meth:`ServerCall.resolve`.
        """
        languages = None if request.model else languages_of(request)
        legs = repository.pairs.legs(*languages) if languages else ()
        names = [leg.model for leg in legs] or [request.model]
        if len(legs) > 1 and request.version:
            reason = f"is {request.version}, but two models serve the languages; name none"
            raise InvalidRequest("version", reason)
        models = [call.resolve(repository, name, request.version) for name in names]
        return cls(models, legs)

    @property
    def slots(self) -> int:
        """Parts that all of the models can run at once: they fill a batch, and requests of others
        need not wait behind."""
        return min(model.engine.capacity.slots for model in self.models)

    def only(self, section: str = "") -> ServedModel:
        """Returns the model of a call that has no use for two.

        Raises:
            InvalidRequest: No single model serves the languages.
        """
        if len(self.models) > 1:
            first, second = self.legs
            reason = (
                f"{second.target!r} is reached from {first.source!r} over {first.target!r} only;"
                f" this call is of one model: name {first.model} or {second.model}"
            )
            raise InvalidRequest(f"{section}target_language", reason)
        return self.models[0]

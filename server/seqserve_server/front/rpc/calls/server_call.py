"""The call that a handler serves: its record, and the model versions that it keeps loaded."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import Draining, ServiceError
from seqserve_server.front.models.repository import Repository, ServedModel
from seqserve_server.front.rpc.calls.status import failure_within
from seqserve_server.front.telemetry.call_record import CallRecord


@dataclass(slots=True, kw_only=True)
class ServerCall(CallRecord):
    """One call, or one of the many requests of a call."""

    count_refusal: Callable[[str, Exception], None] = lambda model, error: None
    """Counts a request that ended with an error, in the metrics."""
    kept: list[ServedModel] = field(default_factory=list)
    """The versions that the call was given; they stay loaded until its end."""

    def resolve(self, repository: Repository, name: str, version: int) -> ServedModel:
        """Finds the version that the call asks for and keeps it loaded until the call ends.

        A call that asks again gets the version that it has, even if that is being unloaded. The id
        of the call is the key for the traffic weights.

        Raises:
            Draining: The server shuts down; a call that has its version goes on.
            ServiceError: As :meth:`Repository.resolve`.
        """
        kept = self._kept(name or repository.default, version)
        model = kept or repository.resolve(name, version, self.request_id)
        self.model, self.version = model.manifest.name, model.manifest.version
        if kept is None:
            if repository.is_closed:
                raise Draining("the server is shutting down; call another one")
            model.calls.enter()
            self.kept.append(model)
        return model

    def _kept(self, name: str, version: int) -> ServedModel | None:
        for model in self.kept:
            if model.manifest.name == name and version in (0, model.manifest.version):
                return model
        return None

    def release(self) -> None:
        """Lets the versions go: the call is over."""
        while self.kept:
            self.kept.pop().calls.leave()

    def request(self, began_s: float) -> ServerCall:
        """Begins one of many requests that resolves its own version; release it when answered."""
        return replace(self, began_s=began_s, facts={}, kept=[])

    def stands_for(self, part: ServerCall) -> None:
        """Takes the model and the version of one of many requests, if it has found them.

        Requests may name several models; the last one stands for the call.
        """
        if part.model:
            self.model, self.version = part.model, part.version

    def failed(self, error: ServiceError) -> generation_pb2.Failure:
        """Counts the failure of one of many requests, and gives it as a message."""
        self.count_refusal(self.model, error)
        return failure_within(error, self.request_id)

    def answered(self, response: generation_pb2.GenerateResponse) -> None:
        """Counts one of many sources; the response of one that failed is empty."""
        self.add(
            sources=1,
            source_tokens=response.source_tokens,
            generated_tokens=response.generated_tokens,
        )


current: ContextVar[ServerCall] = ContextVar("call")
"""The call of the handler that runs."""

auth_name: ContextVar[str] = ContextVar("auth_name", default="")
"""Name of the token of the call that arrives, before it has a :class:`ServerCall`."""

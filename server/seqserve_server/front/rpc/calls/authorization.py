"""Who may call what: each method needs a scope, and a token that has it.

Stands before everything else that surrounds a call, so that nothing of a refused one is read. A
method that the table does not list needs the admin scope.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from seqserve.bearer import token_of
from seqserve.token_entry import Scope
from seqserve_server.contract.errors import PermissionDenied, ServiceError, Unauthenticated
from seqserve_server.front.security.auth_tokens import Tokens
from seqserve_server.front.telemetry.call_record import caller

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

SCOPES: dict[str, Scope | None] = {
    # Probes and balancers ask for it and have no token; it says which models are up, no more.
    "/grpc.health.v1.Health/": None,
    "/inference.GRPCInferenceService/ServerLive": None,
    "/inference.GRPCInferenceService/ServerReady": None,
    "/inference.GRPCInferenceService/ModelReady": None,
    "/inference.GRPCInferenceService/RepositoryModelLoad": Scope.ADMIN,
    "/inference.GRPCInferenceService/RepositoryModelUnload": Scope.ADMIN,
    "/inference.GRPCInferenceService/": Scope.GENERATE,
    "/grpc.reflection.v1alpha.ServerReflection/": Scope.GENERATE,
    "/seqserve.v1.GenerationService/": Scope.GENERATE,
    "/seqserve.v1.ModelService/ListModels": Scope.GENERATE,
    "/seqserve.v1.ModelService/GetModel": Scope.GENERATE,
    "/seqserve.v1.ModelService/LoadModel": Scope.ADMIN,
    "/seqserve.v1.ModelService/UnloadModel": Scope.ADMIN,
    "/seqserve.v1.ModelService/SetTraffic": Scope.ADMIN,
}
"""What a method needs, or all methods of a service that are not there by themselves."""


def scope_of(method: str) -> Scope | None:
    """Gives the scope that a method needs; None where it needs no token.

    Args:
        method: As gRPC writes it, ``/package.Service/Method``.
    """
    if method in SCOPES:
        return SCOPES[method]
    service = method[: method.rfind("/") + 1]
    return SCOPES.get(service, Scope.ADMIN)


class AuthorizationInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Lets calls through that show a token which is good for them."""

    def __init__(self, tokens: Tokens, refusing: Callable[[str, ServiceError], Handler]) -> None:
        """Takes what decides, and what ends a call.

        Args:
            tokens: Those that callers may have.
            refusing: Makes the handler of a method whose call is to end with an error.
        """
        self._tokens = tokens
        self._refusing = refusing

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Finds the handler, or one that refuses."""
        method = handler_call_details.method
        error = self._refusal(method, handler_call_details)
        handler = await continuation(handler_call_details)
        # What nobody serves needs no protection, and its name is the caller's.
        return handler if error is None or handler is None else self._refusing(method, error)

    def _refusal(self, method: str, details: grpc.HandlerCallDetails) -> ServiceError | None:
        scope = scope_of(method)
        if scope is None:
            return None
        entry = self._tokens.find(token_of(details.invocation_metadata or ()))
        if entry is None:
            return Unauthenticated()
        caller.set(entry.name)
        return None if scope in entry.scopes else PermissionDenied(scope.value)

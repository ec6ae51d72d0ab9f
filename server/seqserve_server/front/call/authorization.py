"""Authorises calls by their tokens, before anything of them is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import grpc

from seqserve.auth import Scope, token_of
from seqserve_server.contract.errors import PermissionDenied, ServiceError, Unauthenticated
from seqserve_server.front.call.wire import Handler
from seqserve_server.front.security.auth_tokens import Tokens

AUTH_NAME: ContextVar[str] = ContextVar("auth_name", default="")
"""Name of the token of the call that arrives; the next interceptor notes it in the call."""

SCOPES: dict[str, Scope | None] = {
    # Probes and load balancers have no token; they learn which models are up, and no more.
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
    "/seqserve.v1.ModelService/ListGlossaries": Scope.GENERATE,
    "/seqserve.v1.ModelService/GetGlossary": Scope.GENERATE,
    "/seqserve.v1.ModelService/LoadModel": Scope.ADMIN,
    "/seqserve.v1.ModelService/UnloadModel": Scope.ADMIN,
    "/seqserve.v1.ModelService/SetTraffic": Scope.ADMIN,
}
"""The scope of a method; the name of a service stands for its methods that have no row. A method
without either needs the admin scope."""


def scope_of(method: str) -> Scope | None:
    """Returns the scope that a method needs; None if it needs no token."""
    if method in SCOPES:
        return SCOPES[method]
    service = method[: method.rfind("/") + 1]
    return SCOPES.get(service, Scope.ADMIN)


class AuthorizationInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without a token, or whose token lacks the scope of the method.

    Runs before :class:`CallInterceptor`, so that no request of a refused call is read.
    """

    def __init__(self, tokens: Tokens, refusing: Callable[[str, ServiceError], Handler]) -> None:
        """Takes the tokens, and what makes a handler that ends a method's calls with an error."""
        self._tokens = tokens
        self._refusing = refusing

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Finds the handler of a call, or one that refuses it."""
        method = handler_call_details.method
        error = self._refusal(method, handler_call_details)
        handler = await continuation(handler_call_details)
        # A method that does not exist needs no protection, and its name must not become a label.
        return handler if error is None or handler is None else self._refusing(method, error)

    def _refusal(self, method: str, details: grpc.HandlerCallDetails) -> ServiceError | None:
        scope = scope_of(method)
        if scope is None:
            return None
        entry = self._tokens.find(token_of(details.invocation_metadata or ()))
        if entry is None:
            return Unauthenticated()
        AUTH_NAME.set(entry.name)
        return None if scope in entry.scopes else PermissionDenied(scope.value)

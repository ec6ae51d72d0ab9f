"""Tokens: the file of ``--tokens``, and which calls a token allows.

Calls are authorised before they are read.
"""

from contextvars import ContextVar
from hmac import compare_digest
from pathlib import Path

import grpc

from seqserve.auth import Scope, TokenEntry, digest_of, token_of
from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve_server.contract.errors import PermissionDenied, ServiceError, Unauthenticated
from seqserve_server.front.security.reloading import Reloaded
from seqserve_server.front.security.usage import Usage

_OPTION = flag_of("tokens")
_MAX_FILE_BYTES = 1 << 20

CALLER: ContextVar[TokenEntry | None] = ContextVar("caller", default=None)
"""The token of the call whose task this is."""

SCOPES: dict[str, Scope | None] = {
    # Probes and load balancers have no token; they learn which models are up, and no more.
    "/grpc.health.v1.Health/": None,
    "/inference.GRPCInferenceService/ServerLive": None,
    "/inference.GRPCInferenceService/ServerReady": None,
    "/inference.GRPCInferenceService/ModelReady": None,
    "/inference.GRPCInferenceService/RepositoryModelLoad": Scope.ADMIN,
    "/inference.GRPCInferenceService/RepositoryModelUnload": Scope.ADMIN,
    "/inference.GRPCInferenceService/": Scope.GENERATE,
    "/grpc.reflection.v1.ServerReflection/": Scope.GENERATE,
    "/grpc.reflection.v1alpha.ServerReflection/": Scope.GENERATE,
    "/seqserve.v1.GenerationService/": Scope.GENERATE,
    "/seqserve.v1.ModelService/ListModels": Scope.GENERATE,
    "/seqserve.v1.ModelService/GetModel": Scope.GENERATE,
    "/seqserve.v1.ModelService/ListGlossaries": Scope.GENERATE,
    "/seqserve.v1.ModelService/GetGlossary": Scope.GENERATE,
    "/seqserve.v1.ModelService/GetUsage": Scope.GENERATE,
    "/seqserve.v1.ModelService/LoadModel": Scope.ADMIN,
    "/seqserve.v1.ModelService/UnloadModel": Scope.ADMIN,
    "/seqserve.v1.ModelService/SetTraffic": Scope.ADMIN,
}
"""The scope of a method; a row of a service is for all its methods without a row. A method without
either needs the admin scope."""
_LIMITED = (
    "/seqserve.v1.GenerationService/",
    "/inference.GRPCInferenceService/ModelInfer",
    "/inference.GRPCInferenceService/ModelStreamInfer",
)
"""Methods that a token may not call when a quota is used up."""


class Tokens:
    """The current entries of the file; if the file is broken, the last valid ones."""

    def __init__(self, path: Path, *, has_usage: bool = True) -> None:
        """Reads the file; raises OptionError for a malformed line, or a quota without usage."""
        self.files = Reloaded("tokens", {_OPTION: path}, lambda: _read(path, has_usage))

    def find(self, token: str) -> TokenEntry | None:
        """Finds the entry of a token, in a time that reveals nothing."""
        digest, match = digest_of(token), None
        for entry in self.files.value:
            if compare_digest(entry.digest, digest):
                match = entry
        return match


def _read(path: Path, has_usage: bool) -> tuple[TokenEntry, ...]:
    entries: dict[bytes, TokenEntry] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            entry = TokenEntry.parse(line)
        except OptionError as error:
            raise OptionError(f"{_OPTION}: {path}, line {number}: {error}") from None
        if entry.digest in entries:
            raise OptionError(f"{_OPTION}: {path}, line {number}: the hash is a duplicate")
        if entry.quotas and not has_usage:
            reason = f"a quota needs {flag_of('usage')}, the file that keeps what is used"
            raise OptionError(f"{_OPTION}: {path}, line {number}: {reason}")
        entries[entry.digest] = entry
    if not entries:
        raise OptionError(f"{_OPTION}: {path} holds no token; `seqserve token` makes one")
    return tuple(entries.values())


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise OptionError(f"{_OPTION}: {path} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise OptionError(f"{_OPTION}: {path} is larger than {_MAX_FILE_BYTES} bytes")
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        raise OptionError(f"{_OPTION}: {path} is not UTF-8 text") from None


def scope_of(method: str) -> Scope | None:
    """Returns the scope that a method needs; None if it needs no token."""
    if method in SCOPES:
        return SCOPES[method]
    service = method[: method.rfind("/") + 1]
    return SCOPES.get(service, Scope.ADMIN)


class Authorization:
    """Refuses calls without a token, or whose token lacks the scope of the method."""

    def __init__(self, tokens: Tokens, usage: Usage) -> None:
        self._tokens, self.usage = tokens, usage

    def refusal(self, details: grpc.HandlerCallDetails) -> ServiceError | None:
        """Returns the error of a call that may not be served; notes its token in :data:`CALLER`."""
        scope = scope_of(details.method)
        if scope is None:
            return None
        entry = self._tokens.find(token_of(details.invocation_metadata or ()))
        if entry is None:
            return Unauthenticated()
        CALLER.set(entry)
        if scope not in entry.scopes:
            return PermissionDenied(scope.value)
        return self.usage.refusal(entry) if details.method.startswith(_LIMITED) else None

"""The settings of a gRPC connection, and its methods."""

from __future__ import annotations

from enum import Enum
from typing import Any

import grpc
import grpc.aio

from seqserve.address import channel_options, check_name, grpc_target, is_local
from seqserve.auth import metadata_of
from seqserve.errors import OptionError
from seqserve.metadata import Metadata, MetadataSource, checked_metadata
from seqserve.tls import TLS
from seqserve.v1 import generation_pb2_grpc, model_pb2_grpc


class Method(Enum):
    """A method of GenerationService or ModelService, by its name."""

    GENERATE = "Generate"
    GENERATE_STREAM = "GenerateStream"
    GENERATE_BATCH = "GenerateBatch"
    GENERATE_BULK = "GenerateBulk"
    SCORE = "Score"
    ATTENTION = "Attention"
    TOKENIZE = "Tokenize"
    DETOKENIZE = "Detokenize"
    DETECT_LANGUAGE = "DetectLanguage"
    LIST_MODELS = "ListModels"
    GET_MODEL = "GetModel"
    LOAD_MODEL = "LoadModel"
    UNLOAD_MODEL = "UnloadModel"
    SET_TRAFFIC = "SetTraffic"
    LIST_GLOSSARIES = "ListGlossaries"
    GET_GLOSSARY = "GetGlossary"


class Connection:
    """Makes channels to one target; itself it opens none."""

    def __init__(
        self,
        target: str,
        max_message_bytes: int,
        tls: TLS | None = None,
        token: str | None = None,
        metadata: MetadataSource | None = None,
    ) -> None:
        """Checks the settings, which :class:`~seqserve.Client` describes with its errors."""
        self._address = grpc_target(target)
        self._token = metadata_of(token, is_private=tls is not None or is_local(target))
        if metadata is not None and not callable(metadata):
            raise OptionError(f"metadata: {metadata!r:.80} is no function that gives pairs")
        self._source = metadata
        if tls is not None:
            check_name(target, tls.server_name)
        server_name = tls.server_name if tls else None
        self._options = channel_options(target, max_message_bytes, server_name)
        self._credentials = tls.credentials() if tls else None

    def channel(self) -> grpc.Channel:
        """Makes a channel for threads."""
        if self._credentials is None:
            return grpc.insecure_channel(self._address, self._options)
        return grpc.secure_channel(self._address, self._credentials, self._options)

    def aio_channel(self) -> grpc.aio.Channel:
        """Makes a channel for the running event loop."""
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._address, self._options)
        return grpc.aio.secure_channel(self._address, self._credentials, self._options)

    def metadata(self) -> Metadata:
        """Returns the metadata of the next call; what the caller adds is checked."""
        added = checked_metadata(self._source()) if self._source else ()
        return (*added, *self._token)


def callables(channel: Any) -> dict[Method, Any]:
    """Returns the stub of every method."""
    stubs = (
        generation_pb2_grpc.GenerationServiceStub(channel),
        model_pb2_grpc.ModelServiceStub(channel),
    )
    methods = {name: stub for each in stubs for name, stub in vars(each).items()}
    return {method: methods[method.value] for method in Method}

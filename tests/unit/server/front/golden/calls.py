"""Calls of every method that generates, scores or tokenizes, and the models that they ask."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2 as pb
from seqserve_server.artifact.records import Template

SERVERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "languages": {
        "template": Template(
            source_prefix=["{source}"],
            source_suffix=["s"],
            target_prefix=["{target}"],
            source_languages={"en": "e", "de": "d"},
            target_languages={"en": "e", "de": "d"},
        )
    },
    "defaults": {"generation": {"segmentation": "sentences", "beam_size": 2}},
    "features": {
        "template": Template(
            source_suffix=["s"], source_languages={"en": ""}, target_languages={"de": ""}
        ),
        "generation": {"keep_placeholders": True, "lower_capitals": True},
    },
    "pivot": {"template": Template(source_languages={"en": ""}, target_languages={"de": ""})},
}
"""What differs in the manifest of the model of each server."""
OTHERS: dict[str, dict[str, Template]] = {
    "pivot": {"onward": Template(source_languages={"de": ""}, target_languages={"fr": ""})}
}
"""The templates of the other models of a server, by their names."""
GLOSSARY = {"coffee": "Kaffee", "tea": "Tee", "green tea": "Gruentee", "rain": "Regen", "ask": "?"}
"""The entries of the glossary ``drinks`` of the servers with features, of English to German."""


class Method(NamedTuple):
    """A method of the server."""

    path: str
    response: type[Message]
    client_streaming: bool
    server_streaming: bool


def _methods(file: Any, service: str, *names: str) -> dict[str, Method]:
    descriptor = file.DESCRIPTOR.services_by_name[service]
    return {
        name: Method(
            f"/{descriptor.full_name}/{name}",
            GetMessageClass(descriptor.methods_by_name[name].output_type),
            descriptor.methods_by_name[name].client_streaming,
            descriptor.methods_by_name[name].server_streaming,
        )
        for name in names
    }


METHODS = _methods(
    pb,
    "GenerationService",
    "Generate",
    "GenerateStream",
    "GenerateBatch",
    "GenerateBulk",
    "Score",
    "Attention",
    "Tokenize",
    "Detokenize",
) | _methods(open_inference_pb2, "GRPCInferenceService", "ModelInfer", "ModelStreamInfer")


@dataclass(frozen=True, slots=True)
class Call:
    """A method and the requests of a call, encoded."""

    server: str
    name: str
    requests: list[bytes]

    @property
    def method(self) -> Method:
        return METHODS[self.name]

    def written(self) -> dict[str, Any]:
        encoded = [base64.b64encode(request).decode() for request in self.requests]
        return {"server": self.server, "name": self.name, "requests": encoded}

    @classmethod
    def parse(cls, written: dict[str, Any]) -> Call:
        requests = [base64.b64decode(request) for request in written["requests"]]
        return cls(written["server"], written["name"], requests)

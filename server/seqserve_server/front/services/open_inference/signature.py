"""The tensors of every model: describes them, and reads which outputs a request wants.

All models have the same tensors: texts go in, and each output tensor has one value per hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.generate.source import MAX_SOURCES
from seqserve_server.front.services.open_inference.tensors import (
    BYTES,
    FP32,
    MAX_NAME,
    TEXT,
    refuse_parameters,
)

Hypothesis = generation_pb2.Hypothesis
Request = open_inference_pb2.ModelInferRequest
Metadata = open_inference_pb2.ModelMetadataResponse
Config = open_inference_pb2.ModelConfig

# The protocol's name for models of ONNX.
_PLATFORM = "onnx_onnxv1"
_CONFIG_TYPES = {
    BYTES: open_inference_pb2.DataType.TYPE_STRING,
    FP32: open_inference_pb2.DataType.TYPE_FP32,
}


@dataclass(frozen=True, slots=True)
class Output:
    """An output tensor."""

    name: str
    datatype: str
    value: Callable[[Hypothesis], Any]
    """Returns the element for a hypothesis."""
    missing: Any
    """The element for a hypothesis that was wanted and not found."""
    is_score: bool = False

    def elements(self, hypotheses: Sequence[Hypothesis], count: int) -> list[Any]:
        """Returns ``count`` elements for the hypotheses of one text."""
        values = [self.value(hypothesis) for hypothesis in hypotheses]
        return values + [self.missing] * (count - len(values))


def _stop_reason(hypothesis: Hypothesis) -> bytes:
    name = generation_pb2.StopReason.Name(hypothesis.stop_reason)
    return name.removeprefix("STOP_REASON_").encode()


def _score(name: str) -> Output:
    return Output(name, FP32, attrgetter(name), -math.inf, is_score=True)


OUTPUTS = {
    output.name: output
    for output in (
        Output(TEXT, BYTES, lambda hypothesis: hypothesis.text.encode(), b""),
        _score("score"),
        _score("normalized_score"),
        Output("stop_reason", BYTES, _stop_reason, b""),
    )
}


def metadata_of(name: str, versions: Sequence[int]) -> Metadata:
    """Describes a model, with its loaded versions, as the protocol does."""
    return Metadata(
        name=name,
        versions=[str(version) for version in versions],
        platform=_PLATFORM,
        inputs=[Metadata.TensorMetadata(name=TEXT, datatype=BYTES, shape=[-1, 1])],
        outputs=[
            Metadata.TensorMetadata(name=output.name, datatype=output.datatype, shape=[-1, -1])
            for output in OUTPUTS.values()
        ],
    )


def config_of(name: str) -> Config:
    """Describes a model as Triton's configuration does."""
    config = Config(name=name, platform=_PLATFORM, max_batch_size=MAX_SOURCES)
    config.input.add(name=TEXT, data_type=_CONFIG_TYPES[BYTES], dims=[1])
    for output in OUTPUTS.values():
        config.output.add(name=output.name, data_type=_CONFIG_TYPES[output.datatype], dims=[-1])
    return config


def outputs_of(request: Request) -> list[Output]:
    """Lists the outputs that a request wants, in its order; all if it names none."""
    for wanted in request.outputs:
        if wanted.name not in OUTPUTS:
            raise InvalidRequest(
                "outputs",
                f"{wanted.name!r:.{MAX_NAME}} is unknown; choose from {', '.join(OUTPUTS)}",
            )
        refuse_parameters(f"outputs.{wanted.name}", wanted.parameters)
    names = dict.fromkeys(wanted.name for wanted in request.outputs)
    return [OUTPUTS[name] for name in names or OUTPUTS]

"""One request of the Open Inference Protocol, checked, and the responses to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.front.generate.records import GenerateRequest
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.services.open_inference.parameters import flag, options_of
from seqserve_server.front.services.open_inference.signature import Output, outputs_of
from seqserve_server.front.services.open_inference.tensors import TEXT, Texts, add_output, texts_of

Hypothesis = generation_pb2.Hypothesis
Request = open_inference_pb2.ModelInferRequest
Response = open_inference_pb2.ModelInferResponse

STREAM = "stream"
"""The parameter that asks for text as it is decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """Texts for a model, and what to return."""

    id: str
    model: ServedModel
    texts: Texts
    outputs: list[Output]
    options: generation_pb2.GenerationOptions
    is_streamed: bool

    @classmethod
    def read(cls, request: Request, model: ServedModel) -> InferenceRequest:
        """Checks the tensors and parameters of a request for a model."""
        texts = texts_of(request)
        outputs = outputs_of(request)
        parameters = dict(request.parameters)
        is_streamed = flag(parameters, STREAM)
        parameters.pop(STREAM, None)
        options = options_of(parameters)
        # Tensors have no place for segments.
        options.segmentation = SegmentationMode.NONE.value
        options.return_scores = any(output.is_score for output in outputs)
        if is_streamed and (len(texts.texts) > 1 or options.num_hypotheses > 1):
            raise InvalidRequest(
                f"parameters.{STREAM}", "is set; send one text and ask for one hypothesis"
            )
        return cls(
            id=request.id,
            model=model,
            texts=texts,
            outputs=outputs,
            options=options,
            is_streamed=is_streamed,
        )

    def generate_request(self) -> GenerateRequest:
        """Writes the request of ``seqserve.v1``: for a lone text, or for a batch."""
        texts = self.texts.texts
        if len(texts) == 1:
            return generation_pb2.GenerateRequest(source=texts[0], options=self.options)
        return generation_pb2.GenerateBatchRequest(sources=texts, options=self.options)

    def response(self, answers: Sequence[generation_pb2.GenerateResponse]) -> Response:
        """Builds the response from the answers to all texts."""
        return self._response(self.outputs, [answer.hypotheses for answer in answers])

    def piece(self, text: str) -> Response:
        """Builds the response for a piece of the text, without the other outputs."""
        outputs = [output for output in self.outputs if output.name == TEXT]
        return self._response(outputs, [[Hypothesis(text=text)]])

    def end(self, best: Hypothesis) -> Response:
        """Builds the last response of a stream: the other outputs, and no more text."""
        rest = Hypothesis()
        rest.CopyFrom(best)
        rest.text = ""
        return self._response(self.outputs, [[rest]])

    def _response(
        self, outputs: Sequence[Output], answers: Sequence[Sequence[Hypothesis]]
    ) -> Response:
        manifest = self.model.manifest
        response = Response(
            model_name=manifest.name, model_version=str(manifest.version), id=self.id
        )
        width = max(1, self.options.num_hypotheses)
        is_flat = self.texts.is_flat and width == 1
        shape = [len(answers)] if is_flat else [len(answers), width]
        is_raw = self.texts.is_raw
        for output in outputs:
            values = [
                value for hypotheses in answers for value in output.elements(hypotheses, width)
            ]
            add_output(response, output.name, output.datatype, shape, values, is_raw=is_raw)
        return response


def renamed(error: InvalidRequest, index: int) -> InvalidRequest:
    """Names the field of an error in the ``GenerateRequest`` of a text as this protocol does."""
    group, _, name = error.field.partition(".")
    if group == "source":
        return InvalidRequest(f"inputs.{TEXT}[{index}]", error.reason)
    return InvalidRequest(f"parameters.{name}" if group == "options" else error.field, error.reason)

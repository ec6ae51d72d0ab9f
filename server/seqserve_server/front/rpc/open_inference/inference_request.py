"""One request of the Open Inference Protocol, checked, and the answer to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.open_inference.parameters import flag, options_of
from seqserve_server.front.rpc.open_inference.pb import open_inference_pb2
from seqserve_server.front.rpc.open_inference.signature import Output, fill, outputs_of
from seqserve_server.front.rpc.open_inference.tensors import TEXT, Texts, texts_of

Request = open_inference_pb2.ModelInferRequest
Response = open_inference_pb2.ModelInferResponse

IN_PIECES = "stream"
"""The parameter that asks for text as it is decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """Texts for a model."""

    id: str
    model: ServedModel
    texts: Texts
    outputs: list[Output]
    options: generation_pb2.GenerationOptions
    in_pieces: bool

    @classmethod
    def read(cls, request: Request, model: ServedModel) -> InferenceRequest:
        """Reads a request that means a model.

        Raises:
            InvalidRequest: A tensor or a parameter is wrong.
        """
        texts = texts_of(request)
        outputs = outputs_of(request)
        parameters = dict(request.parameters)
        in_pieces = flag(parameters, IN_PIECES)
        parameters.pop(IN_PIECES, None)
        options = options_of(parameters)
        options.return_scores = any(output.is_score for output in outputs)
        if in_pieces and (len(texts.texts) > 1 or options.num_hypotheses > 1):
            raise InvalidRequest(
                f"parameters.{IN_PIECES}",
                "is set; pieces are those of one hypothesis of one text: ask for no more",
            )
        return cls(
            id=request.id,
            model=model,
            texts=texts,
            outputs=outputs,
            options=options,
            in_pieces=in_pieces,
        )

    def questions(self) -> list[generation_pb2.GenerateRequest]:
        """Asks the same of ``seqserve.v1``, once for each text."""
        manifest = self.model.manifest
        return [
            generation_pb2.GenerateRequest(
                model=manifest.name, version=manifest.version, source=text, options=self.options
            )
            for text in self.texts.texts
        ]

    def response(self, answers: Sequence[Sequence[generation_pb2.Hypothesis]]) -> Response:
        """Gives the answer.

        Args:
            answers: The hypotheses of each text, best first.
        """
        return self._response(self.outputs, answers)

    def piece(self, text: str) -> Response:
        """Gives a part of the text, and nothing of what is known at its end."""
        outputs = [output for output in self.outputs if output.name == TEXT]
        return self._response(outputs, [[generation_pb2.Hypothesis(text=text)]])

    def end(self, best: generation_pb2.Hypothesis) -> Response:
        """Gives what is known at the end of pieces; the text has gone before."""
        rest = generation_pb2.Hypothesis()
        rest.CopyFrom(best)
        rest.text = ""
        return self.response([[rest]])

    def _response(
        self, outputs: Sequence[Output], answers: Sequence[Sequence[generation_pb2.Hypothesis]]
    ) -> Response:
        manifest = self.model.manifest
        response = Response(
            model_name=manifest.name, model_version=str(manifest.version), id=self.id
        )
        fill(
            response,
            outputs,
            answers,
            width=self.width,
            is_flat=self.texts.is_flat and self.width == 1,
            is_raw=self.texts.is_raw,
        )
        return response

    @property
    def width(self) -> int:
        """Hypotheses that are wanted of each text."""
        return max(1, self.options.num_hypotheses)


def renamed(error: InvalidRequest, number: int) -> InvalidRequest:
    """Names the field as this protocol does.

    Args:
        error: Of ``seqserve.v1``.
        number: Of the text that was asked about.
    """
    group, _, name = error.field.partition(".")
    if group == "source":
        return InvalidRequest(f"inputs.{TEXT}[{number}]", error.reason)
    return InvalidRequest(f"parameters.{name}" if group == "options" else error.field, error.reason)

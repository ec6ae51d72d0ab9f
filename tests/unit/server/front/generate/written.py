"""Writes the response to one source from what an engine would have answered."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.unit.server.front.generate.asking import AnsweringEngine, answered, compiled

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Event, Failed, Finished, Timeline
from seqserve_server.front.generate.records import Part, Source
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.text.splitting import Span


def written(
    model: ServedModel,
    text: str,
    tokens: list[int],
    answer: Finished,
    timeline: Timeline | None = None,
    num_targets: int | None = None,
    *,
    kept: Sequence[Span] = (),
    attention: Finished | ServiceError | None = None,
    while_fetching: Callable[[], bool] = lambda: True,
    call: Any = None,
    **sent: Any,
) -> generation_pb2.GenerateResponse:
    """``attention`` is the answer with it, or why there is none; None where nobody wants it."""

    def reply(spec: Any) -> Event:
        if spec.answer is None:
            return answer
        assert while_fetching()
        return Failed(attention) if isinstance(attention, ServiceError) else attention or answer

    options = compiled(model, **sent)
    terms = sent.get("terms", ())
    count = len(terms) if num_targets is None else num_targets
    decoding = replace(options.decoding, terms=((1,),) * count)
    part = Part(Span(0, len(text)), text, text, tokens, decoding, protected=kept, terms=terms)
    source = Source(text, [part], len(tokens), is_divided=False)
    return answered(model, AnsweringEngine(reply, timeline), options, source, call)

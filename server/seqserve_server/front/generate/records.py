"""The records that a request becomes on its way, in their order.

``GenerateRequest -> Route -> Options -> Source(Part...) -> Job -> GenerateSpec -> Finished ->
Hypothesis -> GenerateResponse``
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.detection import Detected
from seqserve_server.front.generate.feature import Feature, Part
from seqserve_server.front.generate.languages import NO_AFFIXES, Affixes
from seqserve_server.front.generate.splitting import Segmentation
from seqserve_server.front.generate.window import Window
from seqserve_server.front.glossaries.glossary import Glossary
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.front.models.pairs import Leg

GenerateRequest: TypeAlias = generation_pb2.GenerateRequest | generation_pb2.GenerateBatchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the options of a request mean for a model."""

    decoding: DecodingOptions
    """For the engine; it has all terms of the request, a part has those that it contains."""
    affixes: Affixes = NO_AFFIXES
    """What is added to each source and target."""
    segmentation: Segmentation | None = None
    """How sources are divided; None for not at all."""
    features: tuple[Feature, ...] = ()
    returns_attention: bool = False
    is_repeatable: bool = True
    """Whether equal requests have equal answers: those that do not draw a seed of their own."""
    glossary: Glossary | None = None
    """The glossary that the request names."""

    @property
    def is_lasting(self) -> bool:
        """Whether they may serve again; a random seed must be another one each time."""
        return self.decoding.sampling is None


class Hop(NamedTuple):
    """A model on the way from the source to the target language, and its options."""

    model: LoadedModel
    options: Options
    leg: Leg | None = None
    """Its languages; None where the request names a model, or no language."""


class Route(NamedTuple):
    """The models that answer a request; they stay loaded until the call ends."""

    hops: tuple[Hop, ...]
    """One, or the two of a pivot."""
    priority: Priority
    is_bulk: bool
    """Whether its sources are some of many of a call, which wait where a lone one is refused."""
    detected: Detected | None = None
    """The language of the source, if it was detected."""

    @property
    def slots(self) -> int:
        """Parts that all of the models can run at once."""
        return min(hop.model.engine.capacity.slots for hop in self.hops)


@dataclass(frozen=True, slots=True)
class Source:
    """A source and its parts, in order; between them is nothing but white space."""

    text: str
    parts: list[Part]
    num_tokens: int
    """Tokens of all parts."""
    is_divided: bool
    """Whether the answer has segments: where division was asked for, even if there is one part."""


class Onward(NamedTuple):
    """The second model of a pivot."""

    hop: Hop
    read: Callable[[str, bool], Awaitable[Job]]
    """Reads a text that the first model has written; the flag is that of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Sources that a model has read: what remains is to answer them."""

    hop: Hop
    sources: list[Source | ServiceError]
    """In the order of the request; a source that cannot be answered is an error."""
    priority: Priority
    is_bulk: bool
    """As of the route."""
    call: ServerCall
    window: Window
    """Bounds how many parts of divided sources are in flight."""
    onward: Onward | None = None
    detected: Detected | None = None
    """The language of the sources, if it was detected."""

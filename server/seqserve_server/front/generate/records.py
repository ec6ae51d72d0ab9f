"""Records that a request becomes on its way, in order; its features; the places that answers tell.

``GenerateRequest -> Route -> Options -> Source(Part...) -> Job -> GenerateSpec -> Finished ->
Hypothesis -> GenerateResponse``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from seqserve.language_codes import folded
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.pairs import Leg
from seqserve_server.contract.events import Finished, Hypothesis
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority
from seqserve_server.front.generate.languages import NO_AFFIXES, Affixes
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.text.glossary import Glossaries, Glossary
from seqserve_server.text.protected import without
from seqserve_server.text.splitting import Segmentation, Span

GenerateRequest: TypeAlias = generation_pb2.GenerateRequest | generation_pb2.GenerateBatchRequest


PREFIXES = ("target_prefix", "target_prefix_tokens")
"""Options of the prefix of a target, which belongs to one text, not to each of its segments."""


def has_prefix(options: generation_pb2.GenerationOptions) -> bool:
    """Returns whether a request sets the prefix of its target."""
    return any(getattr(options, name) for name in PREFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a request, compiled for a model."""

    decoding: DecodingOptions
    """For the engine; it has all terms of the request, a part has those that it contains."""
    affixes: Affixes = NO_AFFIXES
    """Tokens around each source and target."""
    segmentation: Segmentation | None = None
    """How sources are divided; None for not at all."""
    features: tuple[Feature, ...] = ()
    check: Check | None = None
    returns_attention: bool = False
    is_repeatable: bool = True
    """Whether equal requests have equal answers: not if each draws its own seed."""
    glossary: Glossary | None = None
    """The glossary that the request names."""


class Hop(NamedTuple):
    """A model on the way from the source to the target language, and its options."""

    model: LoadedModel
    options: Options
    leg: Leg | None = None
    """Its languages; None where the request names a model, or no language."""


def window_of(slots: int) -> int:
    """Counts the parts of a call in flight: those that run, and half as many for the next steps."""
    return slots + slots // 2


class Route(NamedTuple):
    """The models that answer a request; they stay loaded until the call ends."""

    hops: tuple[Hop, ...]
    """One, or the two of a pivot."""
    priority: Priority
    is_bulk: bool
    """Whether its sources, or their parts, belong to a call of many, which waits."""
    detected: generation_pb2.DetectedLanguage | None = None
    """The language of the source, if it was detected."""

    @property
    def is_pivot(self) -> bool:
        """Whether two models answer."""
        return len(self.hops) > 1

    @property
    def window(self) -> int:
        """Parts in flight at once."""
        return window_of(min(hop.model.engine.capacity.slots for hop in self.hops))


class Part(NamedTuple):
    """A part of a source, which the engine decodes separately."""

    span: Span
    """Its place in the source."""
    original: str
    text: str
    """Its text as the model reads it; characters have the places of the original."""
    tokens: list[int]
    """Tokens that the model reads for it, special ones too; empty if the part stays as it is."""
    decoding: DecodingOptions
    """How to decode it: the options of the request, with the terms that this part contains."""
    is_wrapped: bool = False
    """Whether it is only a part of a line or sentence, which is too long."""
    protected: Sequence[Span] = ()
    """Spans of its text that come back as they are."""
    terms: Sequence[generation_pb2.Term] = ()
    """The terms of ``decoding`` as they were sent, then terms of a glossary that cannot apply."""
    draft: tuple[int, ...] = ()
    """Token ids that its target may have."""
    check: Check | None = None
    """What checks its answer; set by the check that has read it."""

    @property
    def rest(self) -> str:
        """The unprotected spans of its original text."""
        return without(self.original, self.protected)


@dataclass(frozen=True, slots=True)
class Source:
    """A source and its parts, in order, with white space alone between them."""

    text: str
    parts: list[Part]
    num_tokens: int
    is_divided: bool
    """Whether the answer has segments: if division was requested, even with one part."""


# Tag and length of a string or of a packed field, a token id, a float: on the wire at most.
STRING_BYTES, PACKED_BYTES, ID_BYTES, FLOAT_BYTES = 4, 16, 5, 4
# Names, times, counts.
ANSWER_BYTES, HYPOTHESIS_BYTES = 512, 128


class Feature:
    """An addition to a translation that a request may ask for.

    All features read a part, in their order, and write each hypothesis, in the same order: see
    :mod:`~seqserve_server.features`. They serve many requests, so they know nothing of one.
    """

    field = ""
    """Its option, for errors."""
    shapes_text = False
    """Whether it changes the text that the model reads; then each try to wrap a text calls it."""

    def read(self, part: Part) -> Part:
        """Returns a part with what the feature finds in it, before the engine gets it."""
        return part

    def read_divided(self, parts: list[Part]) -> list[Part]:
        """Returns the parts of a source that has several."""
        return parts

    def max_bytes(self, part: Part) -> int:
        """Returns how many bytes it may add to a hypothesis for a part."""
        return 0

    def rewrites(self, part: Part) -> bool:
        """Returns whether the text of an answer may change once it is whole; it is not streamed."""
        return False

    def needs_attention(self, part: Part, answer: Finished) -> bool:
        """Returns whether an answer can be written better with its attention, which it lacks."""
        return False

    def replace_tokens(self, part: Part, hypothesis: Hypothesis) -> Hypothesis:
        """Returns a hypothesis with the tokens that the caller gets."""
        return hypothesis

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        """Changes the message of a hypothesis, which has its text already."""


class Check(Feature):
    """A feature of the parts that it marks as its own; it only reads and writes, after others."""

    repairs = False
    """Whether :meth:`second_try` may find an answer wrong."""

    def second_try(self, part: Part, answer: Finished) -> Part | None:
        """Returns a part as it is decoded again, if its answer is wrong; None if it is right."""
        return None

    def is_better(self, part: Part, answer: Finished, other: Finished) -> bool:
        """Returns whether the answer of the second try is the better one."""
        return False


class Asked(NamedTuple):
    """Input of a feature: the request's options, over its model's."""

    options: generation_pb2.GenerationOptions
    decoding: DecodingOptions
    affixes: Affixes
    model: LoadedModel
    glossary: Glossary | None

    @property
    def ends(self) -> set[int]:
        """Ids of the tokens that end a hypothesis."""
        return set(self.decoding.end_ids or (self.model.manifest.tokens.eos,))

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of ISO 639 of source and target; empty for one that nothing tells."""
        template, options = self.model.manifest.template, self.options
        known = (template.source_languages, template.target_languages) if template else ({}, {})
        sent = options.source_language, options.target_language
        source, target = (
            folded(code or (next(iter(codes)) if len(codes) == 1 else "")).name
            for code, codes in zip(sent, known, strict=True)
        )
        return source, target


class Features(NamedTuple):
    """The features of a server: all that the way of a request knows of them."""

    makers: tuple[Callable[[Asked], Feature | None], ...]
    """Make the features of a request, in the order in which they read and write; InvalidRequest for
    a wrong option."""
    make_check: Callable[[Asked], Check | None]
    """Makes the check of a request."""
    glossaries: Glossaries
    """Those that requests may name."""


class Link(NamedTuple):
    """A token of a target, and its place in the source."""

    source: Span
    target: Span

    def moved(self, source: int, target: int) -> Link:
        """Returns the link so many characters further on in both texts."""
        return Link(
            Span(*(place + source for place in self.source)),
            Span(*(place + target for place in self.target)),
        )


def links_of(message: generation_pb2.Alignment) -> list[Link]:
    """Reads the links of an alignment."""
    sources = map(Span, message.source_begins, message.source_ends)
    targets = map(Span, message.target_begins, message.target_ends)
    return [Link(*link) for link in zip(sources, targets, strict=True)]


def message_of(links: Sequence[Link]) -> generation_pb2.Alignment:
    """Writes links as an alignment."""
    return generation_pb2.Alignment(
        source_begins=[link.source.begin for link in links],
        source_ends=[link.source.end for link in links],
        target_begins=[link.target.begin for link in links],
        target_ends=[link.target.end for link in links],
    )


def kept_in(text: str, spans: Iterable[Span]) -> list[generation_pb2.KeptText]:
    """Returns the kept texts of a text that stays as it is."""
    generated = generation_pb2.PLACEMENT_GENERATED
    return [kept_text(text, span, span, generated) for span in spans]


def kept_text(
    source: str, span: Span, target: Span, placement: generation_pb2.Placement
) -> generation_pb2.KeptText:
    """Writes a span of a source that comes back unchanged, and its place in the target."""
    return generation_pb2.KeptText(
        text=source[slice(*span)],
        source_begin=span.begin,
        source_end=span.end,
        target_begin=target.begin,
        target_end=target.end,
        placement=placement,
    )

"""A part of a source, and what a feature does with it before and after the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Finished, Hypothesis
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.generate.languages import Affixes
from seqserve_server.front.generate.splitting import Span
from seqserve_server.front.glossaries.glossary import Glossary
from seqserve_server.front.models.loaded_model import LoadedModel


class Part(NamedTuple):
    """A part of a source, which the engine decodes by itself."""

    span: Span
    """Its place in the source."""
    original: str
    """Its text in the source."""
    text: str
    """Its text as the model reads it; characters have the places of the original."""
    tokens: list[int]
    """What the model reads for it, with all that is added; empty for a part that stays as it is."""
    decoding: DecodingOptions
    """How to decode it: the options of the request, with the terms that this part contains."""
    is_wrapped: bool = False
    """Whether it is only a part of a line or sentence, which is too long."""
    protected: Sequence[Span] = ()
    """What of its text comes back as it is."""
    terms: Sequence[generation_pb2.Term] = ()
    """The terms of ``decoding`` as they were sent, then terms of a glossary that cannot apply."""
    draft: tuple[int, ...] = ()
    """Token ids that its target may have."""

    @property
    def rest(self) -> str:
        """What of its original text is not protected."""
        return without(self.original, self.protected)


def without(text: str, spans: Sequence[Span]) -> str:
    """Returns what of a text is in no span, with spaces in their place."""
    if not spans:
        return text
    begins = [0, *(span.end for span in spans)]
    ends = [*(span.begin for span in spans), len(text)]
    return " ".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))


class Feature:
    """What a request may ask for in addition to a translation; a plain request has none.

    All features of a request read a part, in their order, and write each hypothesis, in the same
    order: see :mod:`~seqserve_server.front.generate.options`. They are kept with the options of a
    model and serve many requests, so they know nothing of one.
    """

    field = ""
    """The option that it comes from, in errors."""
    shapes_text = False
    """Whether it decides which text the model reads; then it is asked for each try to wrap one."""

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
        """Tells whether the text of an answer may change once it is whole; it is not streamed."""
        return False

    def needs_attention(self, part: Part, answer: Finished) -> bool:
        """Tells whether an answer can be written better with its attention, which it lacks."""
        return False

    def replace_tokens(self, part: Part, hypothesis: Hypothesis) -> Hypothesis:
        """Returns a hypothesis with the tokens that the caller gets."""
        return hypothesis

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        """Changes the message of a hypothesis, which has its text already."""


class Asked(NamedTuple):
    """What features are made from: the options of a request, over those of its model."""

    options: generation_pb2.GenerationOptions
    decoding: DecodingOptions
    affixes: Affixes
    model: LoadedModel
    glossary: Glossary | None

"""Divides the options of a request between the two models of a pivot.

Both search as the request says. What it says of the text and of the answer is for the second model,
whose text the caller gets.
"""

from __future__ import annotations

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.config import SegmentationMode
from seqserve_server.front.models.pairs import Leg
from seqserve_server.front.request.splitting import has_prefix

Options = generation_pb2.GenerationOptions

_OF_BOTH = {
    *("beam_size", "patience", "length_penalty", "coverage_penalty"),
    *("repetition_penalty", "no_repeat_ngram_size", "disable_unk", "replace_unknowns"),
    *("segmentation", "shortlist", "time_limit_ms", "return_scores", "return_alignment"),
    *("keep", "keep_placeholders", "lower_capitals"),
}
_OF_FIRST = {"segmentation_language"}
_REFUSED = {
    "terms": "are matched against the source, which the second model does not read",
    "glossary": "is of one pair of languages, and two models answer",
    "return_attention": "is of one model; return_alignment goes through both",
}


def first_options(options: Options, leg: Leg) -> Options:
    """Returns the options for the model that reads the source.

    Raises:
        InvalidRequest: The request has an option that is possible with one model only.
    """
    for name, reason in _REFUSED.items():
        if getattr(options, name):
            over = f"and {leg.target!r} lies between the languages of the request"
            raise InvalidRequest(f"options.{name}", f"{reason}, {over}")
    first = _only(options, _OF_BOTH | _OF_FIRST, leg)
    # A prefix is that of a lone text; without one a model may divide a source by default.
    if has_prefix(options) and not options.segmentation:
        first.segmentation = SegmentationMode.NONE.value
    return first


def second_options(options: Options, leg: Leg) -> Options:
    """Returns the options for the model that writes the answer."""
    return _only(options, DECLARATIONS.keys() - _OF_FIRST, leg)


def _only(options: Options, names: set[str], leg: Leg) -> Options:
    kept = Options()
    kept.CopyFrom(options)
    for name in DECLARATIONS.keys() - names:
        kept.ClearField(name)
    kept.source_language, kept.target_language = leg.source, leg.target
    return kept

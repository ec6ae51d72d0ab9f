"""Rules between options: which exclude, need or limit each other."""

from collections.abc import Iterator
from typing import TypeAlias

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.limits import MAX_SUPPRESSED, MAX_TOP_K
from seqserve_server.contract.options import DecodingOptions, Sampling, SegmentationMode
from seqserve_server.front.generate.records import PREFIXES

Options = generation_pb2.GenerationOptions
_Rule: TypeAlias = tuple[bool, str, str]
"""Whether an option is wrong, its name, and why."""

_SAMPLING = Sampling._fields
_NEED_BEAM = ("coverage_penalty", "early_stopping", "prefix_bias_beta")
_TERMS = ("terms", "glossary")
_EXCLUDES = {
    "coverage_penalty": ("return_alternatives",),
    "prefix_bias_beta": ("return_alternatives", *_TERMS, "vocabulary_allow"),
    "draft_source": ("target_draft",),
    # These rank by more than the score, so the search cannot tell what may still be better.
    "early_stopping": ("coverage_penalty", *_TERMS),
    "return_alternatives": (*_TERMS, *_SAMPLING),
    "segmentation": PREFIXES,
    **dict.fromkeys(_TERMS, _SAMPLING),
}
_ONE_MODEL = {
    "terms": "are matched against the source, which the second model does not read",
    "glossary": "is of one pair of languages, and two models answer",
    "return_attention": "is of one model; return_alignment goes through both",
}


def check_pivot(options: Options, between: str) -> None:
    """Refuses options that are possible with one model only."""
    over = f"and {between!r} lies between the languages of the request"
    _check(
        (bool(getattr(options, name)), name, f"{reason}, {over}")
        for name, reason in _ONE_MODEL.items()
    )


def check_conflicts(
    own: Options, options: Options, decoding: DecodingOptions, manifest: Manifest, max_rows: int
) -> None:
    """Checks options that are within their bounds against each other.

    The request sets ``own``; ``options`` are these over what its model recommends, ``decoding`` has
    the same, converted.
    """
    ends = set(decoding.end_ids or (manifest.tokens.eos,))
    _check(_lengths(decoding, manifest))
    _check(_rows(options, decoding, max_rows))
    _check(_combinations(own, options, decoding))
    _check(_tokens(options, decoding, manifest, ends))


def _check(rules: Iterator[_Rule]) -> None:
    for is_wrong, field, reason in rules:
        if is_wrong:
            raise InvalidRequest(f"options.{field}", reason)


def _lengths(decoding: DecodingOptions, manifest: Manifest) -> Iterator[_Rule]:
    limit = manifest.limits.max_target_length
    longest, shortest = decoding.max_decoding_length, decoding.min_decoding_length
    reason = f"is {longest}; {manifest.label} takes 1 to {limit}"
    yield longest > limit, "max_decoding_length", reason
    reason = f"is {shortest}; it must be 0 to max_decoding_length, which is {longest}"
    yield shortest > longest, "min_decoding_length", reason


def _rows(options: Options, decoding: DecodingOptions, max_rows: int) -> Iterator[_Rule]:
    size, count = decoding.beam_size, decoding.num_hypotheses
    yield size > max_rows, "beam_size", f"is {size}; this server keeps at most {max_rows}"
    if decoding.sampling:
        chosen = next(name for name in _SAMPLING if options.HasField(name))
        yield size > 1, "beam_size", f"is {size} with {chosen}; choose search or sampling"
    field, each = "num_hypotheses", f"is {count} alternatives with a beam_size of {size} each"
    if decoding.return_alternatives:
        fit = min(MAX_TOP_K, max_rows // size)
        yield count > fit, field, f"{each}: at most {fit} of them fit"
    elif decoding.sampling:
        yield count > max_rows, field, f"is {count}; this server draws at most {max_rows}"
    else:
        advice = "raise that, sample with temperature, or set return_alternatives"
        yield count > size, field, f"is {count}, more than beam_size, which is {size}: {advice}"


def _combinations(own: Options, options: Options, decoding: DecodingOptions) -> Iterator[_Rule]:
    # Any value of a sampling option turns sampling on; other options are off if they are 0.
    sent = {each.name for each, value in options.ListFields() if value or each.name in _SAMPLING}
    if options.segmentation == SegmentationMode.NONE.value:
        sent.discard("segmentation")
    # A rule that the model recommends is for searches that have the choice.
    if not own.early_stopping:
        sent.discard("early_stopping")
    for name, others in _EXCLUDES.items():
        for other in others:
            is_wrong = name in sent and other in sent
            yield is_wrong, name, f"is set together with {other}; choose one of them"
    for name in _NEED_BEAM:
        is_wrong = name in sent and decoding.beam_size == 1
        yield is_wrong, name, "needs a beam; set beam_size above 1"
    name = "min_alternative_expansion_prob"
    is_wrong = name in sent and not decoding.return_alternatives
    yield is_wrong, name, "needs return_alternatives; set that too"
    is_wrong = "prefix_bias_beta" in sent and not decoding.prefix
    yield is_wrong, "prefix_bias_beta", "needs a prefix; set target_prefix"


def _tokens(
    options: Options, decoding: DecodingOptions, manifest: Manifest, ends: set[int]
) -> Iterator[_Rule]:
    reason = f"is set, but {manifest.label} has no tokens of sources in its targets; leave it"
    has_own = bool(manifest.architecture.source_vocabulary_size)
    yield options.replace_unknowns and has_own, "replace_unknowns", reason
    field, most = "target_prefix", decoding.max_decoding_length
    if options.target_prefix_tokens:
        field = "target_prefix_tokens"
        reason = "is set together with target_prefix; choose one of them"
        yield options.HasField("target_prefix"), field, reason
    length = len(decoding.prefix)
    reason = f"has {length} tokens, which leaves none to generate; max_decoding_length is {most}"
    yield length >= most, field, reason
    suppressed = decoding.suppressed_tokens
    count = len(options.suppress_tokens) + len(options.suppress_sequences)
    reason = f"and suppress_tokens have more than {MAX_SUPPRESSED} elements together"
    yield count > MAX_SUPPRESSED, "suppress_sequences", reason
    reason = "has a token that is also in end_tokens"
    yield bool(options.end_tokens and suppressed & ends), "suppress_tokens", reason
    reason = "has a token of the target prefix"
    yield not suppressed.isdisjoint(decoding.prefix), "suppress_tokens", reason
    yield not ends.isdisjoint(decoding.prefix), field, "has a token that ends a hypothesis"
    # If the first token may end the hypothesis, end tokens alone make sense: as labels.
    vocabulary = decoding.vocabulary
    is_labels = ends.issuperset(vocabulary) and decoding.min_decoding_length <= length
    is_wrong = vocabulary and not is_labels and (suppressed | ends).issuperset(vocabulary)
    reason = "leaves nothing to generate: all its tokens are suppressed or end a hypothesis; allow"
    yield bool(is_wrong), "vocabulary_allow", f"{reason} others"

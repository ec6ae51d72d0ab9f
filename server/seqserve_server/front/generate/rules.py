"""Rules between options: which exclude, need or limit each other."""

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.limits import MAX_SUPPRESSED, MAX_TOP_K
from seqserve_server.contract.options import DecodingOptions, Sampling, SegmentationMode
from seqserve_server.front.generate.features.terms import check_terms
from seqserve_server.front.generate.records import PREFIXES

Options = generation_pb2.GenerationOptions

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
    for name, reason in _ONE_MODEL.items():
        if getattr(options, name):
            over = f"and {between!r} lies between the languages of the request"
            raise _wrong(name, f"{reason}, {over}")


def check_conflicts(
    own: Options, options: Options, decoding: DecodingOptions, manifest: Manifest, max_rows: int
) -> None:
    """Checks options that are within their bounds against each other.

    The request sets ``own``; ``options`` are these over what its model recommends, ``decoding`` has
    the same, converted.
    """
    _check_lengths(decoding, manifest)
    _check_rows(options, decoding, max_rows)
    _check_combinations(own, options, decoding)
    _check_replacement(options, manifest)
    _check_prefix(options, decoding)
    ends = set(decoding.end_ids or (manifest.tokens.eos,))
    _check_tokens(options, decoding, ends)
    _check_vocabulary(decoding, ends)
    check_terms(options.terms, decoding.terms, decoding, ends)


def _wrong(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"options.{field}", reason)


def _check_lengths(decoding: DecodingOptions, manifest: Manifest) -> None:
    limit = manifest.limits.max_target_length
    longest, shortest = decoding.max_decoding_length, decoding.min_decoding_length
    if longest > limit:
        raise _wrong("max_decoding_length", f"is {longest}; {manifest.label} takes 1 to {limit}")
    if shortest > longest:
        reason = f"is {shortest}; it must be 0 to max_decoding_length, which is {longest}"
        raise _wrong("min_decoding_length", reason)


def _check_rows(options: Options, decoding: DecodingOptions, max_rows: int) -> None:
    beam_size, count = decoding.beam_size, decoding.num_hypotheses
    if beam_size > max_rows:
        raise _wrong("beam_size", f"is {beam_size}; this server keeps at most {max_rows}")
    if decoding.sampling and beam_size > 1:
        chosen = next(name for name in _SAMPLING if options.HasField(name))
        raise _wrong("beam_size", f"is {beam_size} with {chosen}; choose search or sampling")
    if decoding.return_alternatives:
        fit = min(MAX_TOP_K, max_rows // beam_size)
        if count > fit:
            raise _wrong(
                "num_hypotheses",
                f"is {count} alternatives with a beam_size of {beam_size} each: at most {fit} of"
                " them fit",
            )
    elif decoding.sampling:
        if count > max_rows:
            raise _wrong("num_hypotheses", f"is {count}; this server draws at most {max_rows}")
    elif count > beam_size:
        raise _wrong(
            "num_hypotheses",
            f"is {count}, more than beam_size, which is {beam_size}: raise that, sample with"
            " temperature, or set return_alternatives",
        )


def _check_combinations(own: Options, options: Options, decoding: DecodingOptions) -> None:
    # Any value of a sampling option turns sampling on; other options are off if they are 0.
    sent = {each.name for each, value in options.ListFields() if value or each.name in _SAMPLING}
    if options.segmentation == SegmentationMode.NONE.value:
        sent.discard("segmentation")
    # A rule that the model recommends is for searches that have the choice.
    if not own.early_stopping:
        sent.discard("early_stopping")
    for name, others in _EXCLUDES.items():
        for other in others:
            if name in sent and other in sent:
                raise _wrong(name, f"is set together with {other}; choose one of them")
    for name in _NEED_BEAM:
        if name in sent and decoding.beam_size == 1:
            raise _wrong(name, "needs a beam; set beam_size above 1")
    if "min_alternative_expansion_prob" in sent and not decoding.return_alternatives:
        raise _wrong("min_alternative_expansion_prob", "needs return_alternatives; set that too")
    if "prefix_bias_beta" in sent and not decoding.prefix:
        raise _wrong("prefix_bias_beta", "needs a prefix; set target_prefix")


def _check_replacement(options: Options, manifest: Manifest) -> None:
    if options.replace_unknowns and manifest.architecture.source_vocabulary_size:
        reason = f"is set, but {manifest.label} has no tokens of sources in its targets; leave it"
        raise _wrong("replace_unknowns", reason)


def _check_prefix(options: Options, decoding: DecodingOptions) -> None:
    field, length = _prefix_field(options), len(decoding.prefix)
    if options.target_prefix_tokens and options.HasField("target_prefix"):
        raise _wrong(field, "is set together with target_prefix; choose one of them")
    if length >= decoding.max_decoding_length:
        raise _wrong(
            field,
            f"has {length} tokens, which leaves none to generate; max_decoding_length is"
            f" {decoding.max_decoding_length}",
        )


def _prefix_field(options: Options) -> str:
    return "target_prefix_tokens" if options.target_prefix_tokens else "target_prefix"


def _check_tokens(options: Options, decoding: DecodingOptions, ends: set[int]) -> None:
    suppressed = decoding.suppressed_tokens
    if len(options.suppress_tokens) + len(options.suppress_sequences) > MAX_SUPPRESSED:
        reason = f"and suppress_tokens have more than {MAX_SUPPRESSED} elements together"
        raise _wrong("suppress_sequences", reason)
    if options.end_tokens and suppressed & ends:
        raise _wrong("suppress_tokens", "has a token that is also in end_tokens")
    if suppressed.intersection(decoding.prefix):
        raise _wrong("suppress_tokens", "has a token of the target prefix")
    if ends.intersection(decoding.prefix):
        raise _wrong(_prefix_field(options), "has a token that ends a hypothesis")


def _check_vocabulary(decoding: DecodingOptions, ends: set[int]) -> None:
    vocabulary, suppressed = decoding.vocabulary, decoding.suppressed_tokens
    # If the first token may end the hypothesis, end tokens alone make sense: as labels.
    is_labels = ends.issuperset(vocabulary) and decoding.min_decoding_length <= len(decoding.prefix)
    if vocabulary and not is_labels and (suppressed | ends).issuperset(vocabulary):
        raise _wrong(
            "vocabulary_allow",
            "leaves nothing to generate: all its tokens are suppressed or end a hypothesis; allow"
            " others",
        )

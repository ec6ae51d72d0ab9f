"""Compiles the options of a request for a model, once for all requests that send the same.

Options of the same name and meaning on both sides are copied by reflection, so only those that
need the model or another form are written out here.
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import fields

from google.protobuf import json_format

from seqserve.declarations import DECLARATIONS
from seqserve.language_codes import folded
from seqserve.v1 import generation_pb2
from seqserve.words import fault_of_term
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.pairs import Leg
from seqserve_server.contract.bounds import check_bounds
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions, Sampling, SegmentationMode, TokenIds
from seqserve_server.front.generate.languages import Affixes, affixes_of
from seqserve_server.front.generate.records import Asked, Features, Options, has_prefix
from seqserve_server.front.generate.rules import check_conflicts, check_pivot
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.text.glossary import Glossary
from seqserve_server.text.splitting import DEFAULT_LANGUAGE, Segmentation
from seqserve_server.text.tokenizer import Tokenizer

GenerationOptions = generation_pb2.GenerationOptions

_MAX_STOP_CHARACTERS = 256
# Longer options mostly hold texts of one request, which do not come again.
_MAX_KNOWN_BYTES = 128
_MAX_KNOWN = 256
_CONVERTED = {"terms", "return_attention"}
_COPIED = {field.name for field in fields(DecodingOptions)} & DECLARATIONS.keys() - _CONVERTED
_SAMPLING_DEFAULTS = {name: DECLARATIONS[name].default for name in Sampling._fields}


def default_options(manifest: Manifest) -> DecodingOptions:
    """Returns the options of a request that sets none."""
    return DecodingOptions(max_decoding_length=manifest.limits.max_target_length)


def compile_options(sent: GenerationOptions, model: LoadedModel, features: Features) -> Options:
    """Checks options and converts them for a model, which keeps them, as callers repeat theirs."""
    key, known = sent.SerializeToString(), model.known_options
    options: Options | None = known.get(key)
    glossary = features.glossaries.of_request(sent, model.manifest.template)
    if options is None or options.glossary is not glossary:
        options = _compiled(sent, model, features, glossary)
        # A random seed must be another one each time.
        if options.decoding.sampling is None and len(key) <= _MAX_KNOWN_BYTES:
            if len(known) >= _MAX_KNOWN:
                known.clear()
            known[key] = options
    return options


def _compiled(
    sent: GenerationOptions, model: LoadedModel, features: Features, glossary: Glossary | None
) -> Options:
    manifest, tokenizer, options = model.manifest, model.tokenizer, sent
    if manifest.generation:
        options = merge_model_defaults(sent, manifest)
    if not (options.ByteSize() or manifest.template):
        return Options(decoding=default_options(manifest))
    check_bounds(options)
    affixes = affixes_of(options.source_language, options.target_language, manifest, tokenizer)
    decoding = _decoding(options, manifest, tokenizer, affixes)
    check_conflicts(sent, options, decoding, manifest, model.engine.capacity.max_rows)
    asked = Asked(options, decoding, affixes, model, glossary)
    return Options(
        decoding=decoding,
        affixes=affixes,
        segmentation=_segmentation(options, sent),
        features=tuple(feature for make in features.makers if (feature := make(asked))),
        check=features.make_check(asked),
        returns_attention=options.return_attention,
        is_repeatable=decoding.sampling is None or options.HasField("seed"),
        glossary=glossary,
    )


def _segmentation(options: GenerationOptions, sent: GenerationOptions) -> Segmentation | None:
    mode = SegmentationMode(options.segmentation or SegmentationMode.NONE)
    if mode is SegmentationMode.NONE:
        return None
    language = sent.segmentation_language
    if not language and sent.source_language:
        language = folded(sent.source_language).name
    language = language or options.segmentation_language or DEFAULT_LANGUAGE
    return Segmentation(mode, language, is_default=not sent.segmentation)


def _decoding(
    options: GenerationOptions, manifest: Manifest, tokenizer: Tokenizer, affixes: Affixes
) -> DecodingOptions:
    sent = {field.name: value for field, value in options.ListFields()}
    copied = {name: sent[name] for name in sent if name in _COPIED}
    sampling = {name: sent[name] for name in sent if name in Sampling._fields}
    end_ids = _ids(options, "end_tokens", tokenizer)
    vocabulary = set(_ids(options, "vocabulary_allow", tokenizer))
    if vocabulary:
        vocabulary.update(end_ids or (manifest.tokens.eos,))
    own_prefix = _ids(options, "target_prefix_tokens", tokenizer)
    if options.target_prefix and not own_prefix:
        own_prefix = tuple(tokenizer.encode_target(options.target_prefix)[:-1])
    prefix = affixes.target + own_prefix
    copied.setdefault("max_decoding_length", manifest.limits.max_target_length)
    return DecodingOptions(
        **copied,
        sampling=Sampling(**{**_SAMPLING_DEFAULTS, "seed": secrets.randbits(64), **sampling})
        if sampling
        else None,
        suppressed=_suppressed(options, manifest, tokenizer),
        end_ids=end_ids,
        stops=_stops(options, tokenizer.decode(prefix) if prefix else ""),
        prefix=prefix,
        terms=tokenized_terms(options.terms, tokenizer),
        vocabulary=tuple(sorted(vocabulary)),
        return_attention=options.return_attention
        or options.return_alignment
        or options.replace_unknowns,
        time_limit_s=options.time_limit_ms / 1e3 if options.time_limit_ms else math.inf,
    )


def _suppressed(
    options: GenerationOptions, manifest: Manifest, tokenizer: Tokenizer
) -> tuple[TokenIds, ...]:
    field = "suppress_sequences"
    sequences: list[TokenIds] = [(id_,) for id_ in _ids(options, "suppress_tokens", tokenizer)]
    for sequence in options.suppress_sequences:
        if not sequence.tokens:
            raise InvalidRequest(f"options.{field}", "has an empty sequence")
        sequences.append(_token_ids(sequence.tokens, field, tokenizer))
    if options.disable_unk:
        sequences.append((manifest.tokens.unk,))
    return tuple(sequences)


def _stops(options: GenerationOptions, prefix: str) -> tuple[str, ...]:
    for stop in options.stop_sequences:
        if not 1 <= len(stop) <= _MAX_STOP_CHARACTERS:
            reason = f"one has {len(stop)} characters; each has 1 to {_MAX_STOP_CHARACTERS}"
            raise InvalidRequest("options.stop_sequences", reason)
        if stop in prefix:
            raise InvalidRequest("options.stop_sequences", "one of them is in the target prefix")
    return tuple(options.stop_sequences)


def tokenized_terms(
    terms: Sequence[generation_pb2.Term], tokenizer: Tokenizer
) -> tuple[TokenIds, ...]:
    """Tokenizes the target of each term; checks the texts, and that no source comes twice."""
    field, sources, targets = "options.terms", set(), []
    for term in terms:
        if fault := fault_of_term(term.source, term.target):
            raise InvalidRequest(field, f"have one whose {fault}")
        if term.source in sources:
            reason = f"have the source {term.source!r:.80} twice; a source has one target"
            raise InvalidRequest(field, reason)
        sources.add(term.source)
        targets.append(tuple(tokenizer.encode_target(term.target)[:-1]))
    for term, target in zip(terms, targets, strict=True):
        if not target:
            reason = f"have the target {term.target!r:.80}, no character of which the model writes"
            raise InvalidRequest(field, reason)
    return tuple(targets)


def _ids(options: GenerationOptions, field: str, tokenizer: Tokenizer) -> TokenIds:
    return _token_ids(getattr(options, field), field, tokenizer)


def _token_ids(tokens: Sequence[str], field: str, tokenizer: Tokenizer) -> TokenIds:
    token_ids = []
    for token in tokens:
        token_id = tokenizer.target.id_of(token)
        if token_id is None:
            reason = f"{token!r:.80} is not a token of the model; see the tokens of an answer"
            raise InvalidRequest(f"options.{field}", reason)
        token_ids.append(token_id)
    return tuple(token_ids)


# A request that samples, or asks for alternatives, has chosen another way to search.
_BEAM_SEARCH = [each.name for each in DECLARATIONS.values() if each.group == "beam search"]
_OTHER_WAYS = (*Sampling._fields, "return_alternatives")


def merge_model_defaults(options: GenerationOptions, manifest: Manifest) -> GenerationOptions:
    """Returns the options of a request over those that its model recommends."""
    defaults = json_format.ParseDict(manifest.generation, GenerationOptions())
    if any(options.HasField(name) for name in _OTHER_WAYS):
        for name in _BEAM_SEARCH:
            defaults.ClearField(name)
    # A prefix belongs to one text, so with one the default is not to divide a source.
    if has_prefix(options):
        defaults.ClearField("segmentation")
    defaults.MergeFrom(options)
    return defaults


_OF_BOTH = {
    *("beam_size", "patience", "early_stopping", "length_penalty", "coverage_penalty"),
    *("repetition_penalty", "no_repeat_ngram_size", "disable_unk", "replace_unknowns"),
    *("segmentation", "shortlist", "time_limit_ms", "return_scores", "return_alignment"),
    *("keep", "keep_placeholders", "lower_capitals", "verify_numbers"),
}
_OF_FIRST = {"segmentation_language"}


def divide_options(
    options: GenerationOptions, first: Leg, second: Leg
) -> tuple[GenerationOptions, GenerationOptions]:
    """Divides the options of a request between the two models of a pivot.

    Both search alike. Options for the text and the answer are for the second model, whose text the
    caller gets.
    """
    check_pivot(options, first.target)
    of_first = _only(options, _OF_BOTH | _OF_FIRST, first)
    # A prefix belongs to a single text; without one, a model may divide a source by default.
    if has_prefix(options) and not options.segmentation:
        of_first.segmentation = SegmentationMode.NONE.value
    return of_first, _only(options, DECLARATIONS.keys() - _OF_FIRST, second)


def _only(options: GenerationOptions, names: set[str], leg: Leg) -> GenerationOptions:
    own = GenerationOptions()
    own.CopyFrom(options)
    for name in DECLARATIONS.keys() - names:
        own.ClearField(name)
    own.source_language, own.target_language = leg.source, leg.target
    return own

"""Keywords of the decoding options, typed and described.

Generated from proto/seqserve/v1/generation.proto by `make proto`; do not edit.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class GenerationOptions(TypedDict, total=False):
    """The fields of the message ``GenerationOptions``; None leaves one to the server."""

    source_language: str | None
    """Code of the language of the source, or auto to let the server detect it; `seqserve models
    --pairs` lists the pairs. Without a model, the languages choose it."""

    target_language: str | None
    """Code of the language to generate."""

    segmentation: Literal["none", "lines", "sentences"] | None
    """How to divide the source into segments, which are answered separately: not at all, at line
    breaks, or after sentences too. The default comes from the model's manifest, else from the
    server (--segmentation), else it is none. One of none, lines, sentences."""

    segmentation_language: str | None
    """Code of the language whose rules divide sentences, such as de; by default the language of the
    source, or else English."""

    time_limit_ms: int | None
    """Milliseconds from the arrival of the call after which it returns the tokens decoded so far,
    with stop reason TIME_LIMIT; no limit by default. A deadline, in contrast, ends the call without
    an answer. At least 1."""

    max_decoding_length: int | None
    """Maximum number of target tokens, with the prefix and without the end token; by default the
    limit of the model. At least 1."""

    min_decoding_length: int | None
    """Minimum number of target tokens before the end token is allowed. At least 0; 0 by default."""

    force_end_token: bool | None
    """End hypotheses of the maximum length with the end token, even if it is improbable."""

    beam_size: int | None
    """Hypotheses kept at every step. More find more probable texts and take longer; 1 is greedy
    search. At least 1; 1 by default."""

    patience: float | None
    """Search ends when beam_size times this many hypotheses are finished. Above 0 and at most 16; 1
    by default."""

    early_stopping: Literal["true", "false", "never"] | bool | None
    """When a beam search ends: as soon as beam_size times patience hypotheses are finished (true),
    or when the best growing hypothesis would no longer rank among them, at its present length
    (false) or at its most favourable length (never). Needs a beam. One of true, false, never."""

    length_penalty: float | None
    """Rank hypotheses by their score divided by their length to this power: values up to 0 favour
    short texts, values above 1 long ones. At least -4 and at most 16; 1 by default."""

    coverage_penalty: float | None
    """Rank hypotheses lower if they leave source tokens unattended; larger values do so more
    strongly. Needs a beam. At least 0 and at most 16; 0 by default."""

    num_hypotheses: int | None
    """Number of hypotheses to return, best first: at most beam_size, or the number of samples or
    alternatives. At least 1; 1 by default."""

    return_alternatives: bool | None
    """Return hypotheses that differ in the first token after the prefix, each from a separate
    search."""

    min_alternative_expansion_prob: float | None
    """Leave out alternatives whose first token is less probable than this. At least 0 and at most
    1; 0 by default."""

    temperature: float | None
    """Divide the logits by this: below 1 samples are more alike, above 1 they differ more. Above 0
    and at most 1000; 1 by default."""

    top_k: int | None
    """Sample from this many of the most probable tokens; 0 for all. At least 0; 0 by default."""

    top_p: float | None
    """Sample from the most probable tokens that together have at least this probability. Above 0
    and at most 1; 1 by default."""

    min_p: float | None
    """Sample from tokens that have at least this share of the highest probability. At least 0 and
    at most 1; 0 by default."""

    seed: int | None
    """Equal seeds give equal samples, whatever else the server does; random by default. At least
    0."""

    repetition_penalty: float | None
    """Make tokens that the hypothesis already contains less probable (above 1): divides their
    positive logits and multiplies the negative ones. At least 0.015625 and at most 64; 1 by
    default."""

    no_repeat_ngram_size: int | None
    """Generate no sequence of this many tokens twice; 0 to allow it. At least 0; 0 by default."""

    disable_unk: bool | None
    """Never generate the unknown token."""

    replace_unknowns: bool | None
    """Replace each unknown token by the source token that it attends to most."""

    suppress_tokens: Sequence[str] | None
    """Tokens that are never generated. At most 512."""

    suppress_sequences: Sequence[Sequence[str]] | None
    """Sequences of tokens that are never generated. At most 512."""

    end_tokens: Sequence[str] | None
    """Tokens that end a hypothesis, in place of the end token of the model. At most 64."""

    stop_sequences: Sequence[str] | None
    """Texts that end a hypothesis; it is cut before the first one. At most 16."""

    target_prefix: str | None
    """Text that every hypothesis begins with."""

    target_prefix_tokens: Sequence[str] | None
    """Tokens that every hypothesis begins with, in place of target_prefix."""

    prefix_bias_beta: float | None
    """Prefer the prefix instead of forcing it: while a hypothesis follows the prefix, the next
    token of the prefix gets this share of the probability. Needs a beam. At least 0 and below 1; 0
    by default."""

    terms: Mapping[str, str] | None
    """Words or phrases with their translations. If the source contains the word or phrase, every
    hypothesis should contain the translation. At most 16."""

    keep_placeholders: bool | None
    """Return placeholders, tags, addresses, versions, file names, hashtags, emoji and foreign words
    of the source exactly, each as often as the source has it."""

    keep: Sequence[str] | None
    """Texts to return exactly, each as often as the source has it. At most 64."""

    lower_capitals: bool | None
    """Read a source or segment in capitals or Title Case with the usual case of its words, and a
    word after a bracket as any other; write the answer to capitals in capitals."""

    verify_numbers: bool | None
    """If numbers, dates, times or codes in the source and its answer differ, decode again with the
    missing ones as terms, and take the answer that differs less."""

    formality: Literal["more", "less", "prefer_more", "prefer_less"] | None
    """How an answer addresses its reader, such as German Sie (more) or du (less). If the forms of a
    language are not known, prefer_more and prefer_less change nothing. One of more, less,
    prefer_more, prefer_less."""

    glossary: str | None
    """Name of a glossary of the server, whose terms apply in addition to those of the request;
    `seqserve models --glossaries` lists them."""

    target_draft: str | None
    """A guess of the answer. Its correct parts come at once instead of token by token."""

    draft_source: bool | None
    """Use the source, or each segment, as the draft: for models that correct or normalise. Excludes
    target_draft."""

    vocabulary_allow: Sequence[str] | None
    """The only tokens that may be generated, besides those that end a hypothesis. If empty, all
    may. At most 4096."""

    shortlist: bool | None
    """Generate only frequent tokens and translations of the source tokens, if the model has a
    shortlist of them. True by default."""

    return_scores: bool | None
    """Return the score of each hypothesis; without scores a step is a little cheaper. True by
    default."""

    return_token_scores: bool | None
    """Return the log-probability of each token."""

    return_top_tokens: int | None
    """Return this many of the most probable tokens of each step, with their log-probabilities. At
    least 0 and at most 64; 0 by default."""

    return_attention: bool | None
    """Return the attention of each target token to the source tokens."""

    return_alignment: bool | None
    """Return, for each target token, the place in the source that it attends to most."""

"""How to decode: the keywords that every verb of generation takes beside the source.

The names are those of the message ``GenerationOptions``; :mod:`seqserve.requests` goes by them, so
that an option is declared here and nowhere else in the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypedDict


class Priority(Enum):
    """Who goes first while requests have to wait."""

    NORMAL = "normal"
    """For callers who wait for the answer."""
    LOW = "low"
    """For work that takes what others leave."""


class GenerateOptions(TypedDict, total=False):
    """What may be said beside the source; what is left out, or None, is the server's to decide.

    Decoding is greedy unless ``beam_size`` or an option of sampling says otherwise; the server
    refuses both at once.
    """

    model: str | None
    """Name of the model; the server's default where not said."""
    version: int | None
    """Version of the model; the highest sound one where not said."""
    priority: Priority | None
    """Who goes first while requests have to wait; normal where not said."""

    time_limit_ms: int | None
    """Milliseconds after which the answer is what there is by then; no limit where not said. The
    timeout of a call, in contrast, ends it without an answer."""
    max_decoding_length: int | None
    """Most target tokens, a prefix counted, the end token not."""
    min_decoding_length: int | None
    """Fewest target tokens before the end token is allowed."""

    beam_size: int | None
    """Hypotheses kept at every step; 1 is greedy search."""
    patience: float | None
    """Search goes on until ``beam_size`` times so many are finished; 1 where not said."""
    length_penalty: float | None
    """Scores are ranked divided by the length to this power; 1 where not said."""
    coverage_penalty: float | None
    """Hypotheses of a beam that leave words of the source unattended rank lower, the more so the
    larger this is; 0 where not said."""
    num_hypotheses: int | None
    """Hypotheses in the result, at most ``beam_size`` of them, or so many samples or alternatives;
    1 where not said."""
    return_alternatives: bool | None
    """Whether the hypotheses are to differ in the first token after the prefix, each searched by
    itself."""
    min_alternative_expansion_prob: float | None
    """How probable the first token of an alternative must be; 0 where not said."""

    temperature: float | None
    """Samples from probabilities whose logarithms are divided by this; 1 where not said."""
    top_k: int | None
    """Samples among so many most probable words; 0 for all."""
    top_p: float | None
    """Samples among the most probable words that together have at least this probability."""
    min_p: float | None
    """Samples among words at least so many times as probable as the most probable."""
    seed: int | None
    """Equal seeds give equal samples; a random one where not said."""

    repetition_penalty: float | None
    """Makes words that the hypothesis holds already less probable, where more than 1."""
    no_repeat_ngram_size: int | None
    """No sequence of so many tokens is generated twice; 0 to allow it."""
    disable_unk: bool | None
    """Whether the token for what is unknown is never generated."""
    suppress_tokens: Sequence[str] | None
    """Tokens, as the tokenizer writes them, that are never generated."""
    suppress_sequences: Sequence[Sequence[str]] | None
    """Sequences of tokens that are never generated."""
    end_tokens: Sequence[str] | None
    """Tokens that end a hypothesis, in place of the model's end token."""
    stop_sequences: Sequence[str] | None
    """Texts that end a hypothesis, which is cut before the first of them."""
    target_prefix: str | None
    """What every hypothesis begins with."""
    target_prefix_tokens: Sequence[str] | None
    """The same as tokens; at most one of the two."""
    prefix_bias_beta: float | None
    """Makes a beam prefer the prefix in place of forcing it: this share of the probability goes to
    its next token, as long as a hypothesis follows it."""
    terms: Mapping[str, str] | None
    """How words or phrases of the source are to be translated, from source to target. Needs a beam;
    those that are in the source count, others do no harm."""
    vocabulary_allow: Sequence[str] | None
    """Tokens, as the tokenizer writes them, that alone are generated, beside those that end a
    hypothesis."""

    return_scores: bool | None
    """Whether scores are wanted, which cost some time; True where not said."""
    return_token_scores: bool | None
    """Whether the log-probability of each token is wanted too."""
    return_top_tokens: int | None
    """How many most probable tokens of each step are wanted."""
    return_attention: bool | None
    """Whether it is wanted which source token each target token attended to."""
    replace_unknowns: bool | None
    """Whether a token for what is unknown is replaced by the source token that it attended to."""

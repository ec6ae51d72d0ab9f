"""The flags that say how to decode, one for each of :class:`~seqserve.GenerateOptions`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from seqserve.decoding import GenerateOptions, Priority
from seqserve.options import option

OUTPUT = "output"
"""Heading of the flags that say what is printed."""

_LENGTH = "length"
_SEARCH = "beam search"
_ALTERNATIVES = "alternatives, so many as --num-hypotheses says"
_SAMPLING = "sampling, in place of search; any of these switches it on"
_CONSTRAINTS = "constraints; tokens are written as --json shows them, with ▁ for a space"


# No slots: Python cannot join two bases that both have them.
@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How to decode; what is not given is left to the server."""

    priority: Priority | None = option(
        None, help="Who goes first while requests have to wait; normal if not given."
    )

    time_limit_ms: int | None = option(
        None,
        help="Milliseconds after which the text so far is the answer. --timeout-s, in contrast,"
        " ends a call without one.",
        minimum=1,
        maximum=2**31 - 1,
        group=_LENGTH,
    )
    max_decoding_length: int | None = option(
        None, help="Most target tokens, a prefix counted.", minimum=1, group=_LENGTH
    )
    min_decoding_length: int | None = option(
        None, help="Fewest target tokens.", minimum=0, group=_LENGTH
    )

    beam_size: int | None = option(
        None,
        help="Hypotheses kept at every step: more find likelier texts and take longer. 1 is greedy"
        " search.",
        minimum=1,
        group=_SEARCH,
    )
    patience: float | None = option(
        None,
        help="Search goes on until beam size times so many are finished; 1 if not given.",
        minimum=0,
        group=_SEARCH,
    )
    length_penalty: float | None = option(
        None,
        help="Hypotheses are ranked by score divided by length to this power: 0 favours short"
        " texts, more than 1 long ones; 1 if not given.",
        minimum=0,
        group=_SEARCH,
    )
    coverage_penalty: float | None = option(
        None,
        help="Rank hypotheses that leave words of the source unattended lower, the more so the"
        " larger this is; 0 if not given.",
        minimum=0,
        group=_SEARCH,
    )
    num_hypotheses: int | None = option(
        None,
        help="Hypotheses to print, best first: at most the beam size, or so many samples or"
        " alternatives.",
        minimum=1,
        group=_SEARCH,
    )

    return_alternatives: bool | None = option(
        None,
        help="Print hypotheses that differ in their first token, after the prefix where there is"
        " one: each goes on from it by a search of its own.",
        group=_ALTERNATIVES,
    )
    min_alternative_expansion_prob: float | None = option(
        None,
        help="Leave out those whose first token is less probable than this.",
        minimum=0,
        maximum=1,
        group=_ALTERNATIVES,
    )

    temperature: float | None = option(
        None,
        help="Below 1 samples are more alike, above 1 they differ more.",
        minimum=0,
        group=_SAMPLING,
    )
    top_k: int | None = option(
        None, help="Draw among so many most probable words; 0 for all.", minimum=0, group=_SAMPLING
    )
    top_p: float | None = option(
        None,
        help="Draw among the most probable words that together have this probability.",
        minimum=0,
        maximum=1,
        group=_SAMPLING,
    )
    min_p: float | None = option(
        None,
        help="Draw among words at least so many times as probable as the most probable.",
        minimum=0,
        maximum=1,
        group=_SAMPLING,
    )
    seed: int | None = option(
        None, help="Equal seeds give equal samples.", minimum=0, group=_SAMPLING
    )

    repetition_penalty: float | None = option(
        None,
        help="More than 1 makes words that are there already less probable.",
        minimum=0,
        group=_CONSTRAINTS,
    )
    no_repeat_ngram_size: int | None = option(
        None,
        help="Generate no sequence of so many tokens twice; 0 to allow it.",
        minimum=0,
        group=_CONSTRAINTS,
    )
    disable_unk: bool | None = option(
        None, help="Never generate the token for what is unknown.", group=_CONSTRAINTS
    )
    replace_unknowns: bool | None = option(
        None,
        help="Replace each token for what is unknown by the source token it attended to most.",
        group=_CONSTRAINTS,
    )
    suppress_tokens: list[str] | None = option(
        None, help="Token that is never generated.", group=_CONSTRAINTS
    )
    suppress_sequences: list[list[str]] | None = option(
        None,
        help="Tokens, spaces between, that are never generated in a row.",
        group=_CONSTRAINTS,
    )
    end_tokens: list[str] | None = option(
        None, help="Token that ends a text, in place of the model's end token.", group=_CONSTRAINTS
    )
    stop_sequences: list[str] | None = option(
        None, help="Text that ends the answer, which is cut before it.", group=_CONSTRAINTS
    )
    target_prefix: str | None = option(
        None, help="What every hypothesis begins with.", group=_CONSTRAINTS
    )
    target_prefix_tokens: list[str] | None = option(
        None, help="The same, token by token.", group=_CONSTRAINTS
    )
    prefix_bias_beta: float | None = option(
        None,
        help="Prefer the prefix in place of forcing it: this share of the probability, below 1,"
        " goes to its next token. Needs a beam.",
        minimum=0,
        maximum=1,
        group=_CONSTRAINTS,
    )
    terms: dict[str, str] | None = option(
        None,
        help="Word or phrase and its translation, which every hypothesis of a source that holds it"
        " is to contain. Needs a beam.",
        metavar="SOURCE=TARGET",
        group=_CONSTRAINTS,
    )
    vocabulary_allow: list[str] | None = option(
        None,
        help="Token that may be generated; where any is given, no other is.",
        group=_CONSTRAINTS,
    )

    return_scores: bool | None = option(
        None,
        help="Print before each text the score that it is ranked by, and a tab between. Switched"
        " off, the server need not compute scores.",
        group=OUTPUT,
    )
    return_token_scores: bool | None = option(
        None, help="With --json: the log-probability of each token.", group=OUTPUT
    )
    return_top_tokens: int | None = option(
        None,
        help="With --json: so many most probable tokens of each step.",
        minimum=0,
        group=OUTPUT,
    )
    return_attention: bool | None = option(
        None,
        help="With --json: a weight for each target token and each source token.",
        group=OUTPUT,
    )

    def decoding(self) -> GenerateOptions:
        """Gives what goes with each source."""
        said = GenerateOptions()
        for field in fields(DecodingOptions):
            said[field.name] = getattr(self, field.name)  # type: ignore[literal-required]
        return said

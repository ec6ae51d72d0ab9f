"""Sources and options of random requests to the tiny model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.shortlist import Shortlist

EOS, VOCABULARY_SIZE = 2, 384
MAX_SOURCE, MAX_TARGET, MOST_ROWS = 24, 20, 4

# The tiny model chooses these most: options forbid and force them.
LIKELY = [19, 172, 275, 101, 226, 375, 152, 15, 346, 192, 235, 214]

SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def text_of(tokens: Sequence[int]) -> str:
    """Returns a text of few letters, so that stop sequences turn up often, also across tokens."""
    return "".join("abcdefg"[token % 7] * (1 + token % 3) for token in tokens)


likely = st.sampled_from(LIKELY)
sources = st.lists(st.integers(4, VOCABULARY_SIZE - 1), max_size=MAX_SOURCE - 1).map(
    lambda tokens: (*tokens, EOS)
)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 50]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    seed=st.integers(0, 2**64 - 1),
)

vocabularies = st.sampled_from([{*LIKELY, *range(EOS, VOCABULARY_SIZE, gap)} for gap in (2, 40)])
RULES = st.sampled_from(["true", "false", "never"])
few_tokens = st.sets(likely, min_size=1, max_size=3)


SHORTLIST = Shortlist.of(
    [EOS, *LIKELY[:3]],
    {token: [token, *LIKELY[token % 9 :][:3]] for token in range(4, VOCABULARY_SIZE)},
)


def mostly(value: object, *strategies: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Draws the default in two cases of three."""
    return st.just(value) | st.just(value) | st.one_of(*strategies)


@st.composite
def beams(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(2, MOST_ROWS))
    return {
        "beam_size": size,
        "num_hypotheses": draw(st.integers(1, size)),
        "patience": draw(mostly(1.0, st.sampled_from([0.7, 2.0]))),
        "early_stopping": draw(st.just("") | RULES),
        "coverage_penalty": draw(st.sampled_from([0.2, 1.0, 0.0, 0.0])),
    }


@st.composite
def option_sets(draw: st.DrawFn) -> DecodingOptions:
    kind = draw(st.sampled_from(["draft", "alternatives", "beam", "samples", "greedy"]))
    longest = draw(st.integers(1, MAX_TARGET))
    drafts = st.lists(likely, min_size=1, max_size=3)
    prefix = tuple(draw(drafts if kind == "draft" else mostly([], drafts)))[: longest - 1]
    ends = draw(mostly([], st.lists(likely, min_size=1, max_size=2, unique=True)))
    stops = draw(mostly([], st.lists(st.text("cdef", min_size=1, max_size=4), max_size=2)))
    vocabulary = set() if kind == "draft" else draw(mostly(set(), vocabularies, few_tokens))
    options = DecodingOptions(
        max_decoding_length=longest,
        min_decoding_length=draw(mostly(0, st.integers(0, longest))),
        force_end_token=kind != "alternatives" and draw(mostly(False, st.just(True))),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0, 1.5, -0.5])),
        repetition_penalty=draw(mostly(1.0, st.sampled_from([0.7, 1.1, 3.0]))),
        no_repeat_ngram_size=draw(mostly(0, st.integers(1, 3))),
        suppressed=tuple(
            draw(mostly([], st.lists(st.lists(likely, min_size=1, max_size=3).map(tuple))))
        ),
        end_ids=tuple(token for token in ends if token not in prefix),
        stops=tuple(stop for stop in stops if stop not in text_of(prefix)),
        prefix=prefix,
        vocabulary=tuple(sorted({*vocabulary, EOS, *ends, *prefix} if vocabulary else ())),
        return_scores=draw(mostly(True, st.booleans())),
        return_token_scores=draw(st.booleans()),
        return_top_tokens=draw(mostly(0, st.integers(1, 4))),
        shortlist=draw(mostly(True, st.booleans())),
    )
    if kind in ("beam", "draft"):
        beta = draw(st.sampled_from([0.3, 0.9])) if kind == "draft" and prefix else 0.0
        return replace(options, prefix_bias_beta=beta, **draw(beams()))
    if kind == "samples":
        count = draw(st.integers(1, 3))
        return replace(options, sampling=draw(samplings), num_hypotheses=count)
    if kind == "alternatives":
        size = draw(st.integers(1, 2))
        return replace(
            options,
            return_alternatives=True,
            beam_size=size,
            early_stopping=draw(mostly("", RULES)),
            num_hypotheses=draw(st.integers(1, MOST_ROWS // size)),
            min_alternative_expansion_prob=draw(mostly(0.0, st.sampled_from([0.01, 0.1]))),
        )
    return options


@st.composite
def running_out(draw: st.DrawFn) -> DecodingOptions:
    """Draws so few tokens, each allowed so seldom, that soon none is left."""
    options = draw(option_sets())
    tokens = {EOS, *options.end_ids, *draw(few_tokens)}
    return replace(
        options,
        vocabulary=tuple(sorted(tokens)),
        no_repeat_ngram_size=draw(st.integers(1, 2)),
        min_decoding_length=draw(st.integers(0, options.max_decoding_length)),
        prefix_bias_beta=0.0,
    )


@st.composite
def with_terms(draw: st.DrawFn) -> DecodingOptions:
    """Draws what the reference does not know too: terms of a beam."""
    options = draw(option_sets())
    is_apart = options.prefix_bias_beta or options.return_alternatives or options.vocabulary
    if options.beam_size == 1 or is_apart:
        return options
    if options.suppressed or options.end_ids or options.stops:
        return options
    terms = draw(mostly([], st.lists(st.lists(likely, min_size=1, max_size=2), max_size=2)))
    return replace(options, terms=tuple(map(tuple, terms)))


@st.composite
def plain(draw: st.DrawFn) -> DecodingOptions:
    """Draws a greedy request, which needs a single row."""
    longest = draw(st.integers(1, MAX_TARGET))
    return DecodingOptions(
        max_decoding_length=longest,
        min_decoding_length=min(draw(st.sampled_from([0, 0, 1, 5, MAX_TARGET])), longest),
        return_scores=draw(st.booleans()),
        return_attention=draw(st.booleans()),
    )

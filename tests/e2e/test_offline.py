"""What runs in the process of the caller answers as a server does, to the last character."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.process import MODELS

from seqserve import Client, Result
from seqserve.results import Timings
from seqserve_server import Offline

TEXTS = [
    "The coffee tastes good.",
    "If I had more time, I would learn to play the piano.",
    "Hello {name}, the file a_b.txt is at https://a.example/b?c=1.",
    "It is late. We saw a good film!\n\n  Tom reads a book.  ",
    "  He said:\n- Yes.\n- No, %s of {count} are left.",
    "12 + 30 = 42",
]


@pytest.fixture(scope="module")
def offline() -> Iterator[Offline]:
    with Offline("en-de", repository=MODELS) as offline:
        yield offline


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 4, "num_hypotheses": 4, "length_penalty": 0.6, "segmentation": "none"},
        {"beam_size": 3, "return_scores": True},
        {"temperature": 0.9, "top_p": 0.95, "seed": 11},
        {"keep_placeholders": False, "segmentation": "lines"},
        {"terms": {"book": "Wälzer"}, "keep": ["film"]},
        {"target_prefix": "Der", "return_alignment": True},
        {"max_decoding_length": 6, "return_token_scores": True, "return_top_tokens": 2},
    ],
    ids=lambda options: ", ".join(options) or "plain",
)
def test_results_are_those_of_the_server(
    translator: Client, offline: Offline, options: dict[str, Any]
) -> None:
    served = translator.generate_batch(TEXTS, **options)
    for result, ours in zip(served, offline.generate_iter(TEXTS, **options), strict=True):
        assert repr(_timeless(ours)) == repr(_timeless(result))


def _timeless(outcome: Any) -> Any:
    if not isinstance(outcome, Result):
        return type(outcome), outcome.code, outcome.details, outcome.field
    none = dict.fromkeys(Timings.__dataclass_fields__, 0.0)
    return replace(outcome, timings=Timings(**none))

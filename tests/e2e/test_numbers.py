"""Numbers that an answer lacks: over gRPC, over HTTP, in a stream and in a metric."""

import pytest
from tests.support.process import ServerProcess

from seqserve import Client, TextWarningKind

# It is cut off before its number.
SOURCE = "We watched a film in 2019."
CUT = {"max_decoding_length": 2, "segmentation": "none"}


def test_an_answer_that_lacks_a_number_is_warned_of(
    translator: Client, shipped: ServerProcess
) -> None:
    whole, cut = translator.generate(SOURCE), translator.generate(SOURCE, **CUT)
    assert whole.warnings == () and "2019" in whole.text
    [warning] = cut.warnings
    assert warning.kind is TextWarningKind.NUMBERS_DIFFER
    assert SOURCE[warning.source_begin : warning.source_end] == warning.source_text == "2019"
    *_, last = translator.stream(SOURCE, **CUT)
    assert last.result and last.result.warnings == cut.warnings
    assert shipped.value("numbers_differ_total", model="en-de") >= 2


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_second_try_never_lacks_more(translator: Client, beam_size: int) -> None:
    sources = [
        "Your order 85642 was shipped on 20 July 2019.",
        "The coach leaves at 9:15 a.m. and arrives at 6 p.m.",
        "Of 1197 members, 59 have paid $1,250.50.",
        "We like this town.",
    ]
    first = translator.generate_batch(sources, beam_size=beam_size)
    second = translator.generate_batch(sources, beam_size=beam_size, verify_numbers=True)
    for once, twice in zip(first, second, strict=True):
        assert len(twice.warnings) <= len(once.warnings)
        if not once.warnings:
            assert twice.text == once.text

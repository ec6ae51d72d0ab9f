from __future__ import annotations

import math

from seqserve.output import json_line
from seqserve.results import StopReason


def test_a_line_is_json_that_every_parser_reads() -> None:
    facts = {
        "text": "Grüße",
        "reason": StopReason.EOS,
        "scores": (-0.5, math.nan, [-math.inf]),
        "inner": {"is": True, "none": None, "count": 3},
    }
    assert json_line(facts) == (
        '{"text": "Grüße", "reason": "eos", "scores": [-0.5, null, [null]], '
        '"inner": {"is": true, "none": null, "count": 3}}'
    )

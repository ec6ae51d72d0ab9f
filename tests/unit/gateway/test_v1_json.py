import json
import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.client.answers import answer

from seqserve.v1 import generation_pb2
from seqserve_gateway.failure import Failure
from seqserve_gateway.v1 import message_of, text_of


def read(body: str | bytes) -> generation_pb2.GenerateRequest:
    data = body.encode() if isinstance(body, str) else body
    return message_of(partial(json.loads, data), generation_pb2.GenerateRequest())


def test_names_of_protos_and_of_json_are_read_and_names_of_protos_written() -> None:
    for name in ("beam_size", "beamSize"):
        assert read(f'{{"source": "a", "options": {{"{name}": 4}}}}').options.beam_size == 4
    facts = json.loads(text_of(answer("grün", version=2)))
    assert facts["hypotheses"][0]["token_ids"] == [10]
    assert facts["hypotheses"][0]["stop_reason"] == "STOP_REASON_EOS"
    assert "grün".upper() in text_of(answer("grün"))
    # What is no number is a text.
    message = generation_pb2.Hypothesis(token_scores=[math.nan, -math.inf])
    assert json.loads(text_of(message)) == {"token_scores": ["NaN", "-Infinity"]}


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ("", "", "not JSON"),
        ("{'source': 'a'}", "", "not JSON: Expecting property name"),
        ("{", "", "not JSON"),
        (b'{"source": "\xff"}', "", "not JSON"),
        ('{"source": NaN}', "", "not JSON"),
        ("[1]", "", "not a JSON object"),
        ("[" * 100_000, "", "nested too deeply"),
        ('{"text": "a"}', "text", "unknown field; the fields are model, version, source, options"),
        ('{"target_language": "de"}', "target_language", "did you mean options.target_language?"),
        ('{"options": {"beam": 2}}', "options.beam", "did you mean beam_size?"),
        ('{"options": {"wings": 2}}', "options.wings", "/docs lists"),
        ('{"options": {"terms": [{"from": "a"}]}}', "options.terms[0].from", "unknown field"),
        ('{"source": "a", "source": "b"}', "source", "given twice"),
        ('{"source": 1}', "source", "is not a text"),
        ('{"source": ["a"]}', "source", "is not a text"),
        ('{"version": -1}', "version", ""),
        ('{"version": 1.5}', "version", ""),
        ('{"options": {"beam_size": "x"}}', "options.beam_size", "'x' is not an integer"),
        ('{"options": []}', "options", "not an object"),
        ('{"options": ""}', "options", "not an object"),
        ('{"options": [{}]}', "options", "not an object"),
        ('{"options": {"terms": {}}}', "options.terms", "not a list of objects"),
        ('{"options": {"terms": [[]]}}', "options.terms[0]", "not an object"),
        ('{"options": {"suppress_tokens": "x"}}', "options.suppress_tokens", "is not a list"),
        ('{"options": {"suppress_tokens": [1]}}', "options.suppress_tokens[0]", "is not a text"),
        ('{"options": {"beam_size": [1]}}', "options.beam_size", "is not a number"),
        ('{"options": {"beam_size": true}}', "options.beam_size", "is not a number"),
        ('{"options": {"return_scores": 1}}', "options.return_scores", "not true or false"),
        ('{"priority": "PRIORITY_HIGH"}', "priority", ""),
        ('{"priority": 1e999}', "priority", "too large"),
        ('{"priority": "\\ud800"}', "priority", "surrogate"),
        ('{"source": "\\ud800"}', "source", "surrogate"),
        ('{"\\ud800": 1}', "?", "surrogate"),
        ('{"a\\"b": 1}', 'a"b', "unknown field"),
        ('{"options": {"": 1}}', "options.''", "unknown field"),
        ('{"options": {"patience": "x"}}', "options.patience", "float"),
        ('{"options": {"patience": 1e999}}', "options.patience", "too large"),
        (f'{{"options": {{"patience": {"9" * 5000}}}}}', "options.patience", "too large"),
        ('{"options": {"time_limit_ms": 1.5}}', "options.time_limit_ms", "1.5"),
        ('{"options": {"time_limit_ms": " 1"}}', "options.time_limit_ms", "integer"),
        (
            '{"options": {"suppress_tokens": ["a", null]}}',
            "options.suppress_tokens[1]",
            "is not a text",
        ),
    ],
)
def test_misfit_is_refused_by_its_field(body: str | bytes, field: str, reason: str) -> None:
    with pytest.raises(Failure) as refused:
        read(body)
    assert (refused.value.status, refused.value.field) == (400, field)
    assert reason in refused.value.details
    assert refused.value.details.startswith(field)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["source", "options", "version", "beam_size", "terms", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@examples(300)
@given(JSON.map(json.dumps) | st.binary(max_size=40))
def test_any_json_and_any_bytes_are_a_message_or_refused(body: str | bytes) -> None:
    try:
        read(body)
    except Failure as failure:
        assert failure.status == 400

"""The result of a load, its report and its page, of answers made by hand."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.load import Answer, percentile
from seqserve.load.load import Sent
from seqserve.load.page import Axis, page
from seqserve.load.rate_search import Probe
from seqserve.load.report import compared, differences, lines_of, probes_of
from seqserve.load.result import details_of, result_of, warnings_of
from seqserve.output import json_line

SETTINGS = {"date": "today", "target": "<host>:1", "request_rate": 10.0, "stream": True}


def served(due_s: float, total_s: float, late_s: float = 0.0) -> Answer:
    times = {"due_s": due_s, "late_s": late_s, "sent_s": late_s, "total_s": total_s}
    facts: dict[str, Any] = {"gaps_s": (0.01, 0.03), "tokens": 3, "source_tokens": 5}
    return Answer(first_s=total_s / 2, **times, **facts)


def failed(due_s: float, error: str, details: str = "") -> Answer:
    return Answer(due_s=due_s, sent_s=0.0, error=error, details=details)


ANSWERS = [
    *(served(0.1 * number, 0.1 if number < 90 else 0.4) for number in range(100)),
    failed(9.9, "RESOURCE_EXHAUSTED", "the queue\nis full"),
    failed(9.95, "HTTP 429"),
    failed(9.99, "INTERNAL", "x" * 500),
]


def result(answers: list[Answer] = ANSWERS, cpu_share: float = 0.2, **goodput: float) -> Any:
    sent = Sent(answers, cpu_s=0.0103, cpu_share=cpu_share)
    settings = {**SETTINGS, "goodput": goodput}
    return result_of(sent, settings, seconds=10.0, streamed=True, goodput=goodput)


def test_keys_and_counts_and_times_of_what_was_answered() -> None:
    facts = result()
    assert json.loads(json_line(facts)) == facts
    expected = {
        "duration": 10.3,
        "completed": 100,
        "failed": 3,
        "refused": 2,
        "request_throughput": 100 / 10.3,
        "total_output_tokens": 300,
        "total_token_throughput": 800 / 10.3,
        "generator_cpu_us_per_request": 100.0,
        "mean_e2el_ms": 130.0,
        "median_e2el_ms": 100.0,
        "p99_e2el_ms": 400.0,
        "max_e2el_ms": 400.0,
        "median_ttft_ms": 50.0,
        "median_tpot_ms": 25.0,
        "mean_itl_ms": 20.0,
        "std_itl_ms": 10.0,
    }
    assert {name: facts[name] for name in expected} == pytest.approx(expected)
    assert facts["error_counts"] == {"RESOURCE_EXHAUSTED": 1, "HTTP 429": 1, "INTERNAL": 1}
    assert facts["error_examples"]["RESOURCE_EXHAUSTED"] == "the queue is full"
    assert len(facts["error_examples"]["INTERNAL"]) == 120


def test_goodput_counts_what_keeps_every_limit() -> None:
    facts = result(e2el=200.0, ttft=60.0)
    assert facts["good_share"] == pytest.approx(90 / 103)
    assert facts["request_goodput"] == pytest.approx(90 / 10.3)
    assert result(e2el=200.0, ttft=40.0)["good_share"] == 0.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"request_rate": 10.0}, "open loop, 10 requests a second"),
        ({"request_rate": None, "max_concurrency": 32}, "closed loop, 32 requests in flight"),
        ({"request_rate": None, "trace": "day.txt"}, "open loop, the moments of day.txt"),
    ],
)
def test_a_report_tells_how_requests_came(settings: dict[str, object], words: str) -> None:
    assert lines_of({**result(), **settings})[0].split(maxsplit=1) == ["load", words]


def test_nothing_was_answered() -> None:
    facts = result([failed(0.0, "UNAVAILABLE")])
    assert facts["mean_e2el_ms"] is None
    assert "UNAVAILABLE         1" in "\n".join(lines_of(facts))
    assert "<svg" in page(facts, [failed(0.0, "UNAVAILABLE")], [])


def test_details_of_every_request() -> None:
    details = details_of(ANSWERS)
    assert {len(values) for values in details.values()} == {103}
    assert (details["e2els"][0], details["e2els"][-1]) == (0.1, None)
    assert details["errors"][-1] == "INTERNAL"


@pytest.mark.parametrize(
    ("late_s", "cpu_share", "words"),
    [
        (0.0, 0.2, []),
        (0.009, 0.2, []),
        (0.02, 0.2, ["late by 20.0 ms (p99)"]),
        (0.02, 0.95, ["late by 20.0 ms (p99)", "busy for 95%"]),
    ],
)
def test_a_late_or_busy_sender_is_told(late_s: float, cpu_share: float, words: list[str]) -> None:
    facts = result([served(0.0, 0.1, late_s)] * 100, cpu_share)
    assert facts["max_lateness_ms"] == pytest.approx(1e3 * late_s)
    faults = warnings_of(facts)
    assert len(faults) == len(words)
    assert all(word in fault for word, fault in zip(words, faults, strict=True))


def test_report() -> None:
    lines = "\n".join(lines_of(result(e2el=200.0)))
    assert "requests   103 in 10.3 s: 10.0/s" in lines
    assert "refused    2\nfailed     1\n" in lines
    assert "whole answer        130.0  100.0  130.0" not in lines
    assert re.search(r"whole answer +130\.0 +100\.0 +100\.0 +400\.0 +400\.0", lines)
    assert "Only 97.1% of the requests were answered; the times are theirs." in lines
    assert "good       8.7/s, 87.4% of all: e2el 200 ms" in lines


PROBES = [Probe(16.0, 10.0, True), Probe(32.0, float("inf"), False), Probe(24.0, 30.0, True)]


def test_report_of_a_search() -> None:
    lines = probes_of(PROBES, 50.0)
    assert [line.split() for line in lines[1:4]] == [
        ["16.0", "10.0", "yes"],
        ["24.0", "30.0", "yes"],
        ["32.0", "inf", "no"],
    ]
    assert lines[-1] == "Highest rate: 24.0 requests a second, p99 30.0 ms."
    assert probes_of(PROBES[1:2], 50.0)[-1] == "No rate holds p99 within 50 ms."


def test_two_results_side_by_side() -> None:
    first, second = result(), result([served(0.0, 0.05)] * 10)
    second["request_rate"] = 20.0
    rows = {line[:28].strip(): line.split() for line in compared(first, second, ["a", "b"])}
    assert rows["whole answer, p50, ms"][-3:] == ["100.0", "50.0", "0.50"]
    assert rows["refused"][-3:] == ["2", "0", "0.00"]
    assert differences(first, second, ["a", "b"]) == ["request_rate: 10.0 in a, 20.0 in b"]


def test_page_stands_alone_and_is_well_formed() -> None:
    facts = result() | {"limit_p99_ms": 50.0}
    text = page(facts, ANSWERS, ["<b>", "two"], PROBES)
    assert "&lt;host&gt;:1" in text and "<b>" not in text
    assert not re.search(r"https?://|<script|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 4
    for picture in pictures:
        svg = ElementTree.fromstring(picture)
        assert "nan" not in picture and "inf" not in picture
        assert {"path", "text"} <= {each.tag for each in svg.iter()}


@pytest.mark.parametrize(
    ("axis", "names"),
    [
        (Axis("", 0.0, 10.0), ["0", "2", "4", "6", "8", "10"]),
        (Axis("", 0.0, 0.5), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]),
        (Axis("", 1.0, 30.0, is_log=True), ["1", "2", "5", "10", "20"]),
        (Axis("", 0.001, 2000.0, is_log=True), ["0.001", "0.01", "0.1", "1", "10", "100", "1,000"]),
        (Axis("", 3.0, 3.0), ["3"]),
    ],
)
def test_marks_of_an_axis(axis: Axis, names: list[str]) -> None:
    assert [name for _, name in axis.marks()] == names
    assert all(0.0 <= axis.share(value) <= 1.0 for value, _ in axis.marks())


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_its_share_is_at_or_below_a_percentile(values: list[float], share: float) -> None:
    bound = percentile(values, share)
    assert bound in values
    assert sum(value <= bound for value in values) >= share * len(values) * (1 - 1e-9)
    assert sum(value < bound for value in values) < max(1.0, share * len(values))


def test_percentiles() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.9, 0.99, 1.0)] == [
        1,
        50,
        90,
        99,
        100,
    ]

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.samples import Exemplar

from seqserve_server.front.fronts.fronts import added, lasting

RELOAD = "reload_success_timestamp_seconds"


def front(calls: dict[str, float], waiting: float = 0.0, seconds: float = 0.0) -> list[Metric]:
    requests = CounterMetricFamily("seqserve_requests", "Calls.", labels=["code"])
    durations = HistogramMetricFamily("seqserve_seconds", "Time.", labels=["code"])
    for code, count in calls.items():
        exemplar = Exemplar({"id": f"{code}{count}"}, 0.2, seconds)
        requests.add_metric([code], count)
        durations.add_metric([code], [("1.0", count, exemplar), ("+Inf", 2 * count)], 3 * count)
    gauge = GaugeMetricFamily("seqserve_answers_waiting", "Waiting.", value=waiting)
    reload = GaugeMetricFamily(f"seqserve_{RELOAD}", "Time.", labels=["option"])
    reload.add_metric(["--tokens"], seconds)
    return [requests, durations, gauge, reload]


def values(families: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_equal_labels_add_up_and_others_stay() -> None:
    total = values(added([front({"OK": 2}, 1), front({"OK": 3, "CANCELLED": 1}, 4)]))
    assert total["seqserve_requests_total", "OK"] == 5
    assert total["seqserve_requests_total", "CANCELLED"] == 1
    assert total["seqserve_seconds_bucket", "OK", "1.0"] == 5
    assert total["seqserve_seconds_bucket", "OK", "+Inf"] == total["seqserve_seconds_count", "OK"]
    assert total["seqserve_seconds_sum", "OK"] == 15
    assert total["seqserve_answers_waiting",] == 5


def test_of_files_the_front_counts_that_read_them_first() -> None:
    total = values(added([front({}, seconds=20.0), front({}, seconds=10.0)]))
    assert total[f"seqserve_{RELOAD}", "--tokens"] == 10.0


def test_the_newest_exemplar_stays() -> None:
    families = added([front({"OK": 2}, seconds=20.0), front({"OK": 3}, seconds=10.0)])
    samples = [sample for family in families for sample in family.samples]
    [exemplar] = [sample.exemplar for sample in samples if sample.exemplar]
    assert exemplar.labels == {"id": "OK2"}


def test_counts_of_a_front_that_has_ended_stay_but_not_its_gauges() -> None:
    ended = lasting(front({"OK": 2}, waiting=7))
    total = values(added([ended, front({"OK": 1}, waiting=1)]))
    assert total["seqserve_requests_total", "OK"] == 3
    assert total["seqserve_answers_waiting",] == 1
    assert added([]) == []

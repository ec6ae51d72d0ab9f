import pytest

from seqserve.load.capacity import CapacityPlan, Replica, settings_of


def plan_of(rate_per_s: float = 200.0, headroom: float = 0.7, **known: int | None) -> CapacityPlan:
    replica = Replica(rate_per_s=120.0, in_flight=10.0, **known)
    return CapacityPlan(rate_per_s=rate_per_s, headroom=headroom, replica=replica)


@pytest.mark.parametrize(
    ("rate_per_s", "headroom", "replicas"),
    [(200.0, 0.7, 3), (168.0, 0.7, 2), (168.1, 0.7, 3), (360.0, 1.0, 3), (0.1, 0.7, 1)],
)
def test_replicas(rate_per_s: float, headroom: float, replicas: int) -> None:
    plan = plan_of(rate_per_s, headroom)
    assert plan.replicas == replicas
    assert plan.load_of(replicas) <= headroom + 1e-9
    assert plan.load_of(1) == pytest.approx(rate_per_s / 120.0)


def test_memory_is_that_of_the_chart_where_nobody_has_measured() -> None:
    plan = plan_of()
    assert plan.memory_mi == 128 + 256 + 5 * 160
    assert plan.values() == {"replicas": 3, "memory": {"versions": 5, "versionMi": 160}}


def test_memory_has_room_for_peaks_and_for_a_version_that_loads() -> None:
    plan = plan_of(cores=2, slots=64, versions=1, version_bytes=100 << 20)
    assert (plan.versions, plan.version_mi) == (2, 128)
    assert plan.memory_mi == 128 + 256 + 2 * 128
    assert list(settings_of(plan.values())) == [
        "replicas=3",
        "cores=2",
        "memory.versions=2",
        "memory.versionMi=128",
        "options.SEQSERVE_SLOTS=64",
    ]


def test_requests_under_way_are_those_that_come_while_one_stays() -> None:
    result = {"highest_request_rate": 50.0, "request_throughput": 48.0, "mean_e2el_ms": 250.0}
    one = Replica.of(result, cores=2)
    assert (one.rate_per_s, one.in_flight, one.cores, one.slots) == (50.0, 12.0, 2, None)

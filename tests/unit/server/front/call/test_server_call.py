import pytest

from seqserve_server.front.telemetry.call_record import has_passed


@pytest.mark.parametrize(
    ("remaining_s", "elapsed_s", "expected"),
    [
        (None, 1000.0, False),
        (0.0, 1.0, True),
        (-3.0, 1.0, True),
        # The wire rounds a timeout up by as much as 1 %.
        (0.09, 10.0, True),
        (0.5, 10.0, False),
        (0.02, 0.01, False),
    ],
)
def test_deadline_has_passed_within_rounding_and_jitter(
    remaining_s: float | None, elapsed_s: float, expected: bool
) -> None:
    assert has_passed(remaining_s, elapsed_s) is expected

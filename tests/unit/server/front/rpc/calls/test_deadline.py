"""A deadline that passed, told from a caller who went away."""

from __future__ import annotations

import pytest

from seqserve_server.front.rpc.calls.deadline import has_passed


@pytest.mark.parametrize(
    ("remaining_s", "elapsed_s", "expected"),
    [
        (None, 1000.0, False),
        (0.0, 1.0, True),
        (-3.0, 1.0, True),
        # The server believes in up to one part of a hundred more than the caller waited.
        (0.09, 10.0, True),
        (0.5, 10.0, False),
        (0.02, 0.01, False),
    ],
)
def test_has_passed(remaining_s: float | None, elapsed_s: float, expected: bool) -> None:
    assert has_passed(remaining_s, elapsed_s) is expected

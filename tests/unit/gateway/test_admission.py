"""How many calls begin, and run at once."""

from __future__ import annotations

import pytest
from tests.clock import Clock

from seqserve_gateway.admission import Admission
from seqserve_gateway.failure import Failure


def test_a_place_is_free_again_after_the_call() -> None:
    admission = Admission(calls=1)
    with admission.call(), pytest.raises(Failure) as refused, admission.call():
        pass
    assert "under way" in refused.value.details
    with admission.call():
        pass


def test_calls_begin_at_a_rate_after_the_burst() -> None:
    clock = Clock()
    admission = Admission(rate=2, burst=3, clock=clock)

    def admitted() -> int:
        for count in range(100):
            try:
                with admission.call():
                    pass
            except Failure:
                return count
        return 100

    assert admitted() == 3
    clock.now_s += 1
    assert admitted() == 2
    clock.now_s += 3600
    assert admitted() == 3

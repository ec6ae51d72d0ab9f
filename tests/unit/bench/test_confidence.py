"""The fit of confidence."""

from __future__ import annotations

import numpy as np
import pytest
from bench.confidence import Sample, estimates, fit


def test_a_logistic_function_is_found_again() -> None:
    random = np.random.default_rng(1)
    inputs = np.column_stack([np.ones(500), random.normal(size=(500, 2))])
    weights = np.array([-0.5, 1.5, -2.0])
    quality = estimates(Sample(inputs, np.empty(0)), weights)
    assert fit(Sample(inputs, quality)) == pytest.approx(weights, rel=0.01)

import pytest

from seqserve_model.recipe import OptimizerRecipe


@pytest.mark.parametrize(
    ("step", "expected"), [(1, 0.01), (50, 0.5), (100, 1.0), (400, 0.5), (900, 1 / 3)]
)
def test_warmup_then_inverse_square_root(step: int, expected: float) -> None:
    optimizer = OptimizerRecipe(learning_rate=1.0, warmup_steps=100, decay_steps=0)
    assert optimizer.rate(step, max_steps=1_000) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("step", "share"), [(80, 1.0), (81, 1.0), (91, 0.5), (100, 0.05), (101, 0.0), (200, 0.0)]
)
def test_linear_decay_over_the_last_steps(step: int, share: float) -> None:
    def rate(decay_steps: int) -> float:
        optimizer = OptimizerRecipe(warmup_steps=10, decay_steps=decay_steps)
        return optimizer.rate(step, max_steps=100)

    assert rate(20) == pytest.approx(share * rate(0))


def test_no_warmup_begins_at_the_peak() -> None:
    assert OptimizerRecipe(learning_rate=0.3, warmup_steps=0).rate(1, max_steps=9) == 0.3

import pytest

from seqserve_model.objective import learning_rate


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, 0.01),
        (50, 0.5),
        (100, 1.0),
        (400, 0.5),
        (900, 1 / 3),
    ],
)
def test_warmup_then_inverse_square_root(step: int, expected: float) -> None:
    rate = learning_rate(step, peak=1.0, warmup_steps=100, decay_steps=0, max_steps=1_000)
    assert rate == pytest.approx(expected)


@pytest.mark.parametrize(
    ("step", "share"), [(80, 1.0), (81, 1.0), (91, 0.5), (100, 0.05), (101, 0.0), (200, 0.0)]
)
def test_linear_decay_over_the_last_steps(step: int, share: float) -> None:
    def rate(decay_steps: int) -> float:
        return learning_rate(
            step, peak=1.0, warmup_steps=10, decay_steps=decay_steps, max_steps=100
        )

    assert rate(20) == pytest.approx(share * rate(0))


def test_no_warmup_begins_at_the_peak() -> None:
    assert learning_rate(1, peak=0.3, warmup_steps=0, decay_steps=0, max_steps=9) == 0.3

from pathlib import Path

import pytest
from tests.clock import Clock

from seqserve_model.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("seqserve_model.progress.time.monotonic", clock)
    return clock


def test_a_log_gets_a_line_now_and_then(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress(tmp_path, step=10, max_steps=1_000)
    for step in range(11, 31):
        clock.now_s += 3
        shown.step(step, loss=2.0, rate=1e-3, target_tokens=300)
    shown.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "step 20/1,000  loss 2.000  100 target tokens/s  lr 1.00e-03  49 min left",
        "step 30/1,000  loss 2.000  100 target tokens/s  lr 1.00e-03  48 min left",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3540, "59 min"), (3600, "1:00 h"), (9000, "2:30 h")],
)
def test_time_left_reads_well(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: int, text: str
) -> None:
    shown = Progress(tmp_path, step=0, max_steps=100 + seconds)
    clock.now_s += 100
    shown.step(100, loss=1.0, rate=0.1, target_tokens=1)
    shown.close()
    assert capsys.readouterr().err.rstrip().endswith(f"{text} left")


def test_numbers_go_to_tensorboard(tmp_path: Path) -> None:
    shown = Progress(tmp_path, step=0, max_steps=10)
    shown.scalars(3, {"valid/bleu": 21.5})
    shown.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"valid/bleu" in content

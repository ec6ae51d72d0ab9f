"""Drivers in processes at the other end of pipes; each reverses its sources."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bench.drivers.optimum import OptimumDriver
from bench.drivers.subprocess_driver import SubprocessDriver

FAR_END = """
from bench.drivers.subprocess_driver import answer
answer(lambda: print("not a reply") or (lambda texts: [text[::-1] for text in texts]))
"""


@pytest.fixture
def driver() -> Iterator[SubprocessDriver[str]]:
    driver: SubprocessDriver[str] = SubprocessDriver("reverse", [sys.executable, "-c", FAR_END], 2)
    with driver:
        yield driver


def test_sources_are_dealt_out_and_come_back_in_order(driver: SubprocessDriver[str]) -> None:
    texts = ["one", "seventeen", "four", "é", "eleven"]
    assert driver.decode(texts) == [text[::-1] for text in texts]
    assert len({*driver.pids}) == 2


def test_batches_of_many_threads_get_their_own_answers(driver: SubprocessDriver[str]) -> None:
    batches = [[f"{number} {word}" for word in ("a", "bc")] for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(driver.decode_batch, batches))
    assert answers == [[text[::-1] for text in batch] for batch in batches]


def test_a_process_that_ends_at_once_is_reported() -> None:
    with pytest.raises(RuntimeError, match="broken ended with status 3"):
        SubprocessDriver("broken", [sys.executable, "-c", "raise SystemExit(3)"], 2)


def test_optimum_gets_its_options(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(
        f"#!{sys.executable}\n"
        "import sys; sys.path.insert(0, '.')\n"
        "from bench.drivers.subprocess_driver import answer\n"
        "answer(lambda: lambda sources: [sys.argv[4:] for _ in sources])\n"
    )
    interpreter.chmod(0o755)
    with OptimumDriver(tmp_path, 2, 4, (3, 1), interpreter) as driver:
        assert driver.name == "Optimum fp32 3x1"
        assert len(driver.pids) == 3
        assert driver.decode([[1]]) == [[str(tmp_path), "2", "4", "1"]]

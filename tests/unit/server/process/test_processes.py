import subprocess
import sys

import pytest

from seqserve_server.process import processes as child_process


def python(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code])


@pytest.mark.parametrize("status", [0, 3])
def test_the_end_gives_the_exit_status(status: int) -> None:
    assert child_process.end(python(f"raise SystemExit({status})"), 60.0) == status


def test_a_process_that_does_not_end_is_killed() -> None:
    process = python("import time; time.sleep(600)")
    assert child_process.end(process, 0.0) is None
    assert process.poll() is not None

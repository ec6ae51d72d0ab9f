"""What processes use, as the system tells."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest
from prometheus_client import ProcessCollector

from seqserve_server.front.telemetry import engine_metrics as module
from seqserve_server.front.telemetry.engine_metrics import usage_of


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_process_that_computes_uses_memory_and_time() -> None:
    code = "while True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            while True:
                usage = usage_of([process.pid])
                assert usage is not None
                if usage.cpu_s >= 0.05:
                    break
            assert usage.resident_bytes > 1e6
        finally:
            process.kill()
    assert usage_of([process.pid]) is None
    assert usage_of([os.getpid(), process.pid]) is not None


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_several_processes_use_what_each_of_them_uses() -> None:
    one, both = usage_of([os.getpid()]), usage_of([os.getpid(), os.getpid()])
    assert one is not None and both is not None
    assert both.resident_bytes > 1.5 * one.resident_bytes
    assert both.cpu_s >= 2 * one.cpu_s


def test_no_process_uses_nothing() -> None:
    assert usage_of([]) is None


def test_system_without_proc_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ProcessCollector", partial(ProcessCollector, proc="/nowhere"))
    assert usage_of([os.getpid()]) is None

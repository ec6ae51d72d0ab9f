"""Ctrl-C while a process of a command begins."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

from seqserve.processes import leave_interrupts, spawn


def _tell(pipe: Connection) -> None:
    leave_interrupts()
    pipe.send("it lives")
    pipe.recv()


def test_process_that_begins_leaves_interrupts_to_the_command() -> None:
    here, there = multiprocessing.Pipe()
    process = spawn(_tell, there)
    there.close()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    assert here.recv() == "it lives"
    os.kill(process.pid, signal.SIGINT)
    here.send(None)
    process.join()
    assert process.exitcode == 0
    # This process gets its own.
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())

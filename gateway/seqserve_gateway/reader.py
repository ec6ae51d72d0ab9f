"""A process that reads and writes documents, so that one that takes too much ends nothing else.

The system limits its processor time and its memory, so a job beyond the limits ends, whatever
library it is in. Jobs come on standard input and replies go to standard output, each preceded by a
header.
"""

import contextlib
import os
import pickle
import signal
import struct
import sys
import time
import traceback
from typing import Any

from seqserve_gateway.reading import outcome

try:
    import resource
except ImportError:
    # Windows: the deadline of the request alone limits a job.
    resource = None  # type: ignore[assignment]

HEAD = struct.Struct("!Q?")
"""Before each job and reply: its length, and whether the process ends after it."""
_KEPT_KIB = 64 << 10
"""A process that has more after a job does not give it back to the system, so it ends."""


def main(cpu_s: int, memory_bytes: int) -> None:
    """Works until its input ends; ``cpu_s`` is for each job, the memory for the process."""
    # Ctrl-C reaches every process of a terminal; this one ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    # Output of a library must not mix with replies.
    sys.stdout = sys.stderr
    _give_way(memory_bytes)
    is_last = False
    while not is_last and (head := source.read(HEAD.size)):
        length, _ = HEAD.unpack(head)
        _limit_cpu(cpu_s)
        try:
            reply = pickle.dumps(_reply_to(source.read(length)))
        except MemoryError:
            return
        is_last = _resident_kib() > _KEPT_KIB
        sink.write(HEAD.pack(len(reply), is_last))
        sink.write(reply)
        sink.flush()


def _reply_to(job: bytes) -> tuple[Any, str]:
    # The outcome, and the traceback of an error of the program.
    value, fault = None, ""
    try:
        value = outcome(*pickle.loads(job))
    except MemoryError:
        raise
    except Exception:
        fault = traceback.format_exc()
    return value, fault


def _give_way(memory_bytes: int) -> None:
    # Callers that wait for a translation go first, and where memory runs out this process ends;
    # so it does, without a word, where the gateway has ended.
    with contextlib.suppress(AttributeError, OSError):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.nice(5)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _limit_cpu(cpu_s: int) -> None:
    if resource is not None:
        limit_s = int(time.process_time()) + cpu_s
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, hard))


def _resident_kib() -> int:
    # The peak that the system tells begins with the memory of the process that started this one.
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 10
    return 0


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

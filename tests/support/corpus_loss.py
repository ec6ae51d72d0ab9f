"""`seqserve corpus`, which or whose engines are killed once its first answers are in its journal.

Whoever watches the journal from outside may come too late to kill anything.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence

from seqserve.__main__ import run
from seqserve.command.journal import JournalFile


def lose(victim: str) -> None:
    append = JournalFile.append

    def append_and_lose(self: JournalFile, *entries: Sequence[object]) -> None:
        append(self, *entries)
        JournalFile.append = append
        if victim == "command":
            os.kill(os.getpid(), signal.SIGKILL)
        for engine in multiprocessing.active_children():
            engine.kill()

    JournalFile.append = append_and_lose


if __name__ == "__main__":
    lose(sys.argv.pop(1))
    run()

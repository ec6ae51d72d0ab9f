"""Starts ``seqserve gateway`` as an operator does, on a free port."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from .process import PATIENCE_S, own_environment


@dataclass(frozen=True, slots=True)
class Gateway:
    process: subprocess.Popen[str]
    url: str

    def client(self, **headers: str) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False, verify=False
        )

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def gateway_of(target: str, *options: str) -> Iterator[Gateway]:
    """Starts a gateway for a server; ends it as an operator does, and checks that it ends well."""
    command = [sys.executable, "-m", "seqserve", "gateway", "--target", target, "--port", "0"]
    own, pipe = own_environment(), subprocess.PIPE
    with subprocess.Popen(
        [*command, *options], stdout=pipe, stderr=pipe, text=True, env=own
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            words = process.stdout.readline().split()
            assert words, process.stderr.read()
            yield Gateway(process, words[3])
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()

"""Trial certificates, made by the commands in docs/security.md."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from seqserve import TLS

PAGE = Path(__file__).parents[1] / "docs" / "security.md"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of an authority, and of a server and a client that it has signed."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server(self) -> tuple[Path, Path]:
        return self.folder / "server.pem", self.folder / "server.key"

    @property
    def client(self) -> tuple[Path, Path]:
        return self.folder / "client.pem", self.folder / "client.key"

    def options(self, *, mutual: bool) -> list[str]:
        certificate, key = map(str, self.server)
        options = ["--tls-certificate", certificate, "--tls-key", key]
        return [*options, "--tls-client-ca", str(self.ca)] if mutual else options

    def tls(self) -> TLS:
        certificate, key = self.client
        return TLS(ca=self.ca, certificate=certificate, key=key)

    def replace_server(self, other: Certificates) -> None:
        """Replaces the server's certificate and then its key."""
        for mine, theirs in zip(self.server, other.server, strict=True):
            shutil.copyfile(theirs, mine)


def make_certificates(folder: Path) -> Certificates:
    assert shutil.which("openssl"), "openssl is not installed: apt-get install openssl"
    [script] = re.findall(r"```sh\n(umask 077\nnew=.*?)```", PAGE.read_text(), re.DOTALL)
    command = ["sh", "-eu", "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Certificates(folder)

"""Archives of an address: by HTTPS, of the hash that was told, and no larger than allowed."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.certificates import Certificates

from seqserve.errors import NotWritten, OptionError
from seqserve_server.fetch.source import NotFetched, download, is_address

DATA = b"an archive"
HASH = hashlib.sha256(DATA).hexdigest()
OTHER = hashlib.sha256(b"another").hexdigest()
ANSWERS = {
    "/bare": DATA,
    "/told": DATA,
    "/told.sha256": f"{HASH}  told\n".encode(),
    "/lied": DATA,
    "/lied.sha256": OTHER.encode(),
    "/page": DATA,
    "/page.sha256": b"<html>not found</html>",
}


class Site(BaseHTTPRequestHandler):
    """Gives the answers, and leads from ``/to?ADDRESS`` to an address."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/to":
            self.send_response(302)
            self.send_header("Location", query)
            self.end_headers()
        elif path in ANSWERS:
            self.send_response(200)
            more = 5 if query == "short" else 0
            self.send_header("Content-Length", str(len(ANSWERS[path]) + more))
            self.end_headers()
            self.wfile.write(ANSWERS[path])
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(certificates: Certificates) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.server)
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _trusted(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.mark.parametrize(
    ("path", "sha256"),
    [
        ("/bare", HASH),
        ("/bare", HASH.upper()),
        (f"/bare#sha256={HASH}", ""),
        ("/told", ""),
        ("/told?token=1", ""),
        # What the user says is what counts.
        ("/lied", HASH),
        ("/to?{site}/bare", HASH),
    ],
)
def test_hash_comes_from_the_user_the_address_or_a_file(
    site: str, path: str, sha256: str, place: Path
) -> None:
    download(site + path.format(site=site), sha256, 100, place)
    assert place.read_bytes() == DATA


@pytest.mark.parametrize("path", ["/bare", "/page", "/bare#sha256=12"])
def test_no_hash_is_refused(site: str, path: str, place: Path) -> None:
    with pytest.raises(OptionError, match=r"source: nothing tells the sha256 .* so --sha256 must"):
        download(site + path, "", 100, place)
    assert not place.exists()


def test_more_than_allowed_is_refused(site: str, place: Path) -> None:
    with pytest.raises(NotFetched, match="is larger than 9e-09 GB; see --max-gb"):
        download(f"{site}/bare", HASH, len(DATA) - 1, place)
    assert not place.exists()


@pytest.mark.parametrize(
    ("address", "sha256", "reason"),
    [
        ("{site}/bare", OTHER, f": sha256 is {HASH}, not {OTHER}"),
        ("{site}/lied", "", f": sha256 is {HASH}, not {OTHER}"),
        ("{site}/nothing", OTHER, "404"),
        ("{site}/bare?short", OTHER, "sha256|IncompleteRead"),
        ("https://localhost:1/bare", OTHER, "refused"),
        ("https:///bare", OTHER, "no host"),
        ("https://local host/bare", OTHER, "control characters"),
        # It leads nowhere without TLS.
        ("{site}/to?http://localhost:1/bare", HASH, "http://localhost:1/bare, which is not https"),
        ("{site}/to?file:///etc/passwd", HASH, "file:///etc/passwd' is not allowed"),
    ],
)
def test_an_address_without_the_answer_is_named(
    site: str, address: str, sha256: str, reason: str, place: Path
) -> None:
    address = address.format(site=site)
    with pytest.raises(NotFetched, match=reason) as caught:
        download(address, sha256, 100, place)
    assert str(caught.value).startswith(address)


def test_who_is_not_trusted_is_not_read(
    site: str, other_certificates: Certificates, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(other_certificates.ca))
    with pytest.raises(NotFetched, match="certificate verify failed"):
        download(f"{site}/bare", HASH, 100, place)


def test_a_full_disk_is_told_as_such(site: str) -> None:
    with pytest.raises((NotWritten, OptionError), match="/dev/full"):
        download(f"{site}/bare", HASH, 100, Path("/dev/full/archive"))


@pytest.mark.parametrize("source", ["http://a/b", "file:///a", "ftp://a/b"])
def test_only_https_is_an_address(source: str) -> None:
    with pytest.raises(OptionError, match="only https:// is fetched"):
        is_address(source)


def test_a_path_is_no_address() -> None:
    assert is_address("https://a/b")
    assert not is_address("models/en-de/4")

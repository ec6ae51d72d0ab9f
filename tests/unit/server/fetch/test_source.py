import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tests.certificates import Certificates

from seqserve.errors import NotWritten, OptionError
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.fetch.source import NotFetched, chunks, download, is_address, opened

from .conftest import https

MAX_BYTES = 1 << 20


def contents(path: Path) -> dict[str, bytes]:
    with opened(path, "source", MAX_BYTES) as files:
        return {name: b"".join(chunks(files[name], name)) for name in files}


def tar(path: Path, *parts: tuple[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, part in parts:
            if isinstance(part, tarfile.TarInfo):
                archive.addfile(part)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(part)
            archive.addfile(info, io.BytesIO(part))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return name, info


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_every_kind_of_tar_is_read(mode: str, tmp_path: Path) -> None:
    path = tar(tmp_path / "archive", ("./a/b", b"one"), ("c", b"two"), mode=mode)
    assert contents(path) == {"a/b": b"one", "c": b"two"}


def test_zip_is_read(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b", "one")
        archive.mkdir("c")
        of_link = zipfile.ZipInfo("d")
        of_link.external_attr = 0o120777 << 16
        archive.writestr(of_link, "/etc/passwd")
    assert contents(path) == {"a/b": b"one"}


def test_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"one")
    assert contents(tmp_path) == {"a/b": b"one"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_what_is_no_file_is_not_there(kind: bytes, tmp_path: Path) -> None:
    path = tar(tmp_path / "archive", ("a", b"one"), link("b", "a", kind))
    assert contents(path) == {"a": b"one"}


def test_nothing_is_written_by_names(tmp_path: Path) -> None:
    folder = tmp_path / "within"
    folder.mkdir()
    path = tar(folder / "archive", ("../outside", b"one"), ("/etc/outside", b"two"))
    assert contents(path) == {"../outside": b"one", "/etc/outside": b"two"}
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def too_large(path: Path) -> None:
    tar(path, ("a", bytes(MAX_BYTES + 1)))


def too_large_as_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(MAX_BYTES + 1))


def too_many_parts(path: Path) -> None:
    tar(path, *((str(number), b"") for number in range(20_001)), mode="w")


def header_that_fills_the_memory(path: Path) -> None:
    header = tarfile.TarInfo("a")
    header.type, header.size = tarfile.XHDTYPE, 2 << 20
    path.write_bytes(header.tobuf() + bytes(2 << 20))


def part_without_a_name(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("QQ", "one")
    path.write_bytes(path.read_bytes().replace(b"QQ", b"\0Q"))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (too_large, "^source: .* see --max-gb"),
        (too_large_as_zip, "^source: has 1 parts of 1,048,577 bytes; .* can be read"),
        (too_many_parts, "20,000 parts"),
        (header_that_fills_the_memory, "a header has 2,097,152 bytes"),
        (part_without_a_name, "a part without a name"),
        (lambda path: path.write_text("no archive"), "source: is neither a tar nor a zip"),
        (lambda path: None, "source: source is neither a file nor"),
    ],
)
def test_what_is_no_sound_archive_is_refused(
    make: Callable[[Path], object], says: str, tmp_path: Path
) -> None:
    make(tmp_path / "archive")
    with pytest.raises((OptionError, ArtifactError), match=says):
        contents(tmp_path / "archive")


def test_every_truncation_ends_in_an_error(tmp_path: Path) -> None:
    # Without a pattern, so that it is about as long as what is in it.
    data = b"".join(number.to_bytes(4, "big") for number in range(500))
    whole = tar(tmp_path / "whole", ("a", data), ("b", data)).read_bytes()
    path = tmp_path / "archive"
    for length in range(0, len(whole) - 8, 50):
        path.write_bytes(whole[:length])
        with pytest.raises((OptionError, ArtifactError)):
            contents(path)


# ---- archives of an address

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
    with https(Site, certificates) as address:
        yield address


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

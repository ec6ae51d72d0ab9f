"""Random content in the operator's files: valid files are read, all others are refused.

A refusal is an error of this project that names the file or the option, never an exception of a
library, and it comes at start, never during a call.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.certificates import Certificates
from tests.examples import examples

from seqserve.auth import Scope, TokenEntry, digest_of
from seqserve.errors import OptionError
from seqserve.v1 import model_pb2
from seqserve_server.artifact.manifest import FILE, Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine.graph_messages import check_references
from seqserve_server.front.models.rollout import parse_traffic
from seqserve_server.front.security.protection import certificates_of
from seqserve_server.front.security.tokens import Tokens
from seqserve_server.text.tokenizer import Tokenizer

# Each example writes its files again.
ANEW = settings(examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])

JSON_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, 1, -1, 1 << 31, 1 << 63, 10**400, 1.0, float("nan"), float("inf")]),
        st.sampled_from(["", "a" * 5000, "\ud800", "\0", "../up", "9" * 5000, "1.23", "0" * 64]),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)
"""Values of JSON, among them such as JSON itself can hold and others cannot."""


Place = tuple[Any, ...]
_DEEPEST = 4


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    if len(place) == _DEEPEST or not isinstance(value, dict | list):
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*place, key)
        yield from places(part, (*place, key))


def changed(path: Path) -> st.SearchStrategy[bytes]:
    """Draws the JSON of a file with one to three of its parts changed."""
    content = path.read_bytes()

    @st.composite
    def build(draw: st.DrawFn) -> bytes:
        values = json.loads(content)
        for _ in range(draw(st.integers(1, 3))):
            change(draw, values)
        return json.dumps(values).encode()

    return build()


def change(draw: st.DrawFn, values: Any) -> None:
    *way, last = draw(st.sampled_from(list(places(values)) or [("all",)]))
    for key in way:
        values = values[key]
    deed = draw(st.sampled_from(["put", "put", "delete", "add"]))
    if deed == "delete" and (last in values or isinstance(values, list)):
        del values[last]
    elif deed == "add" and isinstance(values, dict):
        values[draw(st.text(max_size=5))] = draw(JSON_VALUES)
    else:
        values[last] = draw(JSON_VALUES)


def damaged(path: Path) -> st.SearchStrategy[bytes]:
    """Draws the bytes of a file with some of them changed or cut off."""
    content = path.read_bytes()

    @st.composite
    def build(draw: st.DrawFn) -> bytes:
        spoilt = bytearray(content)
        for _ in range(draw(st.integers(0, 3))):
            spoilt[draw(st.integers(0, len(spoilt) - 1))] = draw(st.integers(0, 255))
        return bytes(spoilt[: draw(st.sampled_from([len(spoilt), len(spoilt) // 2, 1, 0]))])

    return build()


@pytest.fixture(scope="module")
def folder(tiny_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of an artifact; each test damages another file of it."""
    return Path(shutil.copytree(tiny_artifact, tmp_path_factory.mktemp("operator") / "1"))


def test_manifest(folder: Path) -> None:
    path = folder / FILE
    values = json.loads(path.read_text())

    @ANEW
    @example(b"[" * 100_000)
    @example(json.dumps(values | {"description": "\ud800"}).encode())
    @example(json.dumps(values | {"\ud800": 1}).encode())
    @given(st.one_of(changed(path), damaged(path)))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        try:
            manifest = Manifest.read(folder)
        except ArtifactError as error:
            assert str(error).startswith(f"{path}: ")
            assert len(str(error)) < 1000
            str(error).encode()
            return
        # The reply to a client that lists models.
        model_pb2.Model(
            name=manifest.name,
            version=manifest.version,
            description=manifest.description,
            licence=manifest.licence,
            max_source_length=manifest.limits.max_source_length,
            max_target_length=manifest.limits.max_target_length,
            vocabulary_size=manifest.architecture.vocabulary_size,
        )

    check()


def test_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"

    # The library is slow.
    @examples(10)
    @given(st.one_of(changed(path), damaged(path)))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        try:
            Tokenizer.load(path)
        except OptionError as error:
            assert "tokenizer" in str(error)

    check()


def test_graph(folder: Path) -> None:
    path = folder / "decoder.onnx"

    @ANEW
    @given(damaged(path))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        try:
            check_references(path, ["weights.bin"])
        except ArtifactError as error:
            assert str(error).startswith(f"{path}: ")

    check()


def entry(number: int) -> str:
    scopes = frozenset([Scope.GENERATE])
    return str(TokenEntry(digest=digest_of(str(number)), scopes=scopes, name=f"caller-{number}"))


def test_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("\n".join(["# ours", *map(entry, range(3))]))

    @ANEW
    @given(st.one_of(damaged(path), st.binary(max_size=99), st.text().map(str.encode)))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        try:
            assert Tokens(path).find("no token") is None
        except OptionError as error:
            assert str(error).startswith(f"--tokens: {path}")

    check()


@ANEW
@given(
    st.lists(
        st.one_of(
            st.from_regex(r"[a-z-]{1,5}:[0-9]{1,12}=[0-9]{1,12}(,[0-9]=[0-9])*", fullmatch=True),
            st.text(st.sampled_from("ab:,=0123456789 ½²٣-\0"), max_size=20),
        ),
        max_size=3,
    )
)
def test_traffic(texts: list[str]) -> None:
    try:
        parse_traffic(texts)
    except OptionError as error:
        assert str(error).startswith("--traffic: ")


def test_certificates(certificates: Certificates, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("server.pem", "server.key", "ca.pem")]
    sound = (*certificates.server, certificates.ca)

    @ANEW
    @given(st.tuples(*(st.one_of(st.just(file.read_bytes()), damaged(file)) for file in sound)))
    def check(contents: tuple[bytes, ...]) -> None:
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        try:
            found = certificates_of(*paths)
        except OptionError as error:
            assert str(error).startswith("--tls-")
        else:
            assert found is not None and found.asks_clients

    check()

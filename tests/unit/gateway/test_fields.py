import json
import tracemalloc
from typing import Any

import pytest
from starlette.requests import Request

from seqserve_gateway.admission import Body, Shared
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure
from seqserve_gateway.fields import Fields, fields_of
from seqserve_gateway.upstream import Upstream

FORM = "application/x-www-form-urlencoded"


async def fields(body: bytes | str, content_type: str, query: str = "") -> Fields:
    headers = [(b"content-type", content_type.encode()), (b"host", b"localhost")]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/translate"}
    scope |= {"query_string": query.encode(), "headers": headers}
    data = body.encode() if isinstance(body, str) else body
    upstream = Upstream(target="localhost:1")
    try:
        body = Body(Shared(1 << 30), "caller", data)
        return fields_of(Call(Request(scope), body, upstream, "id", 1.0, {}))
    finally:
        await upstream.close()


def multipart(*parts: tuple[str, str, bytes]) -> bytes:
    pieces = [
        f'--B\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content
        for name, more, content in parts
    ]
    return b"\r\n".join([*pieces, b"--B--\r\n"])


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (json.dumps({"q": ["a b", "ü"], "n": 3, "on": True}), "application/json; charset=utf-8"),
        ("q=a+b&q=%C3%BC&n=3&on=1", FORM),
        ("q[]=a%20b&q[]=%C3%BC&n=3&on=true", ""),
        (
            multipart(
                ("q", "", b"a b"), ("q", "", "ü".encode()), ("n", "", b"3"), ("on", "", b"1")
            ),
            "multipart/form-data; boundary=B",
        ),
    ],
)
async def test_same_fields_from_every_kind_of_body(body: bytes | str, content_type: str) -> None:
    read = await fields(body, content_type)
    assert read.has_list("q")
    assert (read.texts("q"), read.number("n", 5), read.flag("on")) == (["a b", "ü"], 3, True)


async def test_query_counts_where_the_body_has_no_such_field() -> None:
    read = await fields("", "", "q=from+the+query&source=en")
    assert (read.text("q"), read.text("source")) == ("from the query", "en")
    read = await fields("q=body", FORM, "q=query&source=en")
    assert (read.text("q"), read.text("source")) == ("body", "en")


async def test_file_keeps_its_name_and_every_byte() -> None:
    content = b"\xff\x00 line\r\nnext\n--no boundary\r\n"
    body = multipart(("file", '; filename="\xfcber.srt"', content), ("target", "", b"de"))
    read = await fields(body, "multipart/form-data; boundary=B")
    assert (read.file("file").name, read.file("file").content) == ("über.srt", content)
    assert read.text("target") == "de"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("{", "application/json"),
        ("[" * 10_000, "application/json"),
        ("[]", "application/json"),
        ('{"q": "a"}'.encode("utf-16"), "application/json"),
        (b"\xff", FORM),
        ("q=caf%E9", FORM),
        ("&".join("a=1" for _ in range(1001)), FORM),
        ("no parts", "multipart/form-data; boundary=B"),
        ("no boundary", "multipart/form-data"),
        (multipart(("a", "", b"1")).removesuffix(b"--\r\n"), "multipart/form-data; boundary=B"),
        (multipart(*[("a", "", b"1")] * 1001), "multipart/form-data; boundary=B"),
        (multipart(("a", "(" * 9000, b"1")), "multipart/form-data; boundary=B"),
        (multipart(("a", "; a=b" * 99, b"1")), "multipart/form-data; boundary=B"),
        (b"--B\r\n\r\n" * 100_000, "multipart/form-data; boundary=B"),
        ("a", f"multipart/form-data{';' * 9999}; boundary=B"),
    ],
)
async def test_body_that_is_not_what_it_says(body: bytes | str, content_type: str) -> None:
    with pytest.raises(Failure) as refused:
        await fields(body, content_type)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "text",
    [
        '{"q": "a", "unused": [' + "[]," * 300_000 + "[]]}",
        '{"q": ["a"' + ',"a"' * 200_000 + "]}",
        '{"q": "a"' + ',"a":{}' * 150_000 + "}",
        '{"q": "' + '\\"' * 300_000 + '", "unused": [' + "1," * 30_000 + "1]}",
        "[" * 1_000_000,
        '"' * 999_999 + "," * 30_000,
    ],
)
async def test_body_of_too_many_values_is_refused_before_they_are_made(text: str) -> None:
    body = text.encode()
    tracemalloc.start()
    try:
        with pytest.raises(Failure) as refused:
            await fields(body, "application/json")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.status == 413
    assert peak < 4 * len(body)


@pytest.mark.parametrize("q", ["a, b [c] {d}, " * 60_000, '", [{' * 60_000, "\\" * 100_001 + ",["])
async def test_what_looks_like_values_within_a_text_is_text(q: str) -> None:
    read = await fields(json.dumps({"q": q, "source": "en"}), "application/json")
    assert (read.text("q"), read.text("source")) == (q, "en")


async def test_json_without_its_header_says_what_is_missing() -> None:
    with pytest.raises(Failure, match="Content-Type: application/json"):
        await fields('{"q": "Hello", "source": "en", "target": "de"}', FORM)


async def test_parts_within_a_part_are_its_content() -> None:
    inner = b"".join(
        b"--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" for _ in range(5000)
    )
    read = await fields(multipart(("q", "", inner)), "multipart/form-data; boundary=B")
    assert read.text("q") == inner.decode()


@pytest.mark.parametrize("name", [b"\xff.txt", b"a.txt\"; filename*=\"UTF-8''%FF"])
async def test_name_of_a_file_can_be_written(name: bytes) -> None:
    head = b'--B\r\nContent-Disposition: form-data; name="file"; filename="' + name + b'"\r\n\r\n'
    read = await fields(head + b"x\r\n--B--\r\n", "multipart/form-data; boundary=B")
    assert read.file("file").name.encode()


@pytest.mark.parametrize(
    "values", [{}, {"q": 1}, {"q": {"a": 1}}, {"q": ["a", 1]}, {"q": "\ud800"}, {"q": ["\udfff"]}]
)
def test_wrong_text_is_refused_by_its_name(values: dict[str, Any]) -> None:
    with pytest.raises(Failure) as refused:
        Fields(values).texts("q")
    assert refused.value.field == "q"


@pytest.mark.parametrize("value", ["-1", "6", "x", "1.5", 1.5, [1], "9" * 5000])
def test_number_out_of_bounds_is_refused(value: object) -> None:
    with pytest.raises(Failure):
        Fields({"n": value}).number("n", 5)


def test_field_without_a_value_has_its_default() -> None:
    read = Fields({"q": None})
    assert (read.text("q", "none"), read.number("n", 5), read.flag("on")) == ("none", 0, False)
    with pytest.raises(Failure):
        read.file("file")

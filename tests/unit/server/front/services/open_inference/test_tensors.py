import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.server.front.services.open_inference.tensor import Request, asking, raw_of

from seqserve.open_inference import open_inference_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.open_inference.tensors import (
    BYTES,
    FP32,
    add_output,
    packed,
    texts_of,
    unpacked,
)

ELEMENTS = st.lists(st.binary(max_size=40), max_size=8)
TEXTS = st.lists(st.text(max_size=20), min_size=1, max_size=8)


@given(ELEMENTS)
def test_packed_elements_survive_a_round_trip(elements: list[bytes]) -> None:
    assert packed(elements) == raw_of(*elements)
    assert unpacked(packed(elements), len(elements)) == elements


@given(ELEMENTS, st.data())
def test_truncated_elements_are_refused(elements: list[bytes], data: st.DataObject) -> None:
    whole = packed(elements)
    if whole:
        kept = data.draw(st.integers(0, len(whole) - 1))
        with pytest.raises(ValueError, match="ends"):
            unpacked(whole[:kept], len(elements))


@given(ELEMENTS, st.integers(1, 5))
def test_wrong_number_of_elements_is_refused(elements: list[bytes], more: int) -> None:
    with pytest.raises(ValueError, match="ends before element"):
        unpacked(packed(elements), len(elements) + more)
    with pytest.raises(ValueError, match="after element"):
        unpacked(packed([*elements, *[b"a"] * more]), len(elements))


@given(st.binary(max_size=60), st.integers(0, 6))
@example(b"\xff\xff\xff\xff", 1)
def test_any_bytes_are_unpacked_or_refused(data: bytes, count: int) -> None:
    try:
        elements = unpacked(data, count)
    except ValueError:
        return
    assert len(elements) == count
    assert packed(elements) == data


@given(TEXTS, st.booleans())
def test_both_encodings_give_the_same_texts(texts: list[str], is_flat: bool) -> None:
    shape = [len(texts)] if is_flat else [len(texts), 1]
    typed = texts_of(asking(*texts, shape=shape))
    encoded = asking(*texts, shape=shape, raw=True)
    # KServe's client adds what only HTTP needs.
    encoded.inputs[0].parameters["binary_data_size"].int64_param = 1
    raw = texts_of(encoded)
    assert typed.texts == raw.texts == texts
    assert typed.is_flat == raw.is_flat == is_flat
    assert (typed.is_raw, raw.is_raw) == (False, True)


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_outputs_are_written_in_both_encodings(shape: list[int]) -> None:
    for is_raw in (False, True):
        response = open_inference_pb2.ModelInferResponse()
        add_output(response, "words", BYTES, shape, [b"a", b""], is_raw=is_raw)
        add_output(response, "numbers", FP32, shape, [0.5, -2.0], is_raw=is_raw)
        words, numbers = response.outputs
        assert [words.name, words.datatype, list(words.shape)] == ["words", "BYTES", shape]
        assert [numbers.name, numbers.datatype, list(numbers.shape)] == ["numbers", "FP32", shape]
        if is_raw:
            assert list(response.raw_output_contents) == [
                raw_of(b"a", b""),
                struct.pack("<2f", 0.5, -2),
            ]
            assert not words.HasField("contents") and not numbers.HasField("contents")
        else:
            assert list(words.contents.bytes_contents) == [b"a", b""]
            assert list(numbers.contents.fp32_contents) == [0.5, -2.0]
            assert not response.raw_output_contents


def changed(change: Callable[[Any], object], *texts: str | bytes, raw: bool = False) -> Request:
    request = asking(*(texts or ("a", "b")), raw=raw)
    change(request)
    return request


def with_contents(request: Any) -> None:
    request.inputs[0].contents.bytes_contents.append(b"a")


WRONG = {
    "no input": (changed(lambda request: request.ClearField("inputs")), "inputs", "has 0 tensors"),
    "another input": (
        changed(lambda request: request.inputs.add(name="other")),
        "inputs",
        "'other'",
    ),
    "an input of a long name": (
        changed(lambda request: setattr(request.inputs[0], "name", "x" * 9999)),
        "inputs",
        "'xxx",
    ),
    "the input twice": (
        changed(lambda request: request.inputs.add(name="text")),
        "inputs",
        "has 2 tensors",
    ),
    "another type": (
        changed(lambda request: setattr(request.inputs[0], "datatype", "FP32")),
        "inputs.text.datatype",
        "'BYTES'",
    ),
    "shared memory": (
        changed(lambda request: request.inputs[0].parameters["shared_memory_region"]),
        "inputs.text.parameters",
        "'shared_memory_region'",
    ),
    "no shape": (changed(lambda request: request.inputs[0].shape.pop()), "inputs.text.shape", "[]"),
    "no texts": (asking(shape=[0]), "inputs.text.shape", "[0]"),
    "below nothing": (asking("a", shape=[-1]), "inputs.text.shape", "[-1]"),
    "two in a row": (asking("a", "b", shape=[1, 2]), "inputs.text.shape", "[1, 2]"),
    "more than two sizes": (asking("a", shape=[1, 1, 1]), "inputs.text.shape", "[1, 1, 1]"),
    "very many sizes": (asking("a", shape=[1] * 9999), "inputs.text.shape", "[1, 1, 1, 1, …]"),
    "more texts than a call takes": (
        asking(*["a"] * 1025),
        "inputs.text.shape",
        "N from 1 to 1024",
    ),
    "fewer typed than the shape says": (
        asking("a", shape=[2]),
        "inputs.text.contents.bytes_contents",
        "has 1 elements; the shape says 2",
    ),
    "more typed than the shape says": (
        asking("a", "b", shape=[1]),
        "inputs.text.contents.bytes_contents",
        "has 2",
    ),
    "no elements at all": (
        changed(lambda request: request.inputs[0].ClearField("contents")),
        "inputs.text.contents.bytes_contents",
        "has 0",
    ),
    "elements of another type": (
        changed(lambda request: request.inputs[0].contents.int_contents.append(1)),
        "inputs.text.contents",
        "int_contents",
    ),
    "both encodings": (
        changed(with_contents, raw=True),
        "raw_input_contents",
        "send one of the two",
    ),
    "raw for two inputs": (
        changed(lambda request: request.raw_input_contents.append(b""), raw=True),
        "raw_input_contents",
        "has 2",
    ),
    "raw cut short": (
        changed(
            lambda request: request.raw_input_contents.__setitem__(0, b"\5\0\0\0abc"), raw=True
        ),
        "raw_input_contents[0]",
        "ends within element 0, which has 5 bytes",
    ),
    "raw with a rest": (asking("a", "b", shape=[1], raw=True), "raw_input_contents[0]", "5 bytes"),
    "raw not UTF-8": (asking("a", b"\xc3\x28", raw=True), "inputs.text[1]", "UTF-8"),
    "typed not UTF-8": (asking(b"\xff"), "inputs.text[0]", "UTF-8"),
}


@pytest.mark.parametrize(("request_", "field", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_field_is_named(request_: Request, field: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        texts_of(request_)
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert len(str(caught.value)) < 300

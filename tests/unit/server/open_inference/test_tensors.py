import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.server.open_inference.tensor import Request, asking, raw_of

from seqserve.open_inference import open_inference_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.open_inference.tensors import (
    BYTES,
    FP32,
    add_output,
    config_of,
    metadata_of,
    outputs_of,
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


TENSOR, RAW = "inputs.text", "raw_input_contents"
CONTENTS, SHAPE = f"{TENSOR}.contents", f"{TENSOR}.shape"
WRONG = {
    "no input": (changed(lambda asked: asked.ClearField("inputs")), "inputs", "has 0 tensors"),
    "another input": (changed(lambda asked: asked.inputs.add(name="other")), "inputs", "'other'"),
    "an input of a long name": (
        changed(lambda asked: setattr(asked.inputs[0], "name", "x" * 9999)),
        "inputs",
        "'xxx",
    ),
    "twice": (changed(lambda asked: asked.inputs.add(name="text")), "inputs", "has 2 tensors"),
    "another type": (
        changed(lambda asked: setattr(asked.inputs[0], "datatype", "FP32")),
        f"{TENSOR}.datatype",
        "'BYTES'",
    ),
    "shared memory": (
        changed(lambda asked: asked.inputs[0].parameters["shared_memory_region"]),
        f"{TENSOR}.parameters",
        "'shared_memory_region'",
    ),
    "no shape": (changed(lambda asked: asked.inputs[0].shape.pop()), SHAPE, "[]"),
    "no texts": (asking(shape=[0]), SHAPE, "[0]"),
    "below nothing": (asking("a", shape=[-1]), SHAPE, "[-1]"),
    "two in a row": (asking("a", "b", shape=[1, 2]), SHAPE, "[1, 2]"),
    "more than two sizes": (asking("a", shape=[1, 1, 1]), SHAPE, "[1, 1, 1]"),
    "very many sizes": (asking("a", shape=[1] * 9999), SHAPE, "[1, 1, 1, 1, …]"),
    "more texts than a call takes": (asking(*["a"] * 1025), SHAPE, "N from 1 to 1024"),
    "fewer typed than the shape says": (
        asking("a", shape=[2]),
        f"{CONTENTS}.bytes_contents",
        "has 1 elements; the shape says 2",
    ),
    "more typed than it says": (asking(*"ab", shape=[1]), f"{CONTENTS}.bytes_contents", "has 2"),
    "no elements at all": (
        changed(lambda asked: asked.inputs[0].ClearField("contents")),
        f"{CONTENTS}.bytes_contents",
        "has 0",
    ),
    "elements of another type": (
        changed(lambda asked: asked.inputs[0].contents.int_contents.append(1)),
        CONTENTS,
        "int_contents",
    ),
    "both encodings": (changed(with_contents, raw=True), RAW, "send one of the two"),
    "raw for two inputs": (
        changed(lambda asked: asked.raw_input_contents.append(b""), raw=True),
        RAW,
        "has 2",
    ),
    "raw cut short": (
        changed(lambda asked: asked.raw_input_contents.__setitem__(0, b"\5\0\0\0abc"), raw=True),
        f"{RAW}[0]",
        "ends within element 0, which has 5 bytes",
    ),
    "raw with a rest": (asking("a", "b", shape=[1], raw=True), f"{RAW}[0]", "5 bytes"),
    "raw not UTF-8": (asking("a", b"\xc3\x28", raw=True), f"{TENSOR}[1]", "UTF-8"),
    "typed not UTF-8": (asking(b"\xff"), f"{TENSOR}[0]", "UTF-8"),
}


@pytest.mark.parametrize(("request_", "field", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_field_is_named(request_: Request, field: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        texts_of(request_)
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert len(str(caught.value)) < 300


NAMES = ["text", "score", "normalized_score", "stop_reason"]


def test_metadata_and_configuration_agree() -> None:
    metadata, config = metadata_of("echo", [2, 10]), config_of("echo")
    assert (metadata.name, list(metadata.versions)) == ("echo", ["2", "10"])
    assert config.name == "echo"
    assert metadata.platform == config.platform == "onnx_onnxv1"
    types = {"TYPE_STRING": "BYTES", "TYPE_FP32": "FP32"}
    name_of = open_inference_pb2.DataType.Name
    for described, configured in (
        (metadata.inputs, config.input),
        (metadata.outputs, config.output),
    ):
        assert [tensor.name for tensor in described] == [tensor.name for tensor in configured]
        for tensor, other in zip(described, configured, strict=True):
            assert tensor.datatype == types[name_of(other.data_type)]
            assert list(tensor.shape) == [-1, *other.dims]
    assert [tensor.name for tensor in metadata.inputs] == ["text"]
    assert [tensor.name for tensor in metadata.outputs] == NAMES
    assert config.max_batch_size == 1024


def test_requested_outputs_keep_their_order() -> None:
    assert [output.name for output in outputs_of(asking("a"))] == NAMES
    wanted = outputs_of(asking("a", outputs=["score", "text", "score"]))
    assert [output.name for output in wanted] == ["score", "text"]


def test_unknown_output_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="outputs: 'logits' is unknown; choose from text"):
        outputs_of(asking("a", outputs=["text", "logits"]))
    with pytest.raises(InvalidRequest) as caught:
        outputs_of(asking("a", outputs=["x" * 9999]))
    assert len(str(caught.value)) < 300


def test_parameter_of_an_output_is_refused() -> None:
    request = asking("a", outputs=["score"])
    request.outputs[0].parameters["classification"].int64_param = 3
    with pytest.raises(InvalidRequest) as caught:
        outputs_of(request)
    assert caught.value.field == "outputs.score.parameters"
    assert "'classification'" in caught.value.reason

import pytest
from tests.unit.server.front.services.open_inference.tensor import asking

from seqserve.open_inference import open_inference_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.open_inference.tensors import config_of, metadata_of, outputs_of

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

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from tests.device_requests import WAYS, decode
from tests.graph_nodes import nodes_of
from tests.unit.server.engine.gpu.halved_artifact import halved_artifact
from tests.unit.server.engine.gpu.host_device import on_device, on_host

from seqserve_server.engine.gpu.graphs import CHOSEN, PLAIN, SCORED, End, unbranched_graph

ARTIFACTS = ["tiny_artifact", "tiny_fp16_artifact", "tiny_ssru_artifact"]
ENDS = {"plain": PLAIN, "chosen": CHOSEN, "scored": SCORED}


@pytest.fixture(params=ARTIFACTS)
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def made(folder: Path, end: End) -> bytes:
    return unbranched_graph(folder / "decoder.onnx", end)


@pytest.mark.parametrize("end", ENDS)
def test_it_has_no_branches_and_computes_its_end_alone(folder: Path, end: str) -> None:
    whole = onnx.load(folder / "decoder.onnx", load_external_data=False).graph
    graph = onnx.load_from_string(made(folder, ENDS[end])).graph
    assert "If" not in {node.op_type for node in nodes_of(graph)}
    caches = {value.name for value in whole.output if value.name.startswith("new_")}
    assert {value.name for value in graph.output} == {*ENDS[end].outputs, *caches}
    assert {value.name for value in graph.input} < {value.name for value in whole.input}
    read = {name for node in graph.node for name in node.input}
    assert {value.name for value in graph.input} <= read, "nothing is sent that no node reads"


@pytest.mark.parametrize("end", ENDS)
def test_onnx_runtime_opens_it(folder: Path, end: str) -> None:
    options = ort.SessionOptions()
    key = "session.model_external_initializers_file_folder_path"
    options.add_session_config_entry(key, str(folder))
    providers = ["CPUExecutionProvider"]
    session = ort.InferenceSession(made(folder, ENDS[end]), options, providers=providers)
    assert {output.name for output in session.get_outputs()} >= set(ENDS[end].outputs)


def test_only_the_end_that_lists_top_tokens_looks_for_them_in_blocks(folder: Path) -> None:
    for end in (PLAIN, CHOSEN):
        kinds = [node.op_type for node in onnx.load_from_string(made(folder, end)).graph.node]
        assert kinds.count("ArgMax") == 1 and not {"ReduceMax", "TopK"} & set(kinds)
    assert "TopK" in {
        node.op_type for node in onnx.load_from_string(made(folder, SCORED)).graph.node
    }


@pytest.mark.slow
def test_biases_of_positions_need_no_number_of_the_host(tmp_path: Path) -> None:
    folder = halved_artifact("alibi-swiglu", tmp_path)
    graph = onnx.load_from_string(unbranched_graph(folder / "decoder.onnx", PLAIN)).graph
    assert "target_positions" in {value.name for value in graph.input}
    readers = [node.op_type for node in graph.node if "max_length" in node.input]
    assert set(readers) == {"GroupQueryAttention"}
    device = on_device(folder)[0]
    host = on_host(folder)
    requests = [(source, way) for source in ([5, 6, 7, 2], [9, 2]) for way in WAYS.values()]
    mine, theirs = (decode(runtime, folder, requests, 7) for runtime in (device, host))
    # Tokens of random weights may tie.
    same = [
        one.best.token_ids == other.best.token_ids for one, other in zip(mine, theirs, strict=True)
    ]
    assert sum(same) >= 0.8 * len(requests)

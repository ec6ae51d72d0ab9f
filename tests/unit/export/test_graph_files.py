from collections import defaultdict
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnxscript import ir
from tests.graph_nodes import nodes_of

from seqserve_export.graph_files import WeightsFile, move_weights
from seqserve_export.tracing import ATTENTION_OPSET
from seqserve_server.artifact.manifest import WEIGHTS

GRAPHS = ["encoder.onnx", "decoder.onnx", "scorer.onnx"]

# Smaller constants stay in their graph.
LEAST_BYTES = 1024


@pytest.fixture(scope="module", params=["tiny_artifact", "tiny_int8_artifact"])
def artifact(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def graphs(artifact: Path) -> dict[str, onnx.ModelProto]:
    return {name: onnx.load(str(artifact / name), load_external_data=False) for name in GRAPHS}


def external(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def stored(graphs: dict[str, onnx.ModelProto]) -> list[tuple[str, int, int]]:
    """Lists name, offset and length of every weight that lies in the common file."""
    places = []
    for graph in graphs.values():
        for tensor in graph.graph.initializer:
            if tensor.data_location == TensorProto.EXTERNAL:
                place = external(tensor)
                places.append((tensor.name, int(place["offset"]), int(place["length"])))
    return places


def test_external_data_lies_within_the_one_file(
    graphs: dict[str, onnx.ModelProto], artifact: Path
) -> None:
    size = (artifact / WEIGHTS).stat().st_size
    weights = stored(graphs)
    assert len(weights) > 20
    for name, offset, length in weights:
        assert 0 <= offset < offset + length <= size, name
        assert offset % 64 == 0, name
    for graph in graphs.values():
        for tensor in graph.graph.initializer:
            assert external(tensor).get("location", WEIGHTS) == WEIGHTS


def test_no_weight_is_stored_twice(graphs: dict[str, onnx.ModelProto], artifact: Path) -> None:
    data = (artifact / WEIGHTS).read_bytes()
    places = defaultdict(set)
    for _, offset, length in stored(graphs):
        places[data[offset : offset + length]].add(offset)
    assert {len(offsets) for offsets in places.values()} == {1}
    for content in places:
        assert data.count(content) == 1


def test_steps_have_a_tied_weight_once(graphs: dict[str, onnx.ModelProto]) -> None:
    for name in GRAPHS[:2]:
        weights = [
            (external(tensor)["offset"], tensor.data_type, *tensor.dims)
            for tensor in graphs[name].graph.initializer
            if tensor.data_location == TensorProto.EXTERNAL
        ]
        assert len(weights) == len(set(weights)) > 5, name


def test_large_constants_lie_outside_the_graphs(graphs: dict[str, onnx.ModelProto]) -> None:
    for graph in graphs.values():
        for tensor in graph.graph.initializer:
            assert len(tensor.raw_data) < LEAST_BYTES, tensor.name
        for node in graph.graph.node:
            for attribute in node.attribute:
                assert len(attribute.t.raw_data) < LEAST_BYTES, node.name


def test_file_holds_the_weights_and_little_else(
    graphs: dict[str, onnx.ModelProto], artifact: Path
) -> None:
    intervals = sorted({(offset, offset + length) for _, offset, length in stored(graphs)})
    covered, end = 0, 0
    for start, stop in intervals:
        assert start - end < 4096, "a gap of more than the rest of a page"
        covered += max(0, stop - max(start, end))
        end = max(end, stop)
    assert end == (artifact / WEIGHTS).stat().st_size
    # Every weight of the scorer once; what is packed for the others is made of the same.
    scorer = {(o, n) for _, o, n in stored({"scorer.onnx": graphs["scorer.onnx"]})}
    assert covered <= sum(length for _, length in scorer) + 8 * 4096


def test_files_name_no_path_of_the_machine(artifact: Path) -> None:
    here = str(Path(__file__).parents[3]).encode()
    for name in GRAPHS:
        content = (artifact / name).read_bytes()
        for trace in (here, b"/home", b"/usr", b".py", b"site-packages", b"File "):
            assert trace not in content, f"{name} contains {trace!r}"


def test_graphs_need_what_the_manifest_says(graphs: dict[str, onnx.ModelProto]) -> None:
    versions = [
        {entry.domain: entry.version for entry in graph.opset_import} for graph in graphs.values()
    ]
    assert max(each[""] for each in versions) == ATTENTION_OPSET
    assert {domain for each in versions for domain in each} == {"", "com.microsoft"}


def test_rounded_projections_are_products_of_integers(tiny_int8_artifact: Path) -> None:
    for name in GRAPHS[:2]:
        graph = onnx.load(str(tiny_int8_artifact / name), load_external_data=False).graph
        operators = {node.op_type for node in graph.node}
        assert "MatMulIntegerToFloat" in operators
        assert not operators & {"Gemm", "MatMul"}, name


def branches_of(graph: onnx.GraphProto, condition: str) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """Gives what runs if the condition is true, and if not."""
    [choice] = [node for node in graph.node if node.op_type == "If"]
    assert list(choice.input) == [condition]
    branches = {attribute.name: attribute.g for attribute in choice.attribute}
    return branches["then_branch"], branches["else_branch"]


def test_steps_run_no_node_of_options_that_no_row_has(graphs: dict[str, onnx.ModelProto]) -> None:
    decoder = graphs["decoder.onnx"].graph
    with_options, plain = branches_of(decoder, "has_options")
    whole, limited = branches_of(with_options, "has_rows")
    scored, full = branches_of(whole, "only_scores")
    others, lists = {"If", "Gather"}, {"LogSoftmax", "TopK"}
    ends = (full, scored, limited, plain)
    operators = [{node.op_type for node in nodes_of(end)} for end in ends]
    assert [kinds & (others | lists) for kinds in operators] == [
        *(others | lists, lists, {"Gather"}, set())
    ]
    options = {"top_k", "num_logits", "allowed_tokens"}
    assert not options & {name for node in decoder.node for name in node.input}


def test_logits_are_masked_once_before_the_branches(graphs: dict[str, onnx.ModelProto]) -> None:
    decoder = graphs["decoder.onnx"].graph
    # In a branch it would copy them.
    [mask] = [node for node in nodes_of(decoder) if node.op_type == "ScatterElements"]
    assert mask in decoder.node


def test_rounded_weights_are_laid_out_as_torch_does(tiny_int8_artifact: Path) -> None:
    """A part of a joined weight is found in it, and tokens are rows of the output projection."""
    for name in [*GRAPHS, "candidates.onnx"]:
        graph = onnx.load(str(tiny_int8_artifact / name), load_external_data=False).graph
        rounded = {t.name for t in graph.initializer if t.data_type == TensorProto.INT8 and t.dims}
        readers = {node.op_type for node in nodes_of(graph) if rounded & set(node.input)}
        assert readers == ({"Gather"} if name == "candidates.onnx" else {"Transpose"})


def graph_of(**arrays: np.ndarray) -> ir.Graph:
    constants = [
        ir.Value(name=name, const_value=ir.tensor(array, name=name))
        for name, array in arrays.items()
    ]
    return ir.Graph([], [], nodes=[], initializers=constants, name="g")


def place(graph: ir.Graph, name: str) -> tuple[str, int | None, int | None]:
    tensor = graph.initializers[name].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    return str(tensor.location), tensor.offset, tensor.length


def test_part_of_a_packed_weight_is_found_in_it() -> None:
    parts = np.random.default_rng(1).normal(size=(3, 32, 32)).astype(np.float32)
    file = BytesIO()
    weights = WeightsFile(file)
    first, second = graph_of(packed=parts.reshape(96, 32)), graph_of(part=parts[1])
    move_weights(first, weights)
    move_weights(second, weights)
    assert file.getvalue() == parts.tobytes()
    assert place(second, "part") == (WEIGHTS, 4096, 4096)


def test_weight_begins_on_a_page_and_is_written_once() -> None:
    file = BytesIO()
    weights = WeightsFile(file)
    array = np.arange(1025, dtype=np.float32)
    assert [weights.place(array + number) for number in (0, 1, 0)] == [0, 8192, 0]
    assert file.getvalue()[8192:] == (array + 1).tobytes()


def test_part_where_no_number_may_begin_is_written_apart() -> None:
    parts = np.arange(3 * 300, dtype=np.float32).reshape(
        3, 300
    )  # of 1,200 bytes: no multiple of 64
    file = BytesIO()
    weights = WeightsFile(file)
    weights.place(parts)
    assert weights.place(parts[1:2]) == 4096


def test_small_constants_stay_in_their_graph() -> None:
    file = BytesIO()
    graph = graph_of(small=np.zeros(255, np.float32))
    move_weights(graph, WeightsFile(file))
    assert not file.getvalue()
    assert not isinstance(graph.initializers["small"].const_value, ir.ExternalTensor)

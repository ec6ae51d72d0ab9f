"""Makes a graph whose steps are given the weights of candidates, from the graph of a decoder step.

A step that gathers the weights of the candidates anew, and turns them as its product likes them,
takes longer for that than for the product. Candidates change only when rows join or leave. So the
weights become inputs, which are kept from step to step, and what gathered them a graph of its own,
which runs when a request joins. The product stays as it was: the same bits.

It has for each group of candidates the rows that choose among them, in place of all rows. A product
of few rows takes as long as reading its weights, and the groups of a row are few.

One of eight bits is divided into a product of integers, which has a kernel for a single row, and
what makes floats of it: the same bits, as integers are summed exactly.

Where no row is projected onto the whole vocabulary, a branch of the graph computes the logits of
candidates and nothing else. Steps without options do not ask for it, and cost what they did.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqserve_server.engine.graph_messages import (
    GRAPH,
    MODEL,
    NUMPY_TYPES,
    TENSOR,
    branches_of,
    copied,
    graphs_of,
    make_node,
    make_value,
    needed,
    put,
    reads,
    rename,
)

KEPT = "kept_"
"""Before the number of a table: the input that a step is given of it."""

_TOKENS, _LOGITS, _ROWS = "allowed_tokens", "allowed_logits", "projected_rows"
_ROWS_OF_GROUPS = "allowed_rows"
_PRODUCT = "MatMulIntegerToFloat"
_FLOAT, _INT8, _INT32, _INT64, _BOOL = 1, 3, 6, 7, 9


class Table(NamedTuple):
    """Weights of every token, of which a step is given those of candidates."""

    input: str
    """Of the step's graph, and the output of the one that gathers them."""
    shape: tuple[int, int]
    """Of a group: ``[64, N]``, or ``[N, 64]`` where it is turned."""
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Of all weights of a group."""
        return self.dtype.itemsize * math.prod(self.shape)


class CandidateGraph(NamedTuple):
    """A graph, and what its steps are given besides the inputs of the decoder's."""

    graph: bytes
    gather: bytes | None
    """The graph that gathers the weights of groups of tokens; None where a step does."""
    tables: list[Table]


def candidate_graph(
    path: Path, masked: bytes | None = None, *, keeps: bool = True
) -> CandidateGraph | None:
    """Makes the graph from a ``decoder.onnx`` whose references have been checked.

    Args:
        path: The file.
        masked: What :func:`~seqserve_server.engine.masked_graph.masked_graph` made of it.
        keeps: Whether weights are kept from step to step; if not, each step gathers them.

    Returns:
        None where the graph has no such part.
    """
    model = MODEL.FromString(path.read_bytes() if masked is None else masked)
    graph = model.graph
    parts = [part for part in graphs_of(graph) if any(map(_gathers, part.nodes))]
    if len(parts) != 1 or any(map(_gathers, graph.nodes)):
        return None
    [part] = parts
    tensors = {tensor.name: tensor for inner in graphs_of(graph) for tensor in inner.tensors}
    [tokens] = [value for value in graph.inputs if value.name == _TOKENS]
    _gather_rows(part)
    graph.inputs.append(make_value(_ROWS_OF_GROUPS, _INT64, ("groups", "rows_of_group")))
    for value in graph.outputs:
        if value.name == _LOGITS:
            value.type.tensor.shape.dims[0].ClearField("name")
    put(graph, known_shapes=[])
    if not keeps:
        return CandidateGraph(model.SerializeToString(), None, [])
    group = tokens.type.tensor.shape.dims[1].size
    gathered = [(node.inputs[0], node.outputs[0]) for node in part.nodes if _gathers(node)]
    results: dict[str, Any] = {}
    for view, rows in gathered:
        tensor = tensors.get(_source(part, view), TENSOR())
        if tensor.kind not in NUMPY_TYPES or not tensor.dims:
            return None
        result, is_turned = _turned(part, rows)
        width = math.prod(tensor.dims[1:])
        shape = (width, group) if is_turned else (group, width)
        results[result] = make_value(f"{KEPT}{len(results)}", tensor.kind, ("groups", *shape))
    results = _divide_product(part, results, tensors)
    before = list(part.nodes)
    gather = MODEL.FromString(model.SerializeToString())
    _limit_to_weights(gather.graph, before, results, tensors, tokens)
    for result, value in results.items():
        put(part, nodes=[node for node in part.nodes if result not in node.outputs])
        rename(part.nodes, result, value.name)
        graph.inputs.append(value)
    put(part, nodes=needed(part.nodes, [value.name for value in part.outputs]))
    _branch(graph, part, tensors)
    tables = [_table(value) for value in results.values()]
    return CandidateGraph(model.SerializeToString(), gather.SerializeToString(), tables)


def _table(value: Any) -> Table:
    _, rows, columns = (dim.size for dim in value.type.tensor.shape.dims)
    return Table(value.name, (rows, columns), np.dtype(NUMPY_TYPES[value.type.tensor.kind]))


def _gather_rows(part: Any) -> None:
    """Lets the product read the features of each group's rows ``[G, M, W]``: of none, if no group.

    Before, it read those of all rows ``[1, B, W]``, which a slice emptied where there was no group.
    """
    [logits] = [value.name for value in part.outputs if value.name.endswith(_LOGITS)]
    [emptied] = [node for node in needed(part.nodes, [logits]) if node.kind == "Slice"]
    features = _source(part, emptied.inputs[0])
    of_groups = make_node("Gather", [features, _ROWS_OF_GROUPS], list(emptied.outputs), axis=0)
    nodes = [of_groups if node is emptied else node for node in part.nodes]
    put(part, nodes=needed(nodes, [value.name for value in part.outputs]))


def _divide_product(part: Any, results: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """Lets a product of int8 weights ``[G, W, 64]`` sum integers, and scales their sums behind it.

    What the zero point of the inputs adds to each sum depends on the candidate alone.

    Returns:
        What a step is given, by the names in the part; one more where there is such a product.
    """
    products = [node for node in part.nodes if node.kind == _PRODUCT and node.inputs[1] in results]
    if len(products) != 1:
        return results
    [product] = products
    inputs, weights, input_scale, scales, zero_point = product.inputs
    kept = results[weights].type.tensor
    _, width, group = (dim.size for dim in kept.shape.dims)
    if kept.kind != _INT8:
        return results
    row = TENSOR(name="product.row", dims=[2], kind=_INT64, raw=np.array([1, width]).tobytes())
    tensors[row.name] = row
    divided = [
        make_node("Expand", [zero_point, row.name], ["product.zeros"]),
        make_node("MatMulInteger", ["product.zeros", weights], ["product.zero_sums"]),
        make_node("Mul", [scales, input_scale], ["product.scales"]),
        make_node("MatMulInteger", [inputs, weights], ["product.sums"]),
        make_node("Sub", ["product.sums", "product.zero_sums"], ["product.differences"]),
        make_node("Cast", ["product.differences"], ["product.floats"], to=_FLOAT),
        make_node("Mul", ["product.floats", "product.scales"], list(product.outputs)),
    ]
    place = list(part.nodes).index(product)
    put(part, nodes=[*part.nodes[:place], *divided, *part.nodes[place + 1 :]])
    given = {"product.scales" if name == scales else name: each for name, each in results.items()}
    added = make_value(f"{KEPT}{len(given)}", _INT32, ("groups", 1, group))
    return {**given, "product.zero_sums": added}


def _limit_to_weights(
    graph: Any,
    nodes: Iterable[Any],
    results: Mapping[str, Any],
    tensors: dict[str, Any],
    tokens: Any,
) -> None:
    """Leaves of a graph the nodes that give the weights of candidates."""
    kept = copied(needed(nodes, list(results)))
    for result, value in results.items():
        rename(kept, result, value.name)
    read = {name for node in kept for name in node.inputs}
    weights = [tensors[name] for name in sorted(read & tensors.keys())]
    outputs = results.values()
    put(graph, nodes=kept, tensors=weights, inputs=[tokens], outputs=outputs, known_shapes=[])


def _branch(graph: Any, part: Any, tensors: dict[str, Any]) -> None:
    """Lets a step with options compute the logits of candidates alone where no row is projected."""
    [end] = [node for node in graph.nodes if _LOGITS in node.outputs]
    [outer] = [inner for inner in branches_of(end) if any(map(_is_given, inner.nodes))]
    types = {value.name: value.type for value in graph.outputs}
    names = [value.name for value in outer.outputs]
    limited = GRAPH(name="limited")
    for name, value in zip(names, end.outputs, strict=True):
        limited.outputs.add(name=f"limited.{name}", type=types[value])
        if value != _LOGITS:
            limited.tensors.append(_empty(limited.outputs[-1]))
    nodes = copied(part.nodes)
    [logits] = [value.name for value in part.outputs if value.name.endswith(_LOGITS)]
    [result] = [value.name for value in limited.outputs if value.name.endswith(_LOGITS)]
    rename(nodes, logits, result)
    limited.nodes.extend(needed(nodes, [result]))
    read = {name for node in limited.nodes for name in reads(node)}
    known = {tensor.name for tensor in graph.tensors}
    limited.tensors.extend(tensors[name] for name in sorted(read & tensors.keys() - known))

    whole = GRAPH.FromString(outer.SerializeToString())
    for value in whole.outputs:
        rename(whole.nodes, value.name, f"whole.{value.name}")
        value.name = f"whole.{value.name}"
    branches = [
        make_node("Shape", [_ROWS], ["count_of_rows"]),
        make_node("Cast", ["count_of_rows"], ["has_rows"], to=_BOOL),
        make_node("If", ["has_rows"], names, then_branch=whole, else_branch=limited),
    ]
    put(outer, nodes=branches, tensors=[], known_shapes=[])


def _gathers(node: Any) -> bool:
    return bool(node.kind == "Gather" and node.inputs[1] == _TOKENS)


def _is_given(node: Any) -> bool:
    return any(name.startswith(KEPT) for name in reads(node))


def _source(part: Any, name: str) -> str:
    """Finds what a value is a view of, which has one axis less, or is the value itself."""
    for node in part.nodes:
        if node.kind == "Unsqueeze" and name in node.outputs:
            return node.inputs[0]  # type: ignore[no-any-return]
    return name


def _turned(part: Any, rows: str) -> tuple[str, bool]:
    """Finds what the product reads of gathered rows, and whether their groups are turned for it."""
    readers = [node for node in part.nodes if rows in reads(node)]
    if len(readers) == 1 and readers[0].kind == "Transpose":
        return readers[0].outputs[0], True
    return rows, False


def _empty(value: Any) -> Any:
    """Makes a tensor of no row in the place of an output."""
    dims = [dim.size if dim.HasField("size") else 0 for dim in value.type.tensor.shape.dims]
    return TENSOR(name=value.name, dims=dims, kind=value.type.tensor.kind, raw=b"")

"""Makes the weights of candidates inputs of a step, and gathers them in a separate graph.

If each step gathered the weights of the candidates and transposed them for its product, that would
take longer than the product. Candidates change only when rows join or leave. So the weights become
inputs, which are kept from step to step, and the gathering nodes become ``candidates.onnx``, which
runs when a request joins. The product stays as it was: the same bits.

It has for each group of candidates the rows that choose among them, in place of all rows. A product
of few rows takes as long as reading its weights, and the groups of a row are few.

A product in eight bits is divided into a product of integers, which has a kernel for a single row,
and the conversion to floats: the same bits, because sums of integers are exact.

Where no row is projected onto the whole vocabulary, a branch of the graph computes the logits of
candidates and nothing else. Steps without options do not ask for it, and cost what they did.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper
from onnx.helper import make_node, make_tensor_value_info

from seqserve_export.graph_edits import (
    branches_of,
    copied,
    dims_of,
    graphs_of,
    needed,
    reads,
    rename,
    replace,
    tensors_of,
)
from seqserve_server.engine.step import KEPT

_TOKENS, _LOGITS, _ROWS = "allowed_tokens", "allowed_logits", "projected_rows"
_ROWS_OF_GROUPS = "allowed_rows"
_PRODUCT = "MatMulIntegerToFloat"


def candidate_graphs(
    decoder: ModelProto, *, keeps: bool = True
) -> tuple[ModelProto, ModelProto | None]:
    """Makes the graph of a step, and the one that gathers weights, from a traced decoder.

    Args:
        keeps: Whether weights are kept from step to step; if not, each step gathers them.
    """
    model = ModelProto()
    model.CopyFrom(decoder)
    graph = model.graph
    [part] = [part for part in graphs_of(graph) if any(map(_gathers, part.node))]
    tensors = tensors_of(graph)
    [tokens] = [value for value in graph.input if value.name == _TOKENS]
    _gather_rows(part)
    shape = ("groups", "rows_of_group")
    graph.input.append(make_tensor_value_info(_ROWS_OF_GROUPS, TensorProto.INT64, shape))
    for value in graph.output:
        if value.name == _LOGITS:
            dims_of(value)[0].ClearField("dim_param")
    replace(graph, value_info=[])
    if not keeps:
        return model, None
    given = _divide_product(part, _given(part, tensors, tokens), tensors)
    gather = ModelProto()
    gather.CopyFrom(model)
    _limit_to_weights(gather.graph, part.node, given, tensors, tokens)
    for result, value in given.items():
        replace(part, node=[node for node in part.node if result not in node.output])
        rename(part.node, result, value.name)
        graph.input.append(value)
    replace(part, node=needed(part.node, _names(part.output)))
    _branch(graph, part, tensors)
    return model, gather


def _gather_rows(part: GraphProto) -> None:
    """Lets the product read the features of each group's rows ``[G, M, W]``: of none, if no group.

    Before, it read the outputs of all rows ``[1, B, W]``, which a slice emptied without groups.
    """
    [logits] = [name for name in _names(part.output) if name.endswith(_LOGITS)]
    [emptied] = [node for node in needed(part.node, [logits]) if node.op_type == "Slice"]
    features = _source(part, emptied.input[0])
    of_groups = make_node("Gather", [features, _ROWS_OF_GROUPS], list(emptied.output), axis=0)
    nodes = [of_groups if node is emptied else node for node in part.node]
    replace(part, node=needed(nodes, _names(part.output)))


def _given(
    part: GraphProto, tensors: Mapping[str, TensorProto], tokens: ValueInfoProto
) -> dict[str, ValueInfoProto]:
    """Declares what a step is given of each table, by the names that the product reads it by."""
    group = dims_of(tokens)[1].dim_value
    given: dict[str, ValueInfoProto] = {}
    for node in filter(_gathers, part.node):
        table = tensors[_source(part, node.input[0])]
        width = math.prod(table.dims[1:])
        result, is_turned = _turned(part, node.output[0])
        shape = ("groups", width, group) if is_turned else ("groups", group, width)
        given[result] = make_tensor_value_info(f"{KEPT}{len(given)}", table.data_type, shape)
    return given


def _divide_product(
    part: GraphProto, given: dict[str, ValueInfoProto], tensors: dict[str, TensorProto]
) -> dict[str, ValueInfoProto]:
    """Makes a product of int8 weights ``[G, W, 64]`` sum integers, and scales the sums afterwards.

    The zero point of the inputs adds a term to each sum, which depends only on the candidate.

    Returns:
        The inputs of a step, by the names in the part; one more with such a product.
    """
    products = [node for node in part.node if node.op_type == _PRODUCT and node.input[1] in given]
    if len(products) != 1:
        return given
    [product] = products
    inputs, weights, input_scale, scales, zero_point = product.input
    _, width, group = (dim.dim_value for dim in dims_of(given[weights]))
    if given[weights].type.tensor_type.elem_type != TensorProto.INT8:
        return given
    row = numpy_helper.from_array(np.array([1, width]), "product.row")
    tensors[row.name] = row
    divided = [
        make_node("Expand", [zero_point, row.name], ["product.zeros"]),
        make_node("MatMulInteger", ["product.zeros", weights], ["product.zero_sums"]),
        make_node("Mul", [scales, input_scale], ["product.scales"]),
        make_node("MatMulInteger", [inputs, weights], ["product.sums"]),
        make_node("Sub", ["product.sums", "product.zero_sums"], ["product.differences"]),
        make_node("Cast", ["product.differences"], ["product.floats"], to=TensorProto.FLOAT),
        make_node("Mul", ["product.floats", "product.scales"], list(product.output)),
    ]
    place = list(part.node).index(product)
    replace(part, node=[*part.node[:place], *divided, *part.node[place + 1 :]])
    given = {"product.scales" if name == scales else name: each for name, each in given.items()}
    shape = ("groups", 1, group)
    sums = make_tensor_value_info(f"{KEPT}{len(given)}", TensorProto.INT32, shape)
    return {**given, "product.zero_sums": sums}


def _limit_to_weights(
    graph: GraphProto,
    nodes: Iterable[NodeProto],
    given: Mapping[str, ValueInfoProto],
    tensors: Mapping[str, TensorProto],
    tokens: ValueInfoProto,
) -> None:
    kept = copied(needed(nodes, list(given)))
    for result, value in given.items():
        rename(kept, result, value.name)
    read = {name for node in kept for name in node.input}
    weights = [tensors[name] for name in sorted(read & tensors.keys())]
    replace(
        graph, node=kept, initializer=weights, input=[tokens], output=given.values(), value_info=[]
    )


def _branch(graph: GraphProto, part: GraphProto, tensors: Mapping[str, TensorProto]) -> None:
    """Adds a branch that skips the full projection where every row has candidates."""
    [end] = [node for node in graph.node if _LOGITS in node.output]
    [outer] = [inner for inner in branches_of(end) if any(map(_is_given, inner.node))]
    types = {value.name: value.type for value in graph.output}
    names = _names(outer.output)
    limited = GraphProto(name="limited")
    for name, value in zip(names, end.output, strict=True):
        limited.output.add(name=f"limited.{name}", type=types[value])
        if value != _LOGITS:
            limited.initializer.append(_empty(limited.output[-1]))
    nodes = copied(part.node)
    [logits] = [name for name in _names(part.output) if name.endswith(_LOGITS)]
    [result] = [name for name in _names(limited.output) if name.endswith(_LOGITS)]
    rename(nodes, logits, result)
    limited.node.extend(needed(nodes, [result]))
    read = {name for node in limited.node for name in reads(node)}
    known = set(_names(graph.initializer))
    limited.initializer.extend(tensors[name] for name in sorted(read & tensors.keys() - known))

    [whole] = copied([outer])
    for output in whole.output:
        rename(whole.node, output.name, f"whole.{output.name}")
        output.name = f"whole.{output.name}"
    branches = [
        make_node("Shape", [_ROWS], ["count_of_rows"]),
        make_node("Cast", ["count_of_rows"], ["has_rows"], to=TensorProto.BOOL),
        make_node("If", ["has_rows"], names, then_branch=whole, else_branch=limited),
    ]
    replace(outer, node=branches, initializer=[], value_info=[])


def _gathers(node: NodeProto) -> bool:
    return node.op_type == "Gather" and node.input[1] == _TOKENS


def _is_given(node: NodeProto) -> bool:
    return any(name.startswith(KEPT) for name in reads(node))


def _names(values: Iterable[Any]) -> list[str]:
    return [value.name for value in values]


def _source(part: GraphProto, name: str) -> str:
    """Finds what a value is a view of, which has one axis less, or is the value itself."""
    for node in part.node:
        if node.op_type == "Unsqueeze" and name in node.output:
            return node.input[0]
    return name


def _turned(part: GraphProto, rows: str) -> tuple[str, bool]:
    """Finds what the product reads of gathered rows, and whether their groups are turned for it."""
    readers = [node for node in part.node if rows in reads(node)]
    if len(readers) == 1 and readers[0].op_type == "Transpose":
        return readers[0].output[0], True
    return rows, False


def _empty(value: ValueInfoProto) -> TensorProto:
    dims = [dim.dim_value for dim in dims_of(value)]
    kind = value.type.tensor_type.elem_type
    return TensorProto(name=value.name, dims=dims, data_type=kind, raw_data=b"")

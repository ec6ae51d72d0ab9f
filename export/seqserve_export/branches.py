"""Joins traced graphs to one, in which a condition chooses the branch that runs."""

from __future__ import annotations

from onnxscript import ir


def join(stem: ir.Model, condition: ir.Value, then: ir.Model, otherwise: ir.Model) -> None:
    """Appends an If to a graph; its outputs take the place of the outputs that the branches read.

    Inputs of a branch are the stem's outputs or inputs of the same name, or new inputs of the whole
    graph. Weights of the branches become the whole graph's, which alone keeps weights in a file.

    Args:
        stem: Runs first.
        condition: bool ``[]``, a new input of the whole graph.
        then: The branch that runs if it is true.
        otherwise: The branch that runs if it is false; it has the same outputs.
    """
    graph = stem.graph
    graph.inputs.append(condition)
    outputs = [_declared(value) for value in then.graph.outputs]
    read = {value.name for branch in (then, otherwise) for value in branch.graph.inputs}
    branches = {
        "then_branch": _branch(then.graph, "then", graph),
        "else_branch": _branch(otherwise.graph, "otherwise", graph),
    }
    attributes = [ir.AttrGraph(name, branch) for name, branch in branches.items()]
    graph.append(ir.Node("", "If", [condition], attributes, outputs=outputs))
    kept = [value for value in graph.outputs if value.name not in read]
    graph.outputs[:] = [*outputs, *kept]


def _declared(value: ir.Value) -> ir.Value:
    """Copies a value's name, type and shape; axes that are free get no name.

    ONNX Runtime reuses memory by the names of axes, and each graph has names of its own.
    """
    assert value.shape is not None
    shape = ir.Shape([size if isinstance(size, int) else None for size in value.shape])
    return ir.Value(name=value.name, shape=shape, type=value.type)


def _branch(branch: ir.Graph, prefix: str, graph: ir.Graph) -> ir.Graph:
    """Makes a graph one that reads the values of another, with names that occur nowhere else."""
    outer = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    for value in list(branch.inputs):
        if value.name not in outer:
            declared = _declared(value)
            graph.inputs.append(declared)
            outer[value.name] = declared
        ir.convenience.replace_all_uses_with(value, outer[value.name])
    branch.inputs.clear()
    for name, value in list(branch.initializers.items()):
        del branch.initializers[name]
        value.name = f"{prefix}.{name}"
        graph.register_initializer(value)
    for node in branch.all_nodes():
        for value in node.outputs:
            value.name = f"{prefix}.{value.name}"
    return branch

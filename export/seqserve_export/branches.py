"""Joins traced graphs to one, in which conditions choose the branch that runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onnxscript import ir


class Fork(NamedTuple):
    """Two branches, of which a condition chooses one. All have the same outputs."""

    condition: str
    """A bool ``[]``, a new input of the whole graph."""
    then: ir.Graph | Fork
    """Runs if it is true."""
    otherwise: ir.Graph | Fork
    """Runs if it is false."""


def join(stem: ir.Model, fork: Fork) -> None:
    """Appends a fork to a graph; its outputs take the place of the outputs that the branches read.

    Inputs of a branch are the stem's outputs or inputs of the same name, or new inputs of the whole
    graph. Weights of the branches become the whole graph's, which alone keeps weights in a file.

    Args:
        stem: Runs first.
        fork: Runs then.
    """
    graph = stem.graph
    read = {value.name for branch in _branches(fork) for value in branch.inputs}
    choice = _choice(fork, "", graph)
    graph.append(choice)
    kept = [value for value in graph.outputs if value.name not in read]
    graph.outputs[:] = [*choice.outputs, *kept]


def _branches(fork: Fork) -> Iterator[ir.Graph]:
    for branch in (fork.then, fork.otherwise):
        if isinstance(branch, Fork):
            yield from _branches(branch)
        else:
            yield branch


def _choice(fork: Fork, place: str, graph: ir.Graph) -> ir.Node:
    """Makes the If of a fork; its ``place`` in the forks around it begins all names in it."""
    of_branches = [branch.outputs for branch in _branches(fork)]
    outputs = [_declared(*values) for values in zip(*of_branches, strict=True)]
    for value in outputs:
        value.name = f"{place}{value.name}"
    boolean = ir.TensorType(ir.DataType.BOOL)
    condition = ir.Value(name=fork.condition, type=boolean, shape=ir.Shape([]))
    graph.inputs.append(condition)
    branches = {
        "then_branch": _branch(fork.then, f"{place}then.", graph),
        "else_branch": _branch(fork.otherwise, f"{place}otherwise.", graph),
    }
    attributes = [ir.AttrGraph(name, branch) for name, branch in branches.items()]
    return ir.Node("", "If", [condition], attributes, outputs=outputs)


def _declared(*values: ir.Value) -> ir.Value:
    """Copies the name and type of values, and the sizes in which they agree; other axes are free.

    A free axis gets no name: ONNX Runtime reuses memory by the names of axes, and each graph has
    names of its own.
    """
    shapes = [value.shape for value in values if value.shape is not None]
    sizes = [axis[0] if _is_fixed(axis) else None for axis in zip(*shapes, strict=True)]
    return ir.Value(name=values[0].name, shape=ir.Shape(sizes), type=values[0].type)


def _is_fixed(axis: tuple[int | ir.SymbolicDim, ...]) -> bool:
    return isinstance(axis[0], int) and all(size == axis[0] for size in axis)


def _branch(branch: ir.Graph | Fork, place: str, graph: ir.Graph) -> ir.Graph:
    """Makes a graph one that reads the values of another, with names that occur nowhere else."""
    if isinstance(branch, Fork):
        choice = _choice(branch, place, graph)
        return ir.Graph([], choice.outputs, nodes=[choice], name=place)
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
        value.name = f"{place}{name}"
        graph.register_initializer(value)
    for node in branch.all_nodes():
        for value in node.outputs:
            value.name = f"{place}{value.name}"
    return branch

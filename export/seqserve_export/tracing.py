"""Traces one graph with torch's exporter."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from onnxscript import ir
from onnxscript.optimizer import optimize_ir
from torch import Tensor, nn

from seqserve_export.program import Choice, Program
from seqserve_export.torch_exporter import TRANSLATIONS

_OPSET = 21
"""Version of the operators that the exporter writes."""

ATTENTION_OPSET = 24
"""The first version of Attention that takes lengths. Other operators are unchanged in it."""

_SMALL = 1024
"""Numbers of a tensor that is copied for the exporter."""


def trace(program: Program) -> ir.Model:
    """Exports one graph; its large constants are the program's own tensors, not copies of them."""
    model = _traced(program)
    if program.choice is not None:
        join(model, _fork(program.choice))
    if any(node.op_type == "Attention" for node in model.graph):
        model.opset_imports[""] = ATTENTION_OPSET
    return model


def _fork(choice: Choice) -> Fork:
    then, otherwise = (
        _fork(end) if isinstance(end, Choice) else _traced(end).graph
        for end in (choice.then, choice.otherwise)
    )
    return Fork(choice.condition.name, then, otherwise)


def _traced(program: Program) -> ir.Model:
    # It logs missing operators of torchvision and nodes outside of modules, and warns of a
    # deprecation in its own code.
    logging.getLogger("torch.onnx._internal.exporter").setLevel(logging.ERROR)
    module = program.module.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        exported = torch.onnx.export(
            _without_weights(module),
            program.arguments([value.example for value in program.inputs]),
            dynamic_shapes=program.arguments([value.dynamic_shape for value in program.inputs]),
            input_names=[value.name for value in program.inputs],
            output_names=program.outputs,
            opset_version=_OPSET,
            custom_translation_table=TRANSLATIONS,
            dynamo=True,
            verbose=False,
            optimize=False,
        )
    assert exported is not None
    model, tensors = exported.model, _large_tensors(module)
    weights = {name: value for name, value in model.graph.initializers.items() if name in tensors}
    for name, value in weights.items():
        value.const_value = ir.tensor(tensors[name].numpy(force=True), name=name)
    # Weights of integers are transposed at load time, because a part of a joined weight, and the
    # rows of allowed tokens, must match what other graphs store.
    # An Expand gives an output that is empty, and a constant cannot be an output of a branch.
    kept = ("Transpose", "Expand")
    optimize_ir(model, should_fold=lambda node: False if node.op_type in kept else None)
    _drop_removed(model.graph, weights)
    _clear_notes(model)
    return model


def _drop_removed(graph: ir.Graph, weights: Mapping[str, ir.Value]) -> None:
    """Drops the tensors of weights that the optimiser removed, such as biases of zeros.

    Its rules keep the last graph, and one tensor of a mapped file keeps the whole file.
    """
    for name in weights.keys() - graph.initializers.keys():
        weights[name].const_value = None


def _large_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Lists the tensors that the exporter is not given; a tied weight has several names."""
    tensors = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {name: tensor for name, tensor in tensors if tensor.numel() > _SMALL}


def _without_weights(module: nn.Module) -> nn.Module:
    """Copies a module, with untouched memory instead of its large tensors.

    Tracing reads none of them, but parts of torch keep what they were given until the process ends.
    """
    tensors = (*module.parameters(), *module.buffers())
    return copy.deepcopy(module, {id(tensor): _placeholder(tensor) for tensor in tensors})


def _placeholder(tensor: Tensor) -> Tensor:
    copied = torch.empty_like(tensor) if tensor.numel() > _SMALL else tensor.detach().clone()
    is_parameter = isinstance(tensor, nn.Parameter)
    return nn.Parameter(copied, requires_grad=False) if is_parameter else copied


def _clear_notes(model: ir.Model) -> None:
    """Drops the exporter's notes on each node, which contain paths of this machine."""
    model.metadata_props.clear()
    for graph in model.graphs():
        graph.metadata_props.clear()
        for node in graph:
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                _clear_value(value)
        for value in (*graph.inputs, *graph.initializers.values()):
            _clear_value(value)


def _clear_value(value: ir.Value) -> None:
    value.metadata_props.clear()
    value.doc_string = None
    if not (value.is_graph_input() or value.is_graph_output()):
        value.type = value.shape = None


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
    different names.
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

"""Traces one graph with torch's exporter."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from onnxscript import TracedOnnxFunction, ir, opset21
from onnxscript.optimizer import optimize_ir
from torch import Tensor, nn
from torch.export import ExportedProgram

from seqserve_export.program import Choice, Program

_OPSET = 21
"""Version of the operators that the exporter writes."""

ATTENTION_OPSET = 24
"""The first version of Attention that takes lengths. Other operators are unchanged in it."""

_SMALL = 1024
"""Numbers of a tensor that is copied for the exporter."""


def _copied(make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Copies a registry, because each export adds its own operators to it."""
    registry = copy.copy(make(*arguments, **named))
    registry.functions = {name: [*functions] for name, functions in registry.functions.items()}
    return registry


# Torch's exporter asks for the signatures of its operators again for each graph, and each time
# their source would be parsed: a quarter of the time of an export.
if parse := getattr(getattr(TracedOnnxFunction, "function_ir", None), "fget", None):
    TracedOnnxFunction.function_ir = property(cache(parse))
# It also lists its operators again, which would take half a second for each graph. The class is not
# public: where it is another one, an export takes longer.
with suppress(ImportError, AttributeError):
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    make = cache(ONNXRegistry.from_torchlib)
    ONNXRegistry.from_torchlib = partial(_copied, make)  # type: ignore[method-assign]

_decompose: Callable[..., ExportedProgram] = ExportedProgram.run_decompositions


def _decomposed(
    program: ExportedProgram, table: dict[Any, Callable[..., Any]] | None = None, *rest: Any
) -> ExportedProgram:
    """Traces a program once more only if an operator has no translation.

    The exporter does so in any case, which would take half of the time of an export.
    """
    operators = {node.target for node in program.graph.nodes if hasattr(node.target, "_schema")}
    operators -= _TRANSLATIONS.keys()
    if table is None or any(each in table or each._schema.is_mutable for each in operators):
        return _decompose(program, table, *rest)
    return program


ExportedProgram.run_decompositions = _decomposed  # type: ignore[method-assign]


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
            custom_translation_table=_TRANSLATIONS,
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


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Translates a projection of any rank to one Gemm with the weight as torch stores it.

    The exporter's own translation transposes the weight if x has more than two axes, and then the
    file would hold the same weight twice.
    """
    if len(x.shape) == 2:
        return opset21.Gemm(x, weight, bias, transB=1)
    shape = opset21.Shape(x)
    rows = opset21.Concat(opset21.Constant(value_ints=[-1]), opset21.Shape(x, start=-1), axis=0)
    product = opset21.Gemm(opset21.Reshape(x, rows), weight, bias, transB=1)
    leading = opset21.Slice(
        shape, opset21.Constant(value_ints=[0]), opset21.Constant(value_ints=[-1])
    )
    width = opset21.Shape(weight, start=0, end=1)
    return opset21.Reshape(product, opset21.Concat(leading, width, axis=0))


def _subtracted(x: Any, number: float, *_: Any) -> Any:
    return opset21.Sub(opset21.CastLike(opset21.Constant(value_float=float(number)), x), x)


_ATEN = torch.ops.aten
_TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    _ATEN.linear.default: _linear,
    _ATEN.detach_.default: lambda x: opset21.Identity(x),
    _ATEN.to.dtype: lambda x, dtype, *_: opset21.Cast(x, to=dtype),
    _ATEN.rsub.Scalar: _subtracted,
}
"""Operators that the exporter cannot translate, or translates otherwise."""


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

"""Torch's exporter: translations that it lacks, and less work where it does some twice.

Where a part of it that is not public is another one, an export takes longer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import torch
from onnxscript import TracedOnnxFunction, opset21
from torch.export import ExportedProgram


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


def _rms_norm(x: Any, shape: Sequence[int], weight: Any, epsilon: float) -> Any:
    """Translates a norm over the last axis; models of all precisions give it floats."""
    square = opset21.Pow(x, opset21.Constant(value_float=2.0))
    mean = opset21.ReduceMean(square, opset21.Constant(value_ints=[len(x.shape) - 1]))
    root = opset21.Sqrt(opset21.Add(mean, opset21.Constant(value_float=epsilon)))
    return opset21.Mul(opset21.Mul(x, opset21.Reciprocal(root)), weight)


_ATEN = torch.ops.aten
TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    _ATEN.linear.default: _linear,
    _ATEN.detach_.default: lambda x: opset21.Identity(x),
    _ATEN.to.dtype: lambda x, dtype, *_: opset21.Cast(x, to=dtype),
    _ATEN.rsub.Scalar: _subtracted,
    _ATEN.rms_norm.default: _rms_norm,
}
"""Operators that the exporter cannot translate, or translates otherwise."""


def _copied(make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Copies a registry, because each export adds its own operators to it."""
    registry = copy.copy(make(*arguments, **named))
    registry.functions = {name: [*functions] for name, functions in registry.functions.items()}
    return registry


# It asks for the signatures of its operators again for each graph, and each time their source would
# be parsed: a quarter of the time of an export.
if parse := getattr(getattr(TracedOnnxFunction, "function_ir", None), "fget", None):
    TracedOnnxFunction.function_ir = property(cache(parse))
# It also lists its operators again, which would take half a second for each graph.
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
    operators -= TRANSLATIONS.keys()
    if table is None or any(each in table or each._schema.is_mutable for each in operators):
        return _decompose(program, table, *rest)
    return program


ExportedProgram.run_decompositions = _decomposed  # type: ignore[method-assign]

"""Operators of an fp16 artifact, and where ONNX Runtime 1.31.1 runs them with its CUDA provider.

Encoders and steps of these operators have run on an NVIDIA H200, all of them on the GPU but what
computes shapes; the scorer's graph was placed there, with a library in place of CUDA's runtime,
and not run. A new operator in a graph makes these tests fail, so that somebody looks it up before a
GPU does.

Source: ONNX Runtime, docs/OperatorKernels.md; contrib_ops/cuda/bert/group_query_attention.cc.
"""

from pathlib import Path

import onnx
import pytest
from tests.graph_nodes import nodes_of

STEPS = {
    "Add", "ArgMax", "Cast", "ConstantOfShape", "Div", "Expand", "FusedMatMul", "Gather",
    "GatherElements", "GatherND", "Gemm", "GroupQueryAttention", "Identity", "If",
    "LayerNormalization", "LogSoftmax", "Mul", "MultiHeadAttention", "Neg", "ReduceMax", "Relu",
    "Reshape", "ScatterElements", "Shape", "Slice", "Split", "Squeeze", "Sub", "TopK", "Transpose",
    "Unsqueeze",
}  # fmt: skip
"""Operators of encoder and decoder with a kernel for fp16, or for the integers that they read."""

SCORER = STEPS | {"Less", "MatMul", "Not", "Range", "Softmax", "Trilu", "Where"}
"""Those of the scorer."""

OF_SHAPES = {"Concat"}
"""They have a kernel too, but join sizes, which ONNX Runtime prefers to do on the CPU."""

ONLY_ON_CPU = {
    "fp32": {"GroupQueryAttention"},
    "int8": {"GroupQueryAttention", "MatMulIntegerToFloat"},
}
"""What has no kernel at other precisions, so that CUDA runs such artifacts only in part."""


def operators_of(path: Path) -> set[str]:
    return {node.op_type for node in nodes_of(onnx.load(path, load_external_data=False).graph)}


@pytest.mark.parametrize(
    ("name", "known"), [("encoder", STEPS), ("decoder", STEPS), ("scorer", SCORER)]
)
def test_all_operators_of_an_artifact_of_halves_have_a_kernel(
    tiny_fp16_artifact: Path, name: str, known: set[str]
) -> None:
    assert operators_of(tiny_fp16_artifact / f"{name}.onnx") <= known | OF_SHAPES


@pytest.mark.parametrize("precision", ONLY_ON_CPU)
def test_steps_of_other_precisions_have_operators_without_one(
    request: pytest.FixtureRequest, precision: str
) -> None:
    """As soon as they do not, fp16 is no longer the only precision for a GPU."""
    fixture = {"fp32": "tiny_artifact", "int8": "tiny_int8_artifact"}[precision]
    assert operators_of(request.getfixturevalue(fixture) / "decoder.onnx") >= ONLY_ON_CPU[precision]

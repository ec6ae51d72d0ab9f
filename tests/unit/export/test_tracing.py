"""A traced graph has the weights of its module, and nothing else keeps them."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from onnxscript import ir
from torch import Tensor, nn

from seqserve_export.program import Input, Program
from seqserve_export.tracing import trace

pytestmark = pytest.mark.slow


class Layers(nn.Module):
    """Two projections with biases; one of these is as large as a weight, another all zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 2048), nn.Linear(2048, 8)
        nn.init.zeros_(self.down.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.up(x).relu())
        return out


def traced(module: nn.Module) -> ir.Graph:
    inputs = [Input("x", torch.zeros(2, 8), (0,))]
    return trace(Program(module=module, inputs=inputs, outputs=["y"])).graph


def test_weights_are_the_tensors_of_the_module_without_a_copy() -> None:
    module = Layers()
    graph = traced(module)
    for name in ("up.weight", "up.bias", "down.weight"):
        tensor = graph.initializers[name].const_value
        assert tensor is not None
        assert np.shares_memory(tensor.numpy(), module.get_parameter(name).detach().numpy()), name


def test_nothing_keeps_the_module_once_its_graph_is_gone() -> None:
    module = Layers()
    kept = [weakref.ref(parameter) for parameter in module.parameters()]
    graph = traced(module)
    for value in graph.initializers.values():
        value.const_value = None
    del module, graph, value
    gc.collect()
    assert [each() for each in kept] == [None] * 4

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
    """Two projections with biases as large as weights; the optimiser removes the zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.across = nn.Linear(8, 2048), nn.Linear(2048, 2048)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.across(self.up(x).relu())
        return out


def traced(module: nn.Module) -> ir.Graph:
    inputs = [Input("x", torch.zeros(2, 8), (0,))]
    return trace(Program(module=module, inputs=inputs, outputs=["y"])).graph


def test_weights_are_the_tensors_of_the_module_without_a_copy() -> None:
    module = Layers()
    graph = traced(module)
    for name in ("up.weight", "across.weight", "across.bias"):
        tensor = graph.initializers[name].const_value
        assert tensor is not None
        assert np.shares_memory(tensor.numpy(), module.get_parameter(name).detach().numpy()), name


def test_nothing_keeps_the_module_once_its_graph_is_gone() -> None:
    module, kept = Layers(), []
    for parameter in module.parameters():
        array = parameter.detach().numpy().copy()
        parameter.data = torch.from_numpy(array)  # which keeps it for as long as its memory is used
        kept.append(weakref.ref(array))
    del parameter, array
    graph = traced(module)
    for value in graph.initializers.values():
        value.const_value = None
    del module, graph, value
    gc.collect()
    assert [each() for each in kept] == [None] * 4

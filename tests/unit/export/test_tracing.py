import gc
import weakref
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from onnxscript import ir
from torch import Tensor, nn

from seqserve_export import torch_exporter
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


class Rewritten(nn.Module):
    """Changes its tensor, or has an operator that ONNX lacks."""

    def __init__(self, changes: bool) -> None:
        super().__init__()
        self.changes = changes

    def forward(self, x: Tensor) -> Tensor:
        return (x + 1).mul_(3) if self.changes else nn.functional.pairwise_distance(x, x + 2)


@pytest.mark.parametrize("changes", [True, False])
def test_operators_without_a_translation_are_decomposed(changes: bool) -> None:
    module, x = Rewritten(changes), torch.arange(16.0).reshape(2, 8)
    inputs = [Input("x", torch.zeros(2, 8), (0,))]
    model = ir.serde.serialize_model(trace(Program(module=module, inputs=inputs, outputs=["y"])))
    [y] = ReferenceEvaluator(model).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(y, module(x).numpy(), rtol=1e-6)


def test_a_graph_whose_operators_have_translations_is_traced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decompose = Mock()
    monkeypatch.setattr(torch_exporter, "_decompose", decompose)
    assert traced(Layers())
    decompose.assert_not_called()

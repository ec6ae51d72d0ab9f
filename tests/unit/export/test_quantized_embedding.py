import onnxruntime as ort
import pytest
import torch
from onnxscript import ir
from torch import Tensor, nn

from seqserve_export.program import Input, Program
from seqserve_export.quantization import QuantizedEmbedding
from seqserve_export.tracing import trace

# Below the smallest block of the operator, between two of its blocks, and a block itself.
WIDTHS = [8, 48, 256]


def table(rows: int, width: int) -> nn.Embedding:
    torch.manual_seed(5)
    return nn.Embedding(rows, width).requires_grad_(False)


def found_by_kernel(embedding: nn.Module, tokens: Tensor) -> Tensor:
    """Exports a table alone, and looks tokens up with ONNX Runtime."""
    inputs = [Input("tokens", tokens, (0,))]
    model = trace(Program(module=embedding, inputs=inputs, outputs=["rows"]))
    assert [node.op_type for node in model.graph] == ["GatherBlockQuantized"]
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    [rows] = session.run(None, {"tokens": tokens.numpy()})
    return torch.from_numpy(rows)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_rounded_to_the_nearest_each_by_itself(width: int) -> None:
    embedding = table(20, width)
    embedding.weight[3] *= 1000
    embedding.weight[7] = 0
    tokens = torch.arange(20)
    error = (QuantizedEmbedding(embedding)(tokens) - embedding(tokens)).abs().amax(1)
    step = embedding.weight.abs().amax(1) / 127
    assert (error <= 0.5 * step * (1 + 1e-4)).all()
    assert error[7] == 0


def test_largest_number_of_a_row_stays_as_it_is() -> None:
    """No neighbours are summed up, so the whole range of eight bits is used."""
    embedding = nn.Embedding.from_pretrained(torch.tensor([[1.0, 1.0, -0.25, 0.0] * 4]))
    assert QuantizedEmbedding(embedding)(torch.tensor([0])).amax() == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_kernel_finds_the_same_bits(width: int) -> None:
    embedding = QuantizedEmbedding(table(30, width))
    tokens = torch.tensor([[0, 29, 7], [7, 1, 2]])
    computed = found_by_kernel(embedding, tokens)
    assert torch.equal(computed, embedding(tokens))

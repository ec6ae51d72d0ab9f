import pytest
import torch
from torch import nn

from seqserve_model.cpu import ByteDropout, use_byte_dropout


def test_drops_its_share_and_keeps_the_mean() -> None:
    dropped = ByteDropout(0.25)(torch.ones(400, 400))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)
    assert dropped.unique().tolist() == pytest.approx([0.0, 4 / 3])


def test_gradient_flows_where_nothing_was_dropped() -> None:
    x = torch.ones(1_000, requires_grad=True)
    dropped = ByteDropout(0.5)(x)
    dropped.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, dropped)


def test_is_the_identity_when_not_training() -> None:
    x = torch.randn(10)
    assert ByteDropout(0.5).eval()(x) is x
    assert ByteDropout(0.0)(x) is x


def test_follows_the_seed_of_torch() -> None:
    dropout, x = ByteDropout(0.5), torch.ones(200)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout(x), second)
    assert not torch.equal(first, second)


def test_takes_the_place_of_every_dropout() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.25)))
    use_byte_dropout(model.eval())
    found = [module for module in model.modules() if isinstance(module, ByteDropout)]
    assert [module.threshold for module in found] == [128, 64]
    assert not any(isinstance(module, nn.Dropout) for module in model.modules())
    assert not any(module.training for module in found)

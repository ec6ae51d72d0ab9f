"""The proof of the pudding: every scheme of positions learns to turn a sequence round."""

from typing import Any

import pytest
import torch
from tests.unit.model.conftest import make_config
from torch import Tensor
from torch.nn import functional as F

from seqserve_model.config import DecoderCell, PositionScheme
from seqserve_model.decoding import greedy
from seqserve_model.transformer import Transformer

pytestmark = pytest.mark.slow

PAD, BOS, EOS, FIRST = 0, 1, 2, 4
SYMBOLS, LONGEST, STEPS, ROWS = 6, 4, 300, 48

# Each takes some seconds. One adds positions to the tokens, the other has them in its attention.
QUICK = {PositionScheme.SINUSOIDAL, PositionScheme.ROTARY}


def reversals(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draws sources, their lengths and their reversals, both ending with the end token."""
    lengths = torch.randint(1, LONGEST + 1, (rows,))  # [B]
    places = torch.arange(LONGEST + 1)
    source = torch.randint(FIRST, FIRST + SYMBOLS, (rows, LONGEST + 1))  # [B, S]
    turned = source.gather(1, (lengths[:, None] - 1 - places).clamp(min=0))
    for tokens in (source, turned):
        tokens[places == lengths[:, None]] = EOS
        tokens[places > lengths[:, None]] = PAD
    return source, lengths + 1, turned


@pytest.mark.parametrize(
    "shape",
    [
        *(
            pytest.param(
                {"positions": scheme},
                id=scheme.value,
                marks=() if scheme in QUICK else pytest.mark.parity,
            )
            for scheme in PositionScheme
        ),
        pytest.param(
            {"decoder_cell": DecoderCell.SSRU, "zero_start": True},
            id="ssru",
            marks=pytest.mark.parity,
        ),
    ],
)
def test_learns_to_reverse(shape: dict[str, Any]) -> None:
    config = make_config(
        vocabulary_size=FIRST + SYMBOLS,
        width=32,
        feed_forward_width=64,
        encoder_layers=1,
        decoder_layers=1,
        **shape,
    )
    model = Transformer(config)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 1e-2 * min(1, step / 30, 1.05 - step / STEPS)
        source, lengths, target = reversals(ROWS)
        target_in = F.pad(target, (1, -1), value=BOS)
        logits = model(source, lengths, target_in)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    source, lengths, target = reversals(200)
    found = greedy(model.eval(), source, lengths, LONGEST + 1)
    wanted = [[token for token in row if token >= FIRST] for row in target.tolist()]
    right = sum(ours == theirs for ours, theirs in zip(found, wanted, strict=True))
    # A model without the order of tokens gets about half.
    assert right >= 170, f"{right} of 200 are right"

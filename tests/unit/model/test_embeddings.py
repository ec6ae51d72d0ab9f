import math

import pytest
import torch
from tests.rounding import assert_same
from tests.unit.model.conftest import make_config, make_model
from torch import Tensor
from torch.nn.functional import one_hot

from seqserve_model.config import PositionScheme
from seqserve_model.transformer import Transformer

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0, 0, 0]),
        ({"shared_embeddings": False}, [0, 1, 1]),
        ({"shared_embeddings": False, "tied_output": False}, [0, 1, 2]),
    ],
)
def test_shared_and_tied_tables_are_one_parameter(
    changes: dict[str, bool], expected: list[int]
) -> None:
    model = Transformer(make_config(**changes))
    model.load_state_dict(Transformer(make_config(**changes)).state_dict())
    parts = (model.source_embedding, model.target_embedding, model.output_projection)
    tables = [id(part.weight) for part in parts]
    assert [tables.index(table) for table in tables] == expected


def test_tokens_enter_and_leave_with_variance_one() -> None:
    config = make_config(vocabulary_size=2_000, width=128, positions=PositionScheme.T5)
    model = Transformer(config).eval()
    tokens = torch.randint(0, 2_000, (8, 12))
    entering: list[Tensor] = []
    model.encoder_layers[0].register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0]))
    logits = model(tokens, torch.full((8,), 12), tokens)
    assert entering[0].std().item() == pytest.approx(1.0, abs=0.05)
    # The tied table makes the decoder's input token stand out, so only the others are measured.
    others = logits.masked_fill(one_hot(tokens, 2_000).bool(), 0.0)
    assert others.std().item() == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("scaled", [False, True])
def test_embeddings_are_scaled_by_the_root_of_the_width(scaled: bool) -> None:
    model = make_model(positions=PositionScheme.ALIBI, scaled_embeddings=scaled)
    entering: list[Tensor] = []
    model.encoder_layers[0].register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0]))
    model.encode(torch.tensor([[5]]), torch.tensor([1]))
    factor = math.sqrt(16) if scaled else 1.0
    assert_same(entering[0][0, 0], model.source_embedding.weight[5] * factor)

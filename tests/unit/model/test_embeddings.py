import math
from collections.abc import Callable

import pytest
import torch
from tests.rounding import assert_same
from torch import Tensor
from torch.nn.functional import one_hot

from seqserve_model.config import PositionScheme, TransformerConfig
from seqserve_model.transformer import Transformer

MakeConfig = Callable[..., TransformerConfig]
MakeModel = Callable[..., Transformer]

pytestmark = pytest.mark.usefixtures("double")


def test_shared_and_tied_tables_are_one_parameter(make_config: MakeConfig) -> None:
    model = Transformer(make_config())
    assert model.source_embedding.weight is model.target_embedding.weight
    assert model.output_projection.weight is model.target_embedding.weight
    model.load_state_dict(Transformer(make_config()).state_dict())
    assert model.output_projection.weight is model.source_embedding.weight


def test_tied_output_takes_the_target_tokens(make_config: MakeConfig) -> None:
    model = Transformer(make_config(shared_embeddings=False))
    assert model.source_embedding.weight is not model.target_embedding.weight
    assert model.output_projection.weight is model.target_embedding.weight


def test_nothing_is_tied_where_not_asked(make_config: MakeConfig) -> None:
    model = Transformer(make_config(shared_embeddings=False, tied_output=False))
    tables = (model.source_embedding, model.target_embedding, model.output_projection)
    assert len({id(table.weight) for table in tables}) == 3


def test_tokens_enter_and_leave_with_variance_one(make_config: MakeConfig) -> None:
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
def test_embeddings_are_scaled_by_the_root_of_the_width(
    make_model: MakeModel, scaled: bool
) -> None:
    model = make_model(positions=PositionScheme.ALIBI, scaled_embeddings=scaled)
    entering: list[Tensor] = []
    model.encoder_layers[0].register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0]))
    model.encode(torch.tensor([[5]]), torch.tensor([1]))
    factor = math.sqrt(16) if scaled else 1.0
    assert_same(entering[0][0, 0], model.source_embedding.weight[5] * factor)

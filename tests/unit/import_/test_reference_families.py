import json
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.checkpoints import FAMILIES, TOKENS
from tests.unit.import_.conftest import CopyCheckpoint, MakeCheckpoint
from torch import Tensor

from seqserve.errors import OptionError
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.loading import Loaded, load

SEEDS = (0, 5, 15)
"""Together their shapes have each value that a seed draws."""
LENGTHS = torch.tensor([9, 3, 6])
TARGET_LENGTH = 8


def examples(loaded: Loaded) -> tuple[Tensor, Tensor]:
    """Draws sources and the targets that are forced."""
    config, generator = loaded.model.config, torch.Generator().manual_seed(5)
    usable = [token for token in range(4, TOKENS) if token not in loaded.suppressed]
    drawn = torch.tensor(usable)[
        torch.randint(len(usable), (3, 9 + TARGET_LENGTH), generator=generator)
    ]
    source, target = drawn[:, :9].clone(), drawn[:, 9:].clone()
    for row, length in zip(source, LENGTHS, strict=True):
        row[length - 1], row[length:] = config.eos_id, config.pad_id
    target[:, 0] = config.bos_id
    return source, target


@torch.no_grad()
def logits_of(
    theirs: Any, loaded: Loaded, source: Tensor, target: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Computes the logits of torch and of transformers, without those of excluded tokens."""
    mask = (torch.arange(source.size(1)) < lengths[:, None]).long()
    given = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": target}
    expected = theirs(**given, use_cache=False).logits
    expected[..., loaded.suppressed] = -1e30
    computed = loaded.model(source, lengths, target)
    assert (computed.log_softmax(-1)[..., loaded.suppressed] < -1e29).all()
    computed[..., loaded.suppressed] = -1e30
    return computed, expected


def compare(theirs: Any, loaded: Loaded) -> None:
    logits = logits_of(theirs, loaded, *examples(loaded), LENGTHS)
    computed, expected = (each.log_softmax(-1) for each in logits)
    possible = expected > -1e29
    assert expected[possible].std() > 0.5, "all tokens are equally probable"
    assert (expected[0] - expected[1]).abs()[possible[0]].max() > 0.1, "sources do not matter"
    torch.testing.assert_close(computed[possible], expected[possible], atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_those_of_transformers(
    make_checkpoint: MakeCheckpoint, family: str, seed: int
) -> None:
    theirs, folder = make_checkpoint(family, seed)
    compare(theirs, load(Checkpoint(folder)))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("m2m100", {"scale_embedding": None}),
        ("m2m100", {"activation_function": None}),
        ("umt5", {"feed_forward_proj": None}),
        ("mt5", {"scale_decoder_outputs": True}),
        ("t5", {"dense_act_fn": "silu"}),
        ("flan", {"dense_act_fn": "silu"}),
    ],
)
def test_settings_are_understood_as_transformers_does(
    copy_checkpoint: CopyCheckpoint, family: str, changes: dict[str, Any]
) -> None:
    folder = copy_checkpoint(family, 1)
    path = folder / "config.json"
    settings = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: each for name, each in settings.items() if each is not None}))
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    compare(theirs, load(Checkpoint(folder)))


def test_output_without_a_table_is_tied(copy_checkpoint: CopyCheckpoint) -> None:
    folder = copy_checkpoint("t5", 2)
    weights = load_file(folder / "model.safetensors")
    weights["decoder.embed_tokens.weight"] = weights["shared.weight"].flip(0)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    compare(transformers.AutoModelForSeq2SeqLM.from_pretrained(folder), load(Checkpoint(folder)))


def test_the_seeds_have_every_corner(make_checkpoint: MakeCheckpoint) -> None:
    configs = [load(Checkpoint(make_checkpoint("t5", seed)[1])).model.config for seed in SEEDS]
    assert any(config.heads % 2 for config in configs)
    assert any(config.head_size * config.heads != config.width for config in configs)
    assert len({config.vocabulary_size for config in configs}) > 1
    assert {config.encoder_layers > config.decoder_layers for config in configs} == {True, False}


def test_rows_without_a_token_are_never_generated(make_checkpoint: MakeCheckpoint) -> None:
    for family in ("marian", "marian-two-vocabularies", "bart"):
        loaded = load(Checkpoint(make_checkpoint(family, 3)[1]))
        rows = range(TOKENS, loaded.model.config.vocabulary_size)
        assert rows
        assert set(rows) <= set(loaded.suppressed)


def test_sources_have_fewer_tokens_than_targets_and_more(make_checkpoint: MakeCheckpoint) -> None:
    families = [make_checkpoint("marian-two-vocabularies", seed)[1] for seed in SEEDS]
    configs = [load(Checkpoint(folder)).model.config for folder in families]
    more = {config.source_vocabulary_size > config.vocabulary_size for config in configs}
    assert more == {True, False}


@pytest.mark.parametrize("family", ["bart-uneven", "mt5"])
def test_heads_of_any_size_become_multiples_of_eight(
    make_checkpoint: MakeCheckpoint, family: str
) -> None:
    for seed in SEEDS:
        theirs, folder = make_checkpoint(family, seed)
        config = load(Checkpoint(folder)).model.config
        assert (config.head_size % 8, config.decoder.head_size % 8) == (0, 0)
        assert config.decoder.heads == theirs.config.to_dict().get(
            "decoder_attention_heads", config.heads
        )
        assert config.decoder.head_size * config.decoder.heads > 4 * config.decoder.heads


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_a_longest_sequence_is_read_to_its_end(
    make_checkpoint: MakeCheckpoint, family: str
) -> None:
    theirs, folder = make_checkpoint(family, 1)
    loaded = load(Checkpoint(folder))
    config = loaded.model.config
    source = torch.full((1, min(config.max_source_length, 40)), 9)
    target = torch.full((1, min(config.max_target_length, 40) + 1), config.bos_id)
    computed, expected = logits_of(theirs, loaded, source, target, torch.tensor([source.size(1)]))
    torch.testing.assert_close(computed, expected, atol=1e-3, rtol=1e-3)


def test_a_t5_reads_sources_as_long_as_wanted(make_checkpoint: MakeCheckpoint) -> None:
    theirs, folder = make_checkpoint("t5", 2)
    assert load(Checkpoint(folder)).model.config.max_source_length == 512
    loaded = load(Checkpoint(folder), 700)
    assert loaded.model.config.max_source_length == 700
    source = torch.arange(700)[None] % 60 + 9
    target = torch.tensor([[loaded.model.config.bos_id, 9, 10]])
    computed, expected = logits_of(theirs, loaded, source, target, torch.tensor([700]))
    torch.testing.assert_close(computed, expected, atol=1e-3, rtol=1e-3)


def test_a_table_of_positions_has_no_longer_sources(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = Checkpoint(make_checkpoint("bart", 2)[1])
    with pytest.raises(OptionError, match="--max-source-length: the positions of this model are a"):
        load(checkpoint, 700)

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tests.unit.import_.conftest import CopyCheckpoint, change_json
from tokenizers import models
from torch import Tensor

from seqserve_import.checkpoint import Checkpoint
from seqserve_import.files import CheckpointError
from seqserve_import.loading import load

Weights = dict[str, Tensor]
QUERY = "model.encoder.layers.0.self_attn.q_proj.weight"
POSITIONS = "model.encoder.embed_positions.weight"


@pytest.fixture
def folder(copy_checkpoint: CopyCheckpoint) -> Path:
    return copy_checkpoint("bart", 2)


@contextmanager
def weights_of(folder: Path) -> Iterator[Weights]:
    """Gives the weights of a checkpoint, and writes what was made of them."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    yield weights
    save_file(weights, path)


def with_one(number: float) -> Callable[[Tensor], Tensor]:
    return lambda weight: weight.flatten().index_fill(0, torch.tensor(3), number).view_as(weight)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("model.encoder.adapter.weight", torch.ones(2), r"encoder\.adapter\.weight is left over"),
        ("classification_head.dense.bias", torch.ones(2), "belongs to a model that does not gene"),
        (QUERY, None, f"the weight {QUERY} is missing"),
        (QUERY, torch.ones(3, 4), rf"{QUERY} has the shape \[3, 4\]; by config\.json it must make"),
        (QUERY, lambda weight: weight.to(torch.int8), f"{QUERY} is of type torch.int8"),
        (QUERY, with_one(math.nan), f"{QUERY} has numbers that are not finite"),
        (QUERY, with_one(-math.inf), f"{QUERY} has numbers that are not finite"),
        ("final_logits_bias", torch.ones(1, 7), r"final_logits_bias has the shape \[1, 7\]"),
        (POSITIONS, torch.ones(5, 8), r"embed_positions\.weight has the shape \[5, 8\]"),
        (POSITIONS, torch.tensor(3.0), r"has the shape \[\]; by config\.json it must make another"),
        ("model.encoder.embed_tokens.weight", torch.ones(9), r"tokens\.weight has the shape \[9\]"),
    ],
)
def test_a_misfit_of_weights_is_named(folder: Path, name: str, changed: Any, message: str) -> None:
    with weights_of(folder) as weights:
        before = weights.pop(name, None)
        if changed is not None:
            weights[name] = changed(before) if callable(changed) else changed
    with pytest.raises(CheckpointError, match=message):
        load(Checkpoint(folder))


def test_a_checkpoint_without_embeddings_is_refused(folder: Path) -> None:
    with weights_of(folder) as weights:
        for name in list(weights):
            if "embed_tokens" in name or "shared" in name or "lm_head" in name:
                del weights[name]
    with pytest.raises(CheckpointError, match=r"the weight model\.shared\.weight is missing"):
        load(Checkpoint(folder))


def test_an_output_that_is_untied_must_be_there(folder: Path) -> None:
    with weights_of(folder) as weights:
        weights.pop("lm_head.weight", None)
    change_json(folder / "config.json", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is missing, and tie_word_embed"):
        load(Checkpoint(folder))


@pytest.mark.parametrize(
    "names", [["BartModel", "BartForConditionalGeneration"], ["BartWithLMHeadModel"], []]
)
def test_weights_decide_what_a_checkpoint_is(folder: Path, names: list[str]) -> None:
    change_json(folder / "config.json", architectures=names)
    assert load(Checkpoint(folder)).model.config.decoder_layers > 0


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module.{name}",
        lambda name: f"_orig_mod.{name}",
        lambda name: f"module._orig_mod.{name}",
        lambda name: name.replace("model.encoder.", "model._orig_mod.encoder."),
        lambda name: name.removeprefix("model."),
    ],
    ids=["DDP", "compiled", "both", "compiled part", "BartModel alone"],
)
def test_names_of_wrapped_networks_are_read(folder: Path, rename: Callable[[str], str]) -> None:
    expected = load(Checkpoint(folder)).model
    with weights_of(folder) as weights:
        for name in list(weights):
            weights[rename(name)] = weights.pop(name)
    model = load(Checkpoint(folder)).model
    for (name, weight), other in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(weight, other), name


def test_a_weight_under_two_names_is_refused(folder: Path) -> None:
    with weights_of(folder) as weights:
        weights[f"module.{QUERY}"] = weights[QUERY].clone()
    with pytest.raises(CheckpointError, match=rf"the weight {QUERY} is there twice"):
        Checkpoint(folder)


def test_an_end_token_that_is_another_one_in_the_tokenizer_is_refused(folder: Path) -> None:
    change_json(folder / "config.json", eos_token_id=5)
    (folder / "generation_config.json").unlink()
    with pytest.raises(CheckpointError, match="eos_token_id is not the id of </s> in the tokeni"):
        load(Checkpoint(folder))


def test_copies_of_a_table_are_no_harm(copy_checkpoint: CopyCheckpoint) -> None:
    folder = copy_checkpoint("bart", 12)
    with weights_of(folder) as weights:
        for name in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
            weights[f"{name}.weight"] = weights["model.shared.weight"].clone()
    model = load(Checkpoint(folder)).model
    assert model.output_projection.weight is model.source_embedding.weight


def test_a_table_of_another_name_is_found(copy_checkpoint: CopyCheckpoint) -> None:
    """As in MADLAD, which has no shared.weight."""
    folder = copy_checkpoint("t5", 2)
    expected = load(Checkpoint(folder)).model.source_embedding.weight
    with weights_of(folder) as weights:
        weights["decoder.embed_tokens.weight"] = weights.pop("shared.weight")
    model = load(Checkpoint(folder)).model
    assert model.target_embedding.weight is model.source_embedding.weight
    assert torch.equal(model.source_embedding.weight, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "longt5"}, "'longt5' is not supported; known are marian, m2m_100, t5"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: the weights are quantised"),
        ({"d_model": None}, "config.json: d_model is missing"),
        ({"d_model": "16"}, r"d_model is not of type int"),
        ({"d_model": 17}, r"config\.json: d_model \(17\) must be a multiple of encoder_attention"),
        ({"encoder_attention_heads": 7}, r"must be a multiple of encoder_attention_heads \(7\)"),
        ({"decoder_attention_heads": 7}, r"must be a multiple of decoder_attention_heads \(7\)"),
        ({"decoder_ffn_dim": 7}, r"the weight model\.decoder\.layers\.0\.fc1\.weight has the sh"),
        ({"activation_function": "quick_gelu"}, "activation_function is not one of relu, gelu"),
        ({"vocab_size": 90}, "tokenizer: has more tokens than the model, which has 90"),
        ({"encoder_layers": 3}, r"the weight model\.encoder\.layers\.1\..* is missing"),
        ({"decoder_layers": 1}, r"the weight model\.decoder\.layers\.1\..* is left over"),
        ({"max_position_embeddings": 30}, r"embed_positions\.weight has the shape"),
    ],
)
def test_a_misfit_of_settings_is_named(folder: Path, changes: dict[str, Any], message: str) -> None:
    change_json(folder / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message):
        load(Checkpoint(folder))


def test_a_training_run_needs_no_import(folder: Path) -> None:
    change_json(folder / "config.json", model_type=None)
    (folder / "recipe.json").write_text("{}")
    with pytest.raises(CheckpointError, match="training run of seqserve; `seqserve export` conv"):
        load(Checkpoint(folder))


@pytest.mark.parametrize("size", [0, 1])
def test_heads_of_another_size_are_refused(copy_checkpoint: CopyCheckpoint, size: int) -> None:
    """Though widened to eight numbers they would fit."""
    folder = copy_checkpoint("t5", 2)
    change_json(folder / "config.json", d_kv=size)
    with pytest.raises(CheckpointError, match=r"d_kv is not at least 1|q\.weight has the shape \["):
        load(Checkpoint(folder))


@pytest.mark.parametrize("ends", [None, [2, 5]])
def test_one_token_must_end_a_target(folder: Path, ends: Any) -> None:
    change_json(folder / "config.json", eos_token_id=ends)
    (folder / "generation_config.json").unlink()
    with pytest.raises(CheckpointError, match="eos_token_id must name one token"):
        load(Checkpoint(folder))


def test_vocabularies_have_one_end_token(copy_checkpoint: CopyCheckpoint) -> None:
    folder = copy_checkpoint("marian-two-vocabularies", 1)
    path = folder / "target_vocab.json"
    ids = json.loads(path.read_text())
    path.write_text(json.dumps(ids | {"</s>": ids["▁z9"], "▁z9": ids["</s>"]}))
    with pytest.raises(CheckpointError, match="</s> is token 0 of sources and 9 of targets"):
        load(Checkpoint(folder))


def test_vocabularies_fit_their_tables(copy_checkpoint: CopyCheckpoint) -> None:
    folder = copy_checkpoint("marian-two-vocabularies", 1)
    change_json(folder / "config.json", vocab_size=200)
    with pytest.raises(CheckpointError, match=r"encoder\.embed_tokens\.weight has the shape"):
        load(Checkpoint(folder))
    change_json(folder / "config.json", vocab_size=96, decoder_vocab_size=95)
    with pytest.raises(CheckpointError, match=r"pad_token_id is 95; .* vocab_size"):
        load(Checkpoint(folder))


def test_a_tokenizer_without_its_control_tokens_is_refused(folder: Path) -> None:
    tokenizers.Tokenizer(models.WordLevel({"a": 0}, "a")).save(str(folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="has no token <pad>"):
        load(Checkpoint(folder))

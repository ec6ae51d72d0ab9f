from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tests import marian_models
from tests.marian_models import Shape

from seqserve.errors import SeqserveError
from seqserve_import.files import CheckpointError
from seqserve_import.loading import Loaded, load, open_checkpoint
from seqserve_import.marian_checkpoint import shortlist_of

SHAPE = Shape()
SOURCE = "The coffee tastes good."


def loaded(folder: Path) -> Loaded:
    return load(open_checkpoint(folder))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return loaded(marian_models.write(tmp_path_factory.mktemp("plain"), SHAPE))


def rewritten(folder: Path, **changes: Any) -> Path:
    """Writes a model with other settings, whose names have ``_`` for ``-``."""
    settings = SHAPE.settings() | {name.replace("_", "-"): v for name, v in changes.items()}
    marian_models.write(folder, SHAPE)
    marian_models.write_npz(folder / "model.npz", marian_models.arrays(SHAPE), settings)
    return folder


@torch.inference_mode()
def logits(imported: Loaded) -> torch.Tensor:
    """Computes the logits of the tokens that text can become."""
    source = torch.tensor([imported.tokenizer.encode(SOURCE)])
    target = torch.tensor([[imported.model.config.bos_id, 5, 9]])
    computed = imported.model(source, torch.tensor([source.size(1)]), target)
    return computed[..., : marian_models.TOKENS]


def test_a_target_starts_from_zeros_which_no_target_contains(plain: Loaded) -> None:
    imported, config = plain, plain.model.config
    assert config.bos_id == config.pad_id == marian_models.TOKENS
    assert not imported.model.target_embedding.weight[config.bos_id].any()
    beyond = set(range(marian_models.TOKENS, config.vocabulary_size))
    assert set(imported.suppressed) == beyond
    assert imported.model.logits_bias is not None
    assert (imported.model.logits_bias[marian_models.TOKENS :] < -1e29).all()


def test_ids_are_those_of_the_vocabulary(plain: Loaded) -> None:
    tokenizer = plain.tokenizer
    assert (tokenizer.eos_id, tokenizer.unk_id) == (0, 1)
    ids = tokenizer.encode(SOURCE)
    assert ids[-1] == 0
    assert tokenizer.decode(ids) == SOURCE


def test_a_bin_of_floats_gives_the_same_numbers(plain: Loaded, tmp_path: Path) -> None:
    folder = marian_models.write(tmp_path, SHAPE)
    (folder / "model.npz").unlink()
    weights = marian_models.arrays(SHAPE)
    marian_models.write_bin(folder / "model.xy.bin", weights, SHAPE.settings())
    assert torch.equal(logits(loaded(folder)), logits(plain))


def test_recommended_options_are_those_of_the_description(tmp_path: Path) -> None:
    marian_models.write(tmp_path, SHAPE)
    files = {"models": ["model.npz"], "vocabs": ["vocab.spm"] * 2}
    description = files | {"beam-size": 6, "normalize": 0.6, "allow-unk": True}
    (tmp_path / "decoder.yml").write_text(yaml.safe_dump(description))
    generation = open_checkpoint(tmp_path).generation
    assert generation.number("num_beams") == 6
    assert generation.real("length_penalty") == 0.6
    assert not generation.flag("disable_unk")
    assert generation.flag("early_stopping"), "a beam of Marian ends when all of it has ended"


def with_ids(folder: Path, tokens: list[str]) -> Path:
    """Writes a model whose tokens have the ids of a list, and pieces of each side."""
    marian_models.write(folder, SHAPE)
    (folder / "vocab.spm").rename(folder / "source.spm")
    (folder / "target.spm").write_bytes(marian_models.pieces())
    (folder / "vocab.yml").write_text(yaml.safe_dump({token: i for i, token in enumerate(tokens)}))
    return folder


def test_a_vocabulary_of_ids_takes_its_pieces_from_each_side(plain: Loaded, tmp_path: Path) -> None:
    first, second, *others = marian_models.tokens()
    tokenizer = loaded(with_ids(tmp_path, [first, second, *reversed(others)])).tokenizer
    before = plain.tokenizer
    assert tokenizer.target.tokens(tokenizer.encode(SOURCE)) == before.target.tokens(
        before.encode(SOURCE)
    )
    assert tokenizer.encode(SOURCE) != before.encode(SOURCE)


def test_pieces_without_an_id_become_the_unknown_token(tmp_path: Path) -> None:
    imported = loaded(with_ids(tmp_path, marian_models.tokens()[:90]))
    assert 1 in imported.tokenizer.encode(SOURCE)
    assert max(imported.tokenizer.encode(SOURCE)) < 90
    assert set(imported.suppressed) == set(range(90, imported.model.config.vocabulary_size))


def test_a_shortlist_is_read_by_the_tokens_of_the_vocabulary(tmp_path: Path) -> None:
    folder = marian_models.write(tmp_path, SHAPE)
    assert shortlist_of(open_checkpoint(folder)) is None
    tokens = marian_models.tokens()
    (folder / "lex.enpt.bin").write_text(f"{tokens[170]} {tokens[150]} 0.9", encoding="utf-8")
    shortlist = shortlist_of(open_checkpoint(folder))
    assert shortlist
    candidates = {source: shortlist.candidates([source], (), 320)[100:] for source in (150, 160)}
    # A source token may be copied.
    assert [candidates[150].tolist(), candidates[160].tolist()] == [[150, 170], [160]]


def words(folder: Path, **changes: Any) -> Path:
    """Writes a model whose tokens are words; ``no`` and ``1`` are some that YAML knows."""
    marian_models.write(folder, SHAPE)
    (folder / "vocab.spm").unlink()
    tokens = ["</s>", "<unk>", "no", "1", ",", *(f"t{i}" for i in range(5, marian_models.TOKENS))]
    lines = [f"{token!r}: {changes.get(token, i)}\n" for i, token in enumerate(tokens)]
    (folder / "vocab.yml").write_text("".join(lines).replace("'no'", "no").replace("'1'", "1"))
    return folder


def test_words_stand_between_spaces_where_there_are_no_pieces(tmp_path: Path) -> None:
    tokenizer = loaded(words(tmp_path)).tokenizer
    assert tokenizer.encode(" no  1 , t7 t99999") == [2, 3, 4, 7, 1, 0]
    assert tokenizer.decode([2, 3, 4, 7]) == "no 1 , t7"


@pytest.mark.parametrize(
    ("spelling", "missing"), [("▁t{}", r"source\.spm"), ("t{}@@", r"source\.bpe")]
)
def test_pieces_without_what_divides_texts_into_them_are_refused_by_its_name(
    tmp_path: Path, spelling: str, missing: str
) -> None:
    folder = words(tmp_path)
    tokens = ["</s>", "<unk>", *(spelling.format(i) for i in range(2, marian_models.TOKENS))]
    (folder / "vocab.yml").write_text(yaml.safe_dump({token: i for i, token in enumerate(tokens)}))
    with pytest.raises(SeqserveError, match=rf"{missing}: is missing; .* of vocab\.yml"):
        loaded(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"t7": 8}, r"vocab\.yml: its ids are not 0 to 319"),
        ({"t7": "x"}, r"vocab\.yml: does not map each token to its id"),
    ],
)
def test_ids_of_words_must_be_whole(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(SeqserveError, match=message):
        loaded(words(tmp_path, **changes))


def test_the_end_token_may_have_another_id(tmp_path: Path) -> None:
    imported = loaded(words(tmp_path, **{"</s>": 1, "<unk>": 0}))
    assert imported.tokenizer.eos_id == imported.model.config.eos_id == 1


def test_a_vocabulary_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = words(tmp_path)
    (folder / "source.bpe").write_text("")
    with pytest.raises(SeqserveError, match=r"source\.bpe: texts are divided by subword-nmt"):
        loaded(folder)
    (folder / "vocab.yml").rename(folder / "vocab.fsv")
    description = {"models": ["model.npz"], "vocabs": ["vocab.fsv"] * 2}
    (folder / "decoder.yml").write_text(yaml.safe_dump(description))
    with pytest.raises(SeqserveError, match=r"vocab\.fsv: is a factored vocabulary"):
        loaded(folder)


@pytest.mark.parametrize("target_tokens", [256, 384])
def test_each_side_may_have_a_vocabulary(target_tokens: int, tmp_path: Path) -> None:
    shape = Shape(tied="target", target_tokens=target_tokens)
    imported = loaded(marian_models.write(tmp_path, shape))
    tokenizer, config = imported.tokenizer, imported.model.config
    ids, target_ids = tokenizer.encode(SOURCE), tokenizer.encode_target(SOURCE)
    assert ids != target_ids
    assert tokenizer.decode(target_ids) == SOURCE
    larger = max(marian_models.TOKENS, target_tokens)
    assert config.pad_id == config.bos_id == larger
    assert set(imported.suppressed) == set(range(target_tokens, config.vocabulary_size))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "s2s"}, r"model\.yml: type is not supported; transformer can be imported \(it"),
        ({"transformer_train_position_embeddings": True}, "train-position-embeddings is not supp"),
        ({"transformer_decoder_autoreg": "average-attention"}, "autoreg is not supported"),
        ({"transformer_decoder_autoreg": "rnn", "dec_cell": "gru"}, "dec-cell is not sup.*; ssru"),
        ({"transformer_ffn_activation": "gelu"}, "activation is not supported; swish or relu"),
        ({"transformer_ffn_depth": 3}, "transformer-ffn-depth is not supported; 2 can"),
        ({"transformer_tied_layers": [1, 1]}, "transformer-tied-layers is not supported"),
        ({"transformer_postprocess": "dhn"}, r"transformer-postprocess is not supp.*the norm can"),
        ({"transformer_postprocess_top": "n"}, r"'postprocess-top': 'n'}; the norm can come"),
        ({"lemma_dim_emb": 8}, "lemma-dim-emb is not supported"),
        ({"dim_vocabs": [300, 300]}, "dim-vocabs is less than the tokens of the voc.*, .320, 320"),
        ({"dim_emb": None}, "dim-emb is missing"),
        ({"transformer_heads": 7}, r"transformer-heads \(7\)"),
        ({"enc_depth": 3}, "the weight encoder_l3_self_Wq is missing"),
        ({"enc_depth": 1}, r"encoder_l2_.* is left over: special:model\.yml tells of a network"),
        ({"transformer_dim_ffn": 64}, r"ffn_W1 has the shape \[64, 128\]; by special:model\.yml"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        loaded(rewritten(tmp_path, **changes))


def test_settings_that_are_no_yaml_are_refused(tmp_path: Path) -> None:
    folder = marian_models.write(tmp_path, SHAPE)
    np.savez(folder / "model.npz", **{marian_models.SETTINGS: np.frombuffer(b"a: [", np.int8)})
    with pytest.raises(CheckpointError, match=r"special:model\.yml: is not YAML"):
        loaded(folder)

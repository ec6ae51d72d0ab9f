import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tests.unit.import_.tokenizers import checkpoints, corpus
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from seqserve_import.checkpoint import Checkpoint
from seqserve_import.loading import Loaded, load

transformers = pytest.importorskip("transformers")

TEXTS = [*corpus.plain_lines(20), "def f(x):\n    return x", "  two  spaces ", "</s> [SEP] <s>"]


def t5(folder: Path, size: int, **ids: int) -> Path:
    """Saves the weights of a T5."""
    values = dict(d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, vocab_size=size)
    return save(folder, "T5", values, ids)


def bart(folder: Path, size: int, kind: str = "Bart", **ids: int) -> Path:
    """Saves the weights of a BART or of an mBART."""
    values = dict(d_model=16, encoder_layers=1, decoder_layers=1, vocab_size=size)
    values |= dict(encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32)
    values |= dict(encoder_ffn_dim=24, decoder_ffn_dim=24)
    return save(folder, kind, values, ids)


def save(folder: Path, kind: str, values: dict[str, Any], ids: dict[str, int]) -> Path:
    """Saves random weights of a network; ids are those of ``pad``, ``bos``, ``eos``, and so on."""
    config = getattr(transformers, f"{kind}Config")
    model = getattr(transformers, f"{kind}ForConditionalGeneration")
    torch.manual_seed(0)
    model(
        config(**values, **{f"{name}_token_id": id_ for name, id_ in ids.items()})
    ).save_pretrained(folder)
    return folder


def byte_level(folder: Path) -> dict[str, int]:
    """Writes ``vocab.json`` and ``merges.txt``; returns the ids."""
    checkpoints.bart(folder, ["<pad>", "<s>", "</s>", "<unk>", "<mask>"])
    ids: dict[str, int] = json.loads((folder / "vocab.json").read_text())
    return ids


def codet5(folder: Path) -> Path:
    """RoBERTa's byte-level BPE, sentinels that are named by objects, and T5's weights."""
    ids = byte_level(folder)
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(4))]
    checkpoints.write(
        folder,
        tokenizer_config_json={"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False},
        special_tokens_map_json={
            "additional_special_tokens": [
                {"content": token, "lstrip": True, "normalized": True} for token in sentinels
            ],
            "eos_token": {"content": "</s>"},
            "pad_token": {"content": "<pad>"},
        },
        added_tokens_json={token: len(ids) + at for at, token in enumerate(sentinels)},
    )
    return t5(folder, len(ids) + 4, pad=0, bos=1, eos=2, decoder_start=0)


def fred_t5(folder: Path) -> Path:
    """GPT-2's byte-level BPE, whose tasks are tokens behind it, and T5's weights."""
    ids = byte_level(folder)
    tasks = ["<LM>", "<SC1>", "<extra_id_0>"]
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    checkpoints.write(
        folder,
        tokenizer_config_json={
            "tokenizer_class": "GPT2Tokenizer",
            "add_prefix_space": False,
            **names,
        },
        special_tokens_map_json=names,
        added_tokens_json={token: len(ids) + at for at, token in enumerate(tasks)},
    )
    return t5(folder, len(ids) + 8, pad=0, eos=2, decoder_start=0)


def kobart(folder: Path) -> Path:
    """A ``tokenizer.json`` of BPE that appends nothing, with other ids than BART's."""
    raw = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    raw.normalizer = normalizers.NFKC()
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    special = ["<s>", "</s>", "<usr>", "<pad>", "<sys>", "<unk>", "<mask>", "<unused0>"]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    raw.train_from_iterator(corpus.plain_lines(300), trainer)
    folder.mkdir(exist_ok=True)
    raw.save(str(folder / "tokenizer.json"))
    checkpoints.write(folder, tokenizer_config_json={"tokenizer_class": "PreTrainedTokenizerFast"})
    size = raw.get_vocab_size()
    return bart(folder, size, pad=3, bos=1, eos=1, decoder_start=1, forced_eos=1)


def indicbart(folder: Path) -> Path:
    """ALBERT's SentencePiece with control tokens and tags behind it, and mBART's weights."""
    size = checkpoints.indicbart(folder)
    ends = dict.fromkeys(("eos", "decoder_start", "forced_eos"), size + 1)
    return bart(folder, size + 8, "MBart", pad=0, bos=size, **ends)


def chinese_bart(folder: Path) -> Path:
    """BERT's words, whose control tokens no file names, and BART's weights."""
    words = ["[PAD]", *(f"[unused{number}]" for number in range(1, 4)), "[UNK]", "[CLS]", "[SEP]"]
    words += ["[MASK]", *"我们在花园里喝咖啡，。ab", "##b", "##a"]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    checkpoints.write(
        folder, tokenizer_config_json={"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    )
    return bart(folder, len(words), pad=0, bos=5, eos=6, decoder_start=6, forced_eos=6)


SHAPES: list[Callable[[Path], Path]] = [codet5, fred_t5, kobart, indicbart, chinese_bart]
_WORDS = {codet5: "<s> a", fred_t5: "a", kobart: "▁ a", indicbart: "▁ a", chinese_bart: "<s> a"}


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.__name__)
def shape(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    made: Callable[[Path], Path] = request.param
    return made


def test_it_is_imported_with_the_tokenizer_that_it_has(
    shape: Callable[[Path], Path], tmp_path: Path
) -> None:
    loaded: Loaded = load(Checkpoint(shape(tmp_path / "checkpoint")))
    tokenizer = loaded.tokenizer
    assert tokenizer.source.tokens(tokenizer.encode("a")) == [*_WORDS[shape].split(), "</s>"]
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids.count(tokenizer.eos_id) == 1
        assert max(ids) < loaded.model.config.vocabulary_size

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tests.unit.import_.tokenizers import checkpoints, corpus
from tests.unit.import_.tokenizers.comparing import served
from tokenizers import models, normalizers, pre_tokenizers

from seqserve_import.tokenizers.convert import convert
from seqserve_server.text.tokenizer import Tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")

LINES = corpus.lines(200)
CHINESE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "我", "们", "在", "花", "园", "a", "##b"]
NAMES = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def words(folder: Path, **settings: Any) -> Path:
    """Writes the files of a Chinese BART."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(CHINESE) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(NAMES | settings))
    return folder


def test_codet5_has_the_files_of_bart(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = checkpoints.bart(tmp_path)
    files = {"tokenizer_class": "RobertaTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(files))
    paths = {"vocab": str(folder / "vocab.json"), "merges": str(folder / "merges.txt")}
    reference = transformers.RobertaTokenizer(**paths)
    encode = served(convert(folder, "t5"))
    assert [encode(text) for text in LINES] == [reference(text)["input_ids"] for text in LINES]


@pytest.mark.parametrize("text", ["我们在花园", "我x 们", " ab aB ", "[SEP]", ""])
def test_chinese_bart_has_the_words_of_bert(text: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = words(tmp_path, do_lower_case=False)
    reference = transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=False)
    tokenizer = Tokenizer(convert(folder, "bart"))
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id)
    assert ids == (0, 1, 2, 3)
    encoded = tokenizer.encode(text)
    if text != "[SEP]":  # which theirs takes for the end
        assert encoded == reference(text)["input_ids"]
    assert encoded.count(3) == 1
    assert tokenizer.decode(tokenizer.encode("我们 ab")) == "我 们 ab"


def test_a_tokenizer_json_may_spell_its_control_tokens_otherwise(tmp_path: Path) -> None:
    folder = words(tmp_path)
    written = tokenizers.Tokenizer(
        models.WordPiece({token: id_ for id_, token in enumerate(CHINESE)}, unk_token="[UNK]")
    )
    written.normalizer = normalizers.BertNormalizer()
    written.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    written.add_special_tokens(CHINESE[:5])
    written.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    written.save(str(folder / "tokenizer.json"))
    taken = Tokenizer(convert(folder, "bart"))
    (folder / "tokenizer.json").unlink()
    made = Tokenizer(convert(folder, "bart"))
    for text in ("我们在花园", "AB x", "[SEP]"):
        assert taken.encode(text) == made.encode(text)
    assert taken.decode([5, 6, 3]) == made.decode([5, 6, 3])


def test_indicbart_has_pieces_and_its_control_tokens_behind_them(tmp_path: Path) -> None:
    size = checkpoints.indicbart(tmp_path)
    added = {"<s>": size, "</s>": size + 1, "<2en>": size + 2, "<2hi>": size + 3}
    tokenizer = Tokenizer(convert(tmp_path, "mbart", size + 4), size + 4)
    assert {token: tokenizer.target.id_of(token) for token in added} == added
    assert tokenizer.eos_id == size + 1
    ids = tokenizer.encode("</s> <2hi>")
    assert not {size, size + 2, size + 3} & {*ids} and ids.count(size + 1) == 1

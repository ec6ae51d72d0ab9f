"""Tokens that were added to a tokenizer are one token, and may be generated."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.import_.tokenizers import checkpoints
from tests.unit.import_.tokenizers.comparing import served

from seqserve_import.files import CheckpointError
from seqserve_import.tokenizers.convert import convert, convert_target
from seqserve_server.text.tokenizer import Tokenizer

TERM = "<term>"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def marian(folder: Path) -> str:
    checkpoints.marian(folder)
    return "marian"


def m2m100(folder: Path) -> str:
    checkpoints.m2m100(folder, checkpoints.spm())
    return "m2m_100"


def nllb(folder: Path) -> str:
    checkpoints.fairseq(folder, checkpoints.spm())
    return "m2m_100"


def t5(folder: Path) -> str:
    checkpoints.t5(folder, checkpoints.t5_spm())
    return "t5"


def pegasus(folder: Path) -> str:
    checkpoints.t5(folder, checkpoints.t5_spm())
    return "pegasus"


def byt5(folder: Path) -> str:
    checkpoints.write(folder, tokenizer_config_json={"tokenizer_class": "ByT5Tokenizer"})
    return "t5"


def bart(folder: Path) -> str:
    checkpoints.bart(folder)
    return "bart"


KINDS = [marian, m2m100, nllb, t5, pegasus, byt5, bart]


def change(path: Path, **values: Any) -> None:
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | values))


def added_tokens(folder: Path, id_: int) -> None:
    change(folder / "added_tokens.json", **{TERM: id_})


def added_tokens_decoder(folder: Path, id_: int) -> None:
    entry = {"content": TERM, "special": True, "normalized": False, "lstrip": False}
    change(folder / "tokenizer_config.json", added_tokens_decoder={str(id_): entry})


def additional_special_tokens(folder: Path, id_: int) -> None:
    change(folder / "special_tokens_map.json", additional_special_tokens=[TERM])


@pytest.mark.parametrize(
    "add", [added_tokens, added_tokens_decoder, additional_special_tokens], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_added_token_is_one_token_in_a_text_and_in_an_answer(
    kind: Any, add: Any, tmp_path: Path
) -> None:
    model_type = kind(tmp_path)
    size = convert(tmp_path, model_type).get_vocab_size()
    if kind is marian:  # whose pieces without an id come after that
        size = len(json.loads((tmp_path / "vocab.json").read_text()))
    add(tmp_path, size)
    tokenizer = Tokenizer(convert(tmp_path, model_type, size + 1), size + 1)
    assert tokenizer.id_of(TERM) == size
    ids = tokenizer.encode(f"a b {TERM} c")
    assert ids.count(size) == 1
    assert tokenizer.unk_id not in tokenizer.encode(TERM)
    assert TERM in tokenizer.decode(ids)


def test_rows_between_the_vocabulary_and_an_added_token_have_no_token(tmp_path: Path) -> None:
    model_type = t5(tmp_path)
    size = convert(tmp_path, model_type).get_vocab_size()
    added_tokens(tmp_path, size + 3)
    tokenizer = convert(tmp_path, model_type, size + 5)
    assert tokenizer.token_to_id(TERM) == size + 3
    assert tokenizer.id_to_token(size).startswith("<unused")


def test_targets_with_ids_of_their_own_have_no_added_tokens(tmp_path: Path) -> None:
    checkpoints.marian(tmp_path, separate=True)
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    change(tmp_path / "added_tokens.json", **{"<pad>": size - 1, TERM: size})
    target = convert_target(tmp_path, "marian", size + 1)
    assert target is not None
    assert convert(tmp_path, "marian", size + 1).token_to_id(TERM) == size
    assert target.token_to_id(TERM) is None


def test_tokens_that_the_vocabulary_has_stay_what_they_are(tmp_path: Path) -> None:
    model_type = nllb(tmp_path)
    before = convert(tmp_path, model_type)
    known = {token: before.token_to_id(token) for token in ("</s>", "deu_Latn", "<mask>")}
    change(tmp_path / "added_tokens.json", **known)
    change(tmp_path / "special_tokens_map.json", additional_special_tokens=["deu_Latn"])
    assert convert(tmp_path, model_type).to_str() == before.to_str()


def test_a_language_that_was_added_is_no_text(tmp_path: Path) -> None:
    model_type = nllb(tmp_path)
    size = convert(tmp_path, model_type).get_vocab_size()
    change(tmp_path / "added_tokens.json", tyv_Cyrl=size)
    tokenizer = Tokenizer(convert(tmp_path, model_type, size + 1), size + 1)
    assert tokenizer.id_of("tyv_Cyrl") == size
    assert tokenizer.is_hidden(size)
    assert size not in tokenizer.encode("a tyv_Cyrl b")


def test_ids_and_text_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    checkpoints.marian(tmp_path)
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    added_tokens(tmp_path, size)
    paths = {name: str(tmp_path / f"{name}.spm") for name in ("source", "target")}
    reference = transformers.MarianTokenizer(
        source_spm=paths["source"],
        target_spm=paths["target"],
        vocab=str(tmp_path / "vocab.json"),
    )
    reference.add_tokens([TERM])
    encode = served(convert(tmp_path, "marian", size + 1))
    for text in (f"a {TERM} b", TERM, f"{TERM}{TERM}", f"ab{TERM}c"):
        assert encode(text) == reference(text)["input_ids"], text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens_json": {TERM: 0}}, "tokens '<term>' and '<pad>' have the same id, 0"),
        ({"added_tokens_json": {"</s>": 7}}, "the token '</s>' has the id 7, but 1 in the vocab"),
        ({"added_tokens_json": {TERM: "x"}}, "added_tokens.json: 'x' is no id of a token"),
        ({"added_tokens_json": {TERM: 10**12}}, "1000000000000 is no id of a token"),
        ({"added_tokens_json": {TERM: 1 << 20}}, "'<term>', for which the model has no embedding"),
        ({"added_tokens_json": []}, "added_tokens.json: is not a JSON object"),
        ({"tokenizer_config_json": {"added_tokens_decoder": []}}, "decoder is not an object"),
        ({"tokenizer_config_json": {"added_tokens_decoder": {"9": 3}}}, "3 is no token"),
        (
            {"special_tokens_map_json": {"additional_special_tokens": [TERM]}},
            "names the token '<term>', for which the model has no embedding; take it out",
        ),
    ],
)
def test_an_added_token_that_does_not_fit_is_named(
    files: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model_type = t5(tmp_path)
    size = convert(tmp_path, model_type).get_vocab_size()
    checkpoints.write(tmp_path, **files)
    with pytest.raises(CheckpointError, match=message):
        convert(tmp_path, model_type, size)

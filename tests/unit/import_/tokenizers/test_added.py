import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tests.unit.import_.tokenizers import checkpoints
from tests.unit.import_.tokenizers.comparing import served

from seqserve_import.checkpoint import Checkpoint
from seqserve_import.files import CheckpointError
from seqserve_import.loading import load
from seqserve_import.tokenizers.convert import convert, convert_target
from seqserve_server.text.tokenizer import Tokenizer

TERM = "<term>"

pytestmark = pytest.mark.filterwarnings("ignore")


def fairseq(folder: Path) -> object:
    return checkpoints.fairseq(folder, checkpoints.spm())


def sentencepiece(folder: Path) -> object:
    return checkpoints.t5(folder, checkpoints.t5_spm())


BYTES = {"tokenizer_class": "ByT5Tokenizer"}
WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "marian": ("marian", checkpoints.marian),
    "m2m100": ("m2m_100", lambda folder: checkpoints.m2m100(folder, checkpoints.spm())),
    "nllb": ("m2m_100", fairseq),
    "mbart": ("mbart", fairseq),
    "mbart50": ("mbart", fairseq),
    "t5": ("t5", sentencepiece),
    "pegasus": ("pegasus", sentencepiece),
    "byt5": ("t5", lambda folder: checkpoints.write(folder, tokenizer_config_json=BYTES)),
    "bart": ("bart", checkpoints.bart),
}


def written(kind: str, folder: Path) -> str:
    """Writes the tokenizer of a kind and gives its type of model."""
    model_type, write = WRITERS[kind]
    write(folder)
    return model_type


LANGUAGES = {"m2m100": 100, "nllb": 202, "mbart": 25, "mbart50": 52}


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
@pytest.mark.parametrize("kind", [kind for kind in WRITERS if not kind.startswith("mbart")])
def test_an_added_token_is_one_token_in_all_texts(kind: str, add: Any, tmp_path: Path) -> None:
    model_type = written(kind, tmp_path)
    size = convert(tmp_path, model_type).get_vocab_size()
    if kind == "marian":  # whose pieces without an id come after that
        size = len(json.loads((tmp_path / "vocab.json").read_text()))
    add(tmp_path, size)
    tokenizer = Tokenizer(convert(tmp_path, model_type, size + 1), size + 1)
    assert tokenizer.target.id_of(TERM) == size
    ids = tokenizer.encode(f"a b {TERM} c")
    assert ids.count(size) == 1
    assert tokenizer.unk_id not in tokenizer.encode(TERM)
    assert TERM in tokenizer.decode(ids)


def test_rows_between_the_vocabulary_and_an_added_token_have_no_token(tmp_path: Path) -> None:
    size = convert(tmp_path, written("t5", tmp_path)).get_vocab_size()
    added_tokens(tmp_path, size + 3)
    tokenizer = convert(tmp_path, "t5", size + 5)
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
    model_type = written("nllb", tmp_path)
    before = convert(tmp_path, model_type)
    known = {token: before.token_to_id(token) for token in ("</s>", "deu_Latn", "<mask>")}
    change(tmp_path / "added_tokens.json", **known)
    change(tmp_path / "special_tokens_map.json", additional_special_tokens=["deu_Latn"])
    assert convert(tmp_path, model_type).to_str() == before.to_str()


def test_a_language_that_was_added_is_no_text(tmp_path: Path) -> None:
    model_type = written("nllb", tmp_path)
    size = convert(tmp_path, model_type).get_vocab_size()
    change(tmp_path / "added_tokens.json", tyv_Cyrl=size)
    tokenizer = Tokenizer(convert(tmp_path, model_type, size + 1), size + 1)
    assert tokenizer.target.id_of("tyv_Cyrl") == size
    assert size in tokenizer.target.hidden_ids
    assert size not in tokenizer.encode("a tyv_Cyrl b")


@pytest.mark.parametrize("add", ["added_tokens.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("kind", "name", "token", "code"),
    [
        ("m2m100", "M2M100", "__gsw__", "gsw"),
        ("nllb", "M2M100", "tyv_Cyrl", "tyv_Cyrl"),
        ("mbart", "MBart", "eo_XX", "eo_XX"),
        ("mbart50", "MBart", "eo_XX", "eo_XX"),
    ],
)
def test_a_model_that_was_taught_a_language_is_imported_with_it(
    kind: str, name: str, token: str, code: str, add: str, tmp_path: Path
) -> None:
    model_type = written(kind, tmp_path)
    # mBART tells from its rows how many languages it has.
    rows = 2000 if kind == "mbart50" else 0
    size = convert(tmp_path, model_type, rows).get_vocab_size()
    entry = {str(size): {"content": token, "special": True, "lstrip": False}}
    decoder = {"added_tokens_decoder": entry}
    change(tmp_path / add, **({token: size} if add.startswith("added") else decoder))
    config = getattr(transformers, f"{name}Config")(
        vocab_size=size + 1, d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8,
        max_position_embeddings=32, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    getattr(transformers, f"{name}ForConditionalGeneration")(config).save_pretrained(tmp_path)
    template = load(Checkpoint(tmp_path)).template
    assert template is not None
    assert template.target_languages[code] == template.source_languages[code] == token
    assert len(template.target_languages) == LANGUAGES[kind] + 1


def test_ids_and_text_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    checkpoints.marian(tmp_path)
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    added_tokens(tmp_path, size)
    spm = {f"{name}_spm": str(tmp_path / f"{name}.spm") for name in ("source", "target")}
    reference = transformers.MarianTokenizer(**spm, vocab=str(tmp_path / "vocab.json"))
    reference.add_tokens([TERM])
    encode = served(convert(tmp_path, "marian", size + 1))
    for text in (f"a {TERM} b", TERM, f"{TERM}{TERM}", f"ab{TERM}c"):
        assert encode(text) == reference(text)["input_ids"], text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens_json": {TERM: 0}}, "tokens '<term>' and '<pad>' have the same id, 0"),
        ({"added_tokens_json": {"</s>": 7}}, "the token '</s>' has the id 7, but 1 in the vocab"),
        ({"added_tokens_json": {TERM: "x"}}, "added_tokens.json: 'x' is not an id of a token"),
        ({"added_tokens_json": {TERM: 10**12}}, "1000000000000 is not an id of a token"),
        ({"added_tokens_json": {TERM: 1 << 20}}, "'<term>', for which the model has no embedding"),
        ({"added_tokens_json": []}, "added_tokens.json: is not a JSON object"),
        ({"tokenizer_config_json": {"added_tokens_decoder": []}}, "decoder is not an object"),
        ({"tokenizer_config_json": {"added_tokens_decoder": {"9": 3}}}, "3 is not a token"),
        (
            {"special_tokens_map_json": {"additional_special_tokens": [TERM]}},
            "names the token '<term>', for which the model has no embedding; remove it",
        ),
    ],
)
def test_a_misfit_of_added_tokens(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    size = convert(tmp_path, written("t5", tmp_path)).get_vocab_size()
    checkpoints.write(tmp_path, **files)
    with pytest.raises(CheckpointError, match=message):
        convert(tmp_path, "t5", size)

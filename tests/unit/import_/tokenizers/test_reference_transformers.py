"""Converted tokenizers give the ids and the text of transformers, which has its own for these."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tests.unit.import_.tokenizers import checkpoints, corpus
from tests.unit.import_.tokenizers.comparing import Encode, decoded_alike, differences, served, tied

from seqserve_import.tokenizers.convert import convert, convert_target
from seqserve_model.vocabulary import save_tokenizer
from seqserve_server.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

LINES = corpus.lines(5000)

# Marian's recommends sacremoses, and never calls it.
pytestmark = pytest.mark.filterwarnings("ignore")


def marian(folder: Path, **options: object) -> Any:
    files = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}
    paths = {name: str(folder / file) for name, file in files.items()}
    if options.get("separate_vocabs"):
        paths["target_vocab_file"] = str(folder / "target_vocab.json")
    return transformers.MarianTokenizer(**paths, **options)


def alike(
    tokenizer: tokenizers.Tokenizer, reference: Any, encode: Encode | None = None, file: bytes = b""
) -> None:
    """Asserts that ids of texts, and texts of ids, are those of transformers.

    Where two divisions have the same score, either is right.
    """
    encode = encode or (lambda text: list(reference(text)["input_ids"]))
    different = differences(LINES, served(tokenizer), encode)
    assert [text for text in different if not (file and tied(text, file, tokenizer))] == []
    assert len(different) <= 20
    decoded_alike(
        range(len(reference)),
        500,
        lambda ids: str(tokenizer.decode(ids)),
        lambda ids: str(
            reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        ),
    )


def test_marian_encodes_with_one_model_and_decodes_any_token(tmp_path: Path) -> None:
    folder = checkpoints.marian(tmp_path, languages=(">>fra<<", ">>deu<<"))
    alike(convert(folder, "marian"), marian(folder), file=(folder / "source.spm").read_bytes())


def test_marian_encodes_targets_with_the_other_model(tmp_path: Path) -> None:
    folder = checkpoints.marian(tmp_path)
    reference, target = marian(folder), convert_target(folder, "marian")
    assert target is not None
    file = (folder / "target.spm").read_bytes()
    alike(target, reference, lambda text: list(reference(text_target=text)["input_ids"]), file)


def test_marian_with_separate_vocabularies(tmp_path: Path) -> None:
    folder = checkpoints.marian(tmp_path, separate=True)
    reference, source = marian(folder, separate_vocabs=True), convert(folder, "marian")
    target = convert_target(folder, "marian")
    assert target is not None
    theirs = [reference(text)["input_ids"] for text in LINES[:500]]
    assert [served(source)(text) for text in LINES[:500]] == theirs
    theirs = [reference(text_target=text)["input_ids"] for text in LINES[:500]]
    assert [served(target)(text) for text in LINES[:500]] == theirs


@pytest.mark.parametrize("text", [">>fra<< Hello", ">>fra<<hello", ">>fra<<", ">>deu<<  a b"])
def test_a_language_of_marian_is_one_token_at_the_front(text: str, tmp_path: Path) -> None:
    folder = checkpoints.marian(tmp_path, languages=(">>fra<<", ">>deu<<"))
    ids = served(convert(folder, "marian"))(text)
    assert ids == marian(folder)(text)["input_ids"]
    assert ids[0] in (2, 3)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_m2m100_with_pieces_that_have_no_id(kind: str, tmp_path: Path) -> None:
    folder = checkpoints.m2m100(tmp_path, checkpoints.spm(kind), without=1)
    spm = str(folder / "sentencepiece.bpe.model")
    reference = transformers.M2M100Tokenizer(str(folder / "vocab.json"), spm)
    tokenizer = convert(folder, "m2m_100")
    # Theirs begin with a language.
    file = checkpoints.spm(kind)
    alike(tokenizer, reference, lambda text: list(reference(text)["input_ids"][1:]), file)
    for code in ("af", "en", "zu"):
        assert tokenizer.token_to_id(f"__{code}__") == reference.get_lang_id(code)


def test_byt5(tmp_path: Path) -> None:
    settings = {"tokenizer_class": "ByT5Tokenizer"}
    folder = checkpoints.write(tmp_path, tokenizer_config_json=settings)
    reference, tokenizer = transformers.ByT5Tokenizer(), convert(folder, "t5")
    alike(tokenizer, reference)
    for number in (0, 99, 124):
        token = f"<extra_id_{number}>"
        assert tokenizer.token_to_id(token) == reference.convert_tokens_to_ids(token)


def test_bart_of_vocabulary_and_merges(tmp_path: Path) -> None:
    folder = checkpoints.bart(tmp_path)
    paths = {"vocab": str(folder / "vocab.json"), "merges": str(folder / "merges.txt")}
    alike(convert(folder, "bart"), transformers.BartTokenizer(**paths))


LANGUAGES = {"NllbTokenizer": "m2m_100", "MBartTokenizer": "mbart", "MBart50Tokenizer": "mbart"}


@pytest.mark.parametrize(("name", "model_type"), LANGUAGES.items())
def test_languages_are_those_of_transformers(name: str, model_type: str, tmp_path: Path) -> None:
    """In the order of its list, behind the pieces; before <mask>."""
    file = checkpoints.spm()
    folder = checkpoints.fairseq(tmp_path, file, tokenizer_config_json={"tokenizer_class": "T5"})
    module = getattr(transformers, name).__module__
    codes = __import__(module, fromlist=["FAIRSEQ_LANGUAGE_CODES"]).FAIRSEQ_LANGUAGE_CODES
    first = len(checkpoints.pieces(file)) + 1
    tokenizer = convert(folder, model_type, first + len(codes) + 1)
    ids = [tokenizer.token_to_id(code) for code in codes]
    assert ids == list(range(first, first + len(codes)))
    assert tokenizer.token_to_id("<mask>") == first + len(codes)
    assert tokenizer.get_vocab_size() == first + len(codes) + 1


def test_an_artifact_divides_both_sides_of_marian(tmp_path: Path) -> None:
    folder = checkpoints.marian(tmp_path / "checkpoint")
    reference = marian(folder)
    size = len(reference.encoder)
    made = Tokenizer(convert(folder, "marian"), size, convert_target(folder, "marian"))
    files = save_tokenizer(made, tmp_path / "tokenizer.json")
    assert files == ["tokenizer.json", "target_tokenizer.json"]
    loaded = Tokenizer.load(tmp_path / "tokenizer.json", size, has_target=True)
    for text in LINES[:300]:
        # The server spells a source as the vocabulary can read it.
        source = reference(loaded.spelled(text).text)["input_ids"]
        target = reference(text_target=text)["input_ids"]
        assert (loaded.encode(text), loaded.encode_target(text)) == (source, target)
        assert not any(token.endswith(" ") for token in loaded.target.tokens([*source, *target]))
    for token in ("▁ziel", "ganzeigenes"):
        assert loaded.target.id_of(token) == reference.encoder[token]
        assert loaded.target.tokens([reference.encoder[token]]) == [token]

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.import_.tokenizers import checkpoints, corpus

from seqserve_export.tolerance import ParityError
from seqserve_import.files import CheckpointError
from seqserve_import.tokenizers.convert import check_tokens, convert, convert_target, pieces_of
from seqserve_import.tokenizers.segmentation import Model
from seqserve_server.text.tokenizer import Tokenizer


def ready(folder: Path, template: str = "$A </s>") -> Path:
    """Writes a folder with a tokenizer.json whose post-processor adds what the template says."""
    tokenizer = convert(checkpoints.fairseq(folder, checkpoints.spm()), "m2m_100")
    special = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>", "fra_Latn")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(template, None, special)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def ends(tokenizer: tokenizers.Tokenizer) -> list[str]:
    return list(tokenizer.encode("").tokens)


def test_a_tokenizer_json_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = ready(tmp_path, "<s> $A </s>")
    taken = convert(folder, "bart")
    written = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert taken.to_str() == written.to_str()
    assert ends(taken) == ["<s>", "</s>"]


@pytest.mark.parametrize(
    ("template", "model_type"),
    [
        # The language of a source is that of a request.
        ("fra_Latn $A </s>", "m2m_100"),
        ("$A </s> fra_Latn", "m2m_100"),
        # KoBART's appends none, though its model was trained with it.
        ("$A", "t5"),
        ("$A", "bart"),
    ],
)
def test_a_tokenizer_json_adds_an_end_token_and_no_language(
    template: str, model_type: str, tmp_path: Path
) -> None:
    assert ends(convert(ready(tmp_path, template), model_type)) == ["</s>"]


def test_a_tokenizer_json_that_puts_a_begin_in_front_keeps_it(tmp_path: Path) -> None:
    folder = ready(tmp_path, "<s> $A")
    path = folder / "tokenizer.json"
    padded = tokenizers.Tokenizer.from_file(str(path))
    padded.enable_padding(length=9)
    padded.normalizer = tokenizers.normalizers.Replace("a", "")  # as BPE does without such a letter
    padded.save(str(path))
    assert ends(convert(folder, "bart")) == ["<s>", "</s>"]


@pytest.mark.parametrize("template", ["$A </s> </s>", "$A fra_Latn </s>", "fra_Latn $A"])
def test_a_tokenizer_json_that_adds_other_tokens_is_refused(template: str, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"tokenizer\.json: its post_processor adds .* to a t"
    ):
        convert(ready(tmp_path, template), "bart")


def test_a_tokenizer_json_gets_the_tokens_that_its_settings_add(tmp_path: Path) -> None:
    folder = ready(tmp_path)
    size = convert(folder, "bart").get_vocab_size()
    checkpoints.write(folder, added_tokens_json={"<term>": size})
    decoder = {"2": {"content": "</s>"}, str(size + 1): {"content": "<unit>", "special": False}}
    checkpoints.write(folder, tokenizer_config_json={"added_tokens_decoder": decoder})
    tokenizer = Tokenizer(convert(folder, "bart"))
    assert {size, size + 1} < {*tokenizer.encode("a <term><unit>")}
    checkpoints.write(folder, added_tokens_json={"<term>": size + 2})
    with pytest.raises(CheckpointError, match=rf"'<unit>' has the id {size + 1}, but would get "):
        convert(folder, "bart")


def test_marian_is_made_of_its_own_files_even_beside_a_tokenizer_json(tmp_path: Path) -> None:
    folder = checkpoints.marian(ready(tmp_path))
    ids = json.loads((folder / "vocab.json").read_text())
    tokenizer = convert(folder, "marian")
    assert [tokenizer.token_to_id(token) for token in ("</s>", "<unk>", "<pad>")] == [
        *(0, 1),
        len(ids) - 1,
    ]


def test_no_tokenizer_of_targets_where_it_is_that_of_sources(tmp_path: Path) -> None:
    folder = checkpoints.marian(tmp_path)
    assert convert_target(folder, "marian") is not None
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    assert convert_target(folder, "marian") is None
    assert convert_target(folder, "t5") is None


def test_t5_has_as_many_extra_ids_as_its_settings_say(tmp_path: Path) -> None:
    file = checkpoints.t5_spm()
    size = len(checkpoints.pieces(file))
    tokenizer = convert(checkpoints.t5(tmp_path, file), "t5")
    assert tokenizer.token_to_id("<extra_id_99>") == size
    assert tokenizer.token_to_id("<extra_id_0>") == size + 99
    folder = checkpoints.t5(tmp_path, file, tokenizer_config_json={"extra_ids": 0})
    assert convert(folder, "mt5").get_vocab_size() == size


def test_pegasus_has_its_own_tokens_first(tmp_path: Path) -> None:
    file = checkpoints.t5_spm()
    tokenizer = convert(checkpoints.t5(tmp_path, file), "pegasus")
    tokens = ["<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk_2>", "<unk_102>", "<unk>"]
    assert [tokenizer.token_to_id(token) for token in tokens] == [0, 1, 2, 3, 4, 104, 105]
    assert tokenizer.id_to_token(106) == checkpoints.pieces(file)[3]


@pytest.mark.parametrize("name", ["MBartTokenizer", "MBart50Tokenizer", "T5Tokenizer", None])
@pytest.mark.parametrize(("languages", "mask", "spare"), [(25, 0, 0), (52, 0, 0), (52, 1, 12)])
def test_mbart_has_the_languages_that_its_table_has_rows_for_whatever_its_class_is_called(
    name: str | None, languages: int, mask: int, spare: int, tmp_path: Path
) -> None:
    file = checkpoints.spm()
    last = len(checkpoints.pieces(file)) + 1 + languages
    settings = {"tokenizer_class": name, "added_tokens_decoder": {last: "<mask>"} if mask else {}}
    folder = checkpoints.fairseq(tmp_path, file, tokenizer_config_json=settings)
    tokenizer = convert(folder, "mbart", last + 1 + spare)
    assert tokenizer.get_vocab_size() == last + 1
    assert tokenizer.token_to_id("zh_CN" if languages == 25 else "sl_SI") == last - 1


def test_an_mbart_of_25_languages_may_have_rows_for_more(tmp_path: Path) -> None:
    file = checkpoints.spm()
    last = len(checkpoints.pieces(file)) + 1 + 25
    settings = {"tokenizer_class": "MBart50Tokenizer", "added_tokens_decoder": {last: "<mask>"}}
    folder = checkpoints.fairseq(tmp_path, file, tokenizer_config_json=settings)
    assert convert(folder, "mbart", last + 64).get_vocab_size() == last + 1


@pytest.mark.parametrize("text", ["a </s> b", "<s>", "</s><pad>", "fra_Latn", "<mask>", "<unk>"])
def test_text_that_spells_a_special_token_stays_text(text: str, tmp_path: Path) -> None:
    everything = checkpoints.spm(character_coverage=1.0, user_defined_symbols="<,/,>,_,b,k,p")
    for file in (everything, checkpoints.spm("bpe")):
        tokenizer = Tokenizer(convert(checkpoints.fairseq(tmp_path, file), "m2m_100"))
        ids = tokenizer.encode(text)[:-1]
        assert not any(id_ in tokenizer.target.hidden_ids for id_ in ids if id_ != tokenizer.unk_id)
        if file is everything and "L" not in text:
            assert tokenizer.decode(ids) == text


def test_pieces_without_an_id_are_unknown(tmp_path: Path) -> None:
    file = checkpoints.spm("bpe")
    raw = convert(checkpoints.m2m100(tmp_path, file, without=1), "m2m_100")
    size = raw.token_to_id("__zu__") + 1
    assert raw.get_vocab_size() > size
    tokenizer = Tokenizer(raw, size)
    ids = {id_ for text in corpus.lines(500) for id_ in tokenizer.encode(text)}
    assert max(ids) < size
    assert tokenizer.unk_id in ids


def test_m2m100_without_embeddings_of_its_languages(tmp_path: Path) -> None:
    folder = checkpoints.m2m100(tmp_path, checkpoints.spm("bpe"))
    size = convert(folder, "m2m_100").get_vocab_size()
    assert convert(folder, "m2m_100", size).get_vocab_size() == size
    with pytest.raises(CheckpointError, match=rf"languages, .* only {size - 1:,} embeddings"):
        convert(folder, "m2m_100", size - 1)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def nllb(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = checkpoints.spm(request.param)
    return Tokenizer(convert(checkpoints.fairseq(tmp_path_factory.mktemp("nllb"), file), "m2m_100"))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_stream_of_any_ids_joins_to_their_text(nllb: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, nllb.vocabulary_size - 1), max_size=20))
    stream = nllb.stream()
    text = "".join(stream.push([id_]) for id_ in ids)
    assert text + stream.flush(nllb.decode(ids)) == nllb.decode(ids)


def changed(**more: Any) -> bytes:
    """Returns a model of SentencePiece to which fields and pieces are added."""
    model = Model.FromString(checkpoints.t5_spm())
    model.MergeFrom(Model(**more))
    return model.SerializeToString()


WORDS, SUFFIX = {"model_type": 3}, {"treat_whitespace_as_suffix": True}
DAMAGED = {"precompiled_charsmap": b"\xff\xff\xff\x7fab"}


def without_end() -> bytes:
    model = Model.FromString(checkpoints.t5_spm())
    model.pieces[1].piece = "<end>"
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"\xff\xff", r"spiece\.model: is not a SentencePiece model; copy it again"),
        (b"", r"spiece\.model: has no pieces; copy it again"),
        (b"\x0a\x03\x0a\x01\xff", r"spiece\.model: has a piece that is not UTF-8; copy it again"),
        (
            changed(trainer_spec=WORDS),
            r"spiece\.model: was trained with words .* save the tokenizer",
        ),
        (
            changed(trainer_spec=SUFFIX),
            r"spiece\.model: was trained with treat_whitespace_as_suffix",
        ),
        (without_end(), r"its tokenizer has no token </s>; copy it again"),
        (changed(pieces=[{"piece": "</s>"}]), r"its tokenizer has two ids for .*; copy it again"),
        (changed(normalizer_spec=DAMAGED), r"spiece\.model: its table of characters is damaged"),
    ],
)
def test_a_damaged_model_file_is_named(file: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        convert(checkpoints.t5(tmp_path, file), "t5")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("source.spm", None, r"source\.spm: is missing"),
        ("vocab.json", None, r"vocab\.json: is missing"),
        ("vocab.json", b"{", r"vocab\.json: is not JSON"),
        ("vocab.json", b"[]", r"vocab\.json: is not a JSON object"),
        ("vocab.json", b'{"a": 0, "b": 2}', r"vocab\.json: its ids are not 0 to 1, once each"),
        ("vocab.json", b'{"a": 0, "b": "1"}', r"vocab\.json: its ids are not 0 to 1, once each"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1}', r"its tokenizer has no token <pad>"),
    ],
)
def test_a_damaged_file_of_marian_is_named(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = checkpoints.marian(tmp_path) / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        convert(tmp_path, "marian")


def test_a_damaged_tokenizer_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: is not a tokenizer\.json"):
        convert(tmp_path, "t5")


def test_damaged_merges_are_named(tmp_path: Path) -> None:
    (checkpoints.bart(tmp_path) / "merges.txt").write_text("a b\nfoo")
    with pytest.raises(CheckpointError, match=r"merges\.txt: is not a list of merges"):
        convert(tmp_path, "bart")


def test_a_folder_without_a_tokenizer_is_told_what_it_may_hold(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer .* takes tokenizer\.json, one of"):
        convert(tmp_path, "t5")


LINES = corpus.lines(100)


def test_tokens_of_every_family_are_compared(tmp_path: Path) -> None:
    folders = {
        "m2m_100": checkpoints.fairseq(tmp_path / "nllb", checkpoints.spm("bpe")),
        "pegasus": checkpoints.t5(tmp_path / "pegasus", checkpoints.t5_spm()),
        "marian": checkpoints.marian(tmp_path / "marian", languages=(">>fra<<",)),
    }
    for model_type, folder in folders.items():
        path = pieces_of(folder, model_type)
        assert path is not None
        raw = convert(folder, model_type)
        # Pieces of Marian that have no id come after all others.
        tokenizer = Tokenizer(raw, raw.token_to_id("<pad>") + 1 if model_type == "marian" else None)
        line = check_tokens(path, tokenizer, (), LINES)
        assert line.endswith("of 100, divided by SentencePiece")
        assert int(line.split()[2]) >= 98, line


def test_a_symbol_stands_for_itself(tmp_path: Path) -> None:
    folder = checkpoints.t5(tmp_path, checkpoints.t5_spm())
    size = convert(folder, "t5").get_vocab_size()
    checkpoints.write(folder, added_tokens_json={"<term>": size})
    tokenizer = Tokenizer(convert(folder, "t5", size + 1), size + 1)
    texts = ["a <term> b", "<term>", "c"]
    line = check_tokens(folder / "spiece.model", tokenizer, {"<term>"}, texts)
    assert line == "tokens equal          3 of 3, divided by SentencePiece"


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = checkpoints.t5(tmp_path / "t5", checkpoints.t5_spm())
    other = checkpoints.t5(tmp_path / "other", checkpoints.t5_spm(kind="bpe"))
    tokenizer = Tokenizer(convert(other, "t5"))
    with pytest.raises(ParityError, match=r"spiece\.model: only \d+ of 100 sentences get "):
        check_tokens(folder / "spiece.model", tokenizer, (), LINES)


def test_nothing_is_compared_where_the_tokenizer_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = checkpoints.t5(tmp_path, checkpoints.t5_spm())
    convert(folder, "t5").save(str(folder / "tokenizer.json"))
    assert pieces_of(folder, "t5") is None


def test_nothing_is_compared_without_sentencepiece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoints.t5(tmp_path, checkpoints.t5_spm())
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    tokenizer = Tokenizer(convert(folder, "t5"))
    assert check_tokens(folder / "spiece.model", tokenizer, (), LINES) == ""

import resource
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from seqserve.errors import NotWritten, OptionError
from seqserve_model.vocabulary import learn_vocabulary, save_tokenizer
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import BOS, EOS, PAD, UNK

TEXTS = ["The coffee tastes good.", "Der Kaffee schmeckt gut.", "Grüße aus Köln 🙂"] * 5
CONTROL = [PAD, BOS, EOS, UNK]


def byte_fallback() -> Tokenizer:
    return learn_vocabulary(TEXTS, size=320, characters=40)


def byte_level() -> Tokenizer:
    """As GPT-2 and BART have it."""
    raw = tokenizers.Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=290, special_tokens=CONTROL, initial_alphabet=alphabet, show_progress=False
        ),
    )
    return Tokenizer(raw)


def metaspace() -> Tokenizer:
    """As T5 and Marian have it; what the vocabulary lacks is unknown."""
    raw = tokenizers.Tokenizer(models.Unigram())
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    raw.train_from_iterator(
        TEXTS,
        trainers.UnigramTrainer(
            vocab_size=60, special_tokens=CONTROL, unk_token=UNK, show_progress=False
        ),
    )
    return Tokenizer(raw)


@pytest.fixture(scope="module", params=[byte_fallback, byte_level, metaspace])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    made: Tokenizer = request.param()
    return made


def test_a_text_ends_with_the_end_token(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The coffee")
    assert ids[-1] == tokenizer.eos_id
    assert ids.count(tokenizer.eos_id) == 1
    assert tokenizer.decode(ids) == "The coffee"


def test_what_is_cut_keeps_its_end_token(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The coffee tastes good.")
    assert tokenizer.truncate(ids, len(ids)) == ids
    assert tokenizer.truncate(ids, 3) == [*ids[:2], tokenizer.eos_id]
    assert tokenizer.truncate(ids, 1) == [tokenizer.eos_id]


def test_the_end_token_cannot_be_typed(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("good </s><s><pad> bad")
    controls = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    assert not controls & set(ids[:-1])


def unigram(*special: str, size: int | None = None) -> Tokenizer:
    pieces = [*CONTROL, "▁", "▁a", "b", "<en>"]
    raw = tokenizers.Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=3))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.add_special_tokens([*CONTROL, *special])
    return Tokenizer(raw, size)


def test_no_special_token_can_be_typed_even_if_it_is_a_piece() -> None:
    assert unigram().encode("ab<en>") == [5, 6, 7, 2]
    assert unigram("<en>").encode("ab<en>") == [5, 6, 3, 2]
    assert unigram("<en>").encode_batch(["ab<en>"]) == [[5, 6, 3, 2]]


def test_a_model_may_lack_ids_for_special_tokens_only() -> None:
    assert unigram("<en>", size=8).target.id_of("<en>") == 7
    lacking = unigram("<en>", size=7)
    assert lacking.target.id_of("<en>") is None
    assert lacking.target.id_of("b") == 6
    for special, size in ("<en>", 6), ("b", 7):
        with pytest.raises(OptionError, match=f"more tokens than the model, which has {size}"):
            unigram(special, size=size)


def test_tokens_are_those_of_the_vocabulary(tokenizer: Tokenizer) -> None:
    assert tokenizer.target.tokens([0, 1, 2, 3]) == CONTROL
    assert tokenizer.target.tokens([10_000]) == [UNK]


def test_a_saved_tokenizer_is_read_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    text = "Grüße </s>, good?"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.vocabulary_size == tokenizer.vocabulary_size


def test_a_tokenizer_that_does_not_fit_on_the_disk_leaves_no_half_of_it(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(NotWritten, match=r"tokenizer\.json: File too large"):
            save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_what_a_tokenizer_puts_in_front_is_put_before_sources_alone() -> None:
    """As in BART."""
    raw = tokenizers.Tokenizer(models.WordLevel({PAD: 0, BOS: 1, EOS: 2, UNK: 3, "a": 4}, UNK))
    raw.post_processor = processors.TemplateProcessing(
        single=[BOS, "$A", EOS], special_tokens=[(BOS, 1), (EOS, 2)]
    )
    tokenizer = Tokenizer(raw)
    assert tokenizer.encode("a") == [1, 4, 2]
    assert tokenizer.encode_batch(["a", ""]) == [[1, 4, 2], [1, 2]]
    assert tokenizer.truncate(tokenizer.encode("a"), 2) == [1, 2]
    assert tokenizer.encode_target("a") == [4, 2]


def test_padding_begins_targets_where_the_vocabulary_has_no_token_for_it() -> None:
    """As in Marian and T5."""
    words = {PAD: 0, EOS: 1, UNK: 2, "a": 3}
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.WordLevel(words, UNK)))
    assert tokenizer.bos_id == tokenizer.pad_id == 0


def words(*more: str) -> tokenizers.Tokenizer:
    tokens = [PAD, EOS, UNK, *more]
    raw = tokenizers.Tokenizer(models.WordLevel(dict(zip(tokens, range(9), strict=False)), UNK))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return raw


def test_each_side_may_have_a_vocabulary_of_its_own(tmp_path: Path) -> None:
    made = Tokenizer(words("a", "b", "c"), 4, words("x"), source_size=6)
    assert save_tokenizer(made, tmp_path / "tokenizer.json") == [
        "tokenizer.json",
        "target_tokenizer.json",
    ]
    loaded = Tokenizer.load(tmp_path / "tokenizer.json", 4, has_target=True, source_size=6)
    for tokenizer in (made, loaded):
        assert tokenizer.vocabulary_size == 4
        assert tokenizer.encode("c x a") == [5, 2, 3, 1]
        assert tokenizer.encode_batch(["c"]) == [[5, 1]]
        assert tokenizer.encode_target("x c") == [3, 2, 1]
        assert tokenizer.decode([3, 3]) == "x x"
        assert (tokenizer.target.tokens([3, 5]), tokenizer.source.tokens([3, 5])) == (
            ["x", UNK],
            ["a", "c"],
        )
        assert (tokenizer.target.id_of("x"), tokenizer.target.id_of("c")) == (3, None)
        assert (tokenizer.source.id_of("x"), tokenizer.source.id_of("c")) == (None, 5)


@pytest.mark.parametrize(("size", "source_size", "lacking"), [(4, 5, 5), (3, 6, 3)])
def test_each_side_must_fit_its_embeddings(size: int, source_size: int, lacking: int) -> None:
    with pytest.raises(OptionError, match=f"more tokens than the model, which has {lacking}"):
        Tokenizer(words("a", "b", "c"), size, words("x"), source_size=source_size)


def test_both_sides_must_end_alike() -> None:
    other = tokenizers.Tokenizer(models.WordLevel({PAD: 0, UNK: 1, EOS: 2}, UNK))
    with pytest.raises(OptionError, match="</s> is token 1 of sources and 2 of targets"):
        Tokenizer(words("a"), 3, other, source_size=4)


def test_a_vocabulary_without_control_tokens_is_refused(tmp_path: Path) -> None:
    raw = tokenizers.Tokenizer(models.WordLevel({"[P]": 0, "[E]": 1, "a": 2, "?": 3}, "?"))
    raw.save(str(tmp_path / "t.json"))
    with pytest.raises(OptionError, match="'<pad>' is not in the vocabulary"):
        Tokenizer.load(tmp_path / "t.json")


@pytest.mark.parametrize("content", [None, "", "{}", "[1", '{"version": "1.0"}'])
def test_a_bad_file_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OptionError, match=r"tokenizer\.json: "):
        Tokenizer.load(path)


def pieces_of(tokenizer: Tokenizer, groups: list[list[int]]) -> list[str]:
    stream = tokenizer.stream()
    pieces = [stream.push(group) for group in groups]
    return [*pieces, stream.flush(tokenizer.decode([id_ for group in groups for id_ in group]))]


@given(st.data())
def test_pieces_join_to_the_text_of_any_ids(tokenizer: Tokenizer, data: st.DataObject) -> None:
    id_ = st.integers(0, tokenizer.vocabulary_size - 1)
    groups = data.draw(st.lists(st.lists(id_, max_size=3), max_size=20))
    ids = [id_ for group in groups for id_ in group]
    assert "".join(pieces_of(tokenizer, groups)) == tokenizer.decode(ids)


@given(st.text(st.characters(exclude_categories=["Cs", "Cn"])))
@example("Grüße 日本語 🙂👩‍👩‍👧 e\u0301 ▁  x")
def test_pieces_of_a_text_join_and_never_break_a_character(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    pieces = pieces_of(tokenizer, [[id_] for id_ in ids])
    whole = tokenizer.decode(ids)
    assert "".join(pieces) == whole
    assert sum(piece.count("\ufffd") for piece in pieces) == whole.count("\ufffd")


def test_text_is_given_out_as_soon_as_it_is_final(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The coffee tastes good.")[:-1]
    stream = tokenizer.stream()
    for count, id_ in enumerate(ids, start=1):
        before = tokenizer.decode(ids[: count - 1])
        assert stream.push([id_]) == tokenizer.decode(ids[:count])[len(before) :]
    assert stream.flush(tokenizer.decode(ids)) == ""


def test_an_invalid_run_of_bytes_does_not_change_text_given_out() -> None:
    """ "é" and then half a character: the decoder gives up on the whole run of bytes."""
    tokenizer = byte_fallback()
    byte_id = dict(zip(tokenizer.target.tokens(range(4, 260)), range(4, 260), strict=True))
    ids = [byte_id[f"<0x{byte:02X}>"] for byte in (0xC3, 0xA9, 0xE2)]
    assert "".join(pieces_of(tokenizer, [[id_] for id_ in ids])) == tokenizer.decode(ids)

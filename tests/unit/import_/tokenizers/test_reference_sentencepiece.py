"""Converted SentencePiece models give the ids and the text of SentencePiece itself.

Ids are mapped by the rule of each family: fairseq's are one more, Pegasus' 103 more.
"""

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.import_.tokenizers import checkpoints, corpus
from tests.unit.import_.tokenizers.comparing import decoded_alike, differences, served, tied

from seqserve_import.tokenizers.convert import convert

LINES = corpus.lines(5000)


def fairseq(id_: int) -> int:
    return id_ + 1 if id_ else 3


def pegasus(id_: int) -> int:
    return id_ + 103 if id_ > 1 else id_


def same(id_: int) -> int:
    return id_


Rule = Callable[[int], int]
Normalize = Callable[[str], str]
Kind = tuple[str, Callable[[], bytes], Rule]


def t5(**options: Any) -> Kind:
    return "t5", lambda: checkpoints.t5_spm(**options), same


KINDS: dict[str, Kind] = {
    "nllb, BPE": ("m2m_100", lambda: checkpoints.spm("bpe"), fairseq),
    "nllb, unigram": ("m2m_100", checkpoints.spm, fairseq),
    "mbart": ("mbart", checkpoints.spm, fairseq),
    "pegasus": ("pegasus", checkpoints.t5_spm, pegasus),
    "t5": t5(),
    "t5, bytes": t5(byte_fallback=True, size=1100),
    "t5, BPE, bytes": t5(kind="bpe", byte_fallback=True, size=1100),
    "t5, symbols": t5(user_defined_symbols="<2pt>,<b>,на"),
    "t5, text as it is": t5(normalization_rule_name="identity", remove_extra_whitespaces=False),
    "t5, lower case": t5(normalization_rule_name="nmt_nfkc_cf"),
    "t5, pieces of words": t5(add_dummy_prefix=False, split_by_whitespace=False),
}


class Pair:
    """A converted tokenizer and the SentencePiece model that it stands for."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        model_type, train, self.rule = KINDS[kind]
        self.file = train()
        self.reference = sentencepiece.SentencePieceProcessor(model_proto=self.file)
        write = checkpoints.fairseq if self.rule is fairseq else checkpoints.t5
        folder = write(folder, self.file)
        # As the server gets it.
        written = convert(folder, model_type).to_str()
        self.tokenizer = tokenizers.Tokenizer.from_str(written)
        self.end = self.tokenizer.token_to_id("</s>")
        self.encode = served(self.tokenizer)

    def encode_reference(self, text: str) -> list[int]:
        return [*map(self.rule, self.reference.encode(text)), self.end]


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("checkpoint"), request.param)


FAMILIES = ["nllb, BPE", "nllb, unigram", "mbart", "pegasus", "t5"]


def test_texts_of_many_scripts_have_the_same_ids(pair: Pair) -> None:
    texts = LINES if pair.kind in FAMILIES else LINES[:1000]
    different = differences(texts, pair.encode, pair.encode_reference)
    assert [text for text in different if not tied(text, pair.file, pair.tokenizer)] == []
    assert len(different) <= 20


def test_ids_have_the_same_text(pair: Pair) -> None:
    normal = [id_ for id_ in range(len(pair.reference)) if _is_text(pair.reference, id_)]
    decoded_alike(
        normal,
        500,
        lambda ids: str(pair.tokenizer.decode([pair.rule(id_) for id_ in ids])),
        lambda ids: str(pair.reference.decode(ids)).strip(),
    )


def _is_text(model: sentencepiece.SentencePieceProcessor, id_: int) -> bool:
    return not (model.is_control(id_) or model.is_unknown(id_) or model.is_byte(id_))


def _is_mark(character: str) -> bool:
    """Returns whether a character is a mark, or becomes one and more, as the Thai U+0E33 does."""
    return unicodedata.category(unicodedata.normalize("NFKC", character)[0])[0] == "M"


# Marks in unusual order are sorted: the page of models says so.
CHARACTERS = [one for one in sorted({*"".join(LINES)}) if not _is_mark(one)]


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(st.sampled_from(CHARACTERS)).map(lambda text: unicodedata.normalize("NFC", text))
)
@example("▁")
@example("▁▁a▁")
@example("  a  ")
def test_any_text_of_their_characters_has_the_same_ids(pair: Pair, text: str) -> None:
    same_ids = pair.encode(text) == pair.encode_reference(text)
    assert same_ids or tied(text, pair.file, pair.tokenizer)


@settings(max_examples=40, deadline=None)
@given(text=st.text())
def test_any_text_can_be_encoded_and_decoded(pair: Pair, text: str) -> None:
    ids = pair.encode(text)
    assert ids[-1] == pair.end
    assert pair.end not in ids[:-1]
    pair.tokenizer.decode(ids)


def normalizers(folder: Path, rule: str = "nmt_nfkc") -> tuple[Normalize, Normalize]:
    """Returns what normalises texts here, and in SentencePiece, by one of its rules."""
    file = checkpoints.t5_spm(normalization_rule_name=rule)
    reference = sentencepiece.SentencePieceProcessor(model_proto=file)
    ours = convert(checkpoints.t5(folder, file), "t5").normalizer
    return ours.normalize_str, reference.normalize


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf"])
def test_every_character_is_normalized_alike_alone_and_in_decomposed_form(
    rule: str, tmp_path: Path
) -> None:
    ours, theirs = normalizers(tmp_path, rule)
    characters = [
        chr(code)
        for code in range(1, 0x20000)
        if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")
    ]
    decomposed = (unicodedata.normalize("NFD", one) for one in characters)
    texts = [*characters, *(text for text in decomposed if len(text) > 1)]
    # A letter of a script that the library's tables are too old for.
    assert [text for text in texts if ours(text) != theirs(text)] == ["\U00011935\U00011930"]


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf"])
def test_a_mark_on_a_character_that_is_replaced_is_kept(rule: str, tmp_path: Path) -> None:
    ours, theirs = normalizers(tmp_path, rule)
    replaced = [
        chr(code) for code in range(0x30000) if unicodedata.decomposition(chr(code)).startswith("<")
    ]
    texts = [one + mark for one in replaced for mark in "\u0301\u0323"]
    assert len(texts) > 7000
    for text in texts:
        assert ours(text) == theirs(text)


@pytest.mark.parametrize(
    "text",
    [
        "Việt Nam, tiếng Việt",  # two marks on a letter
        "한국어를 배웁니다",
        "\uff76\uff9e\uff77\uff9e",  # halfwidth kana with voicing marks
        "\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f",  # shadda before fatha
        "\u05e9\u05c1\u05bc\u05b8\u05dc\u05d5\u05b9\u05dd",  # shin dot and dagesh before qamats
        "a\u00a0\u0301b",  # a mark on a no-break space
        "\u2009\u0301",
        "1\u20442 ½ ⅷ ™ ℡ ㌀ …",
        "½\u0301 ﬁ\u0301n ﬃ\u0323\u0301 …\u20e3",
        "👩\u200d👩\u200d👧 🇩🇪 1\ufe0f\u20e3",
    ],
)
def test_text_in_composed_and_decomposed_form_is_normalized_alike(
    text: str, tmp_path: Path
) -> None:
    ours, theirs = normalizers(tmp_path)
    decomposed = unicodedata.normalize("NFD", text)
    forms = {text} if "\u05c1" in text or "\u0651" in text else {text, decomposed}
    for form in forms:
        assert ours(form) == theirs(form)

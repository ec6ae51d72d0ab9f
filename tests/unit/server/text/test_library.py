import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from seqserve.errors import OptionError
from seqserve_server.text.library import MAX_GROWTH, TokenizerFault, check_growth, fault_of
from seqserve_server.text.tokenizer import Tokenizer

WORDS = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "a": 4}
SHIPPED = sorted(Path(__file__).parents[4].glob("models/*/*/tokenizer.json"))


def made(unk: str = "<unk>", **parts: Any) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.WordLevel(WORDS, unk))
    for name, part in parts.items():
        setattr(library, name, part)
    return library


def doubling(times: int, *, is_hidden: bool = False) -> list[normalizers.Normalizer]:
    """Steps that each make two characters of one, or so with letters between that others know."""
    if is_hidden:
        return [normalizers.Replace(chr(97 + at), chr(98 + at) * 2) for at in range(times)]
    return [normalizers.Replace("a", "aa") for _ in range(times)]


TWICE = processors.TemplateProcessing(single="$A $A", special_tokens=[])
GROWING: list[tuple[dict[str, Any], str]] = [
    ({"normalizer": normalizers.Sequence(doubling(33))}, "Replace of its normalizers"),
    ({"normalizer": normalizers.Sequence(doubling(24, is_hidden=True))}, "Replace of its norm"),
    ({"normalizer": normalizers.Replace("a", "b" * 5000)}, "Replace of its normalizers"),
    ({"normalizer": normalizers.Replace(Regex("(?=.)"), "b" * 5000)}, "Replace of its normal"),
    ({"normalizer": normalizers.Sequence([normalizers.Replace(Regex("x*"), "x")] * 13)}, "Replace"),
    ({"normalizer": normalizers.Prepend("a" * 5000)}, "Prepend of its normalizers"),
    (
        {"normalizer": normalizers.Sequence([normalizers.Sequence(doubling(7))] * 2)},
        "Replace of its normalizers",
    ),
    (
        {"pre_tokenizer": pre_tokenizers.Sequence([pre_tokenizers.ByteLevel()] * 40)},
        "ByteLevel of its pretokenizers",
    ),
    (
        {"decoder": decoders.Sequence([decoders.Replace("a", "aa") for _ in range(33)])},
        "Replace of its decoders",
    ),
    ({"post_processor": processors.Sequence([TWICE] * 40)}, "TemplateProcessing of its processors"),
    ({"decoder": decoders.Sequence([decoders.Fuse()] * 300)}, "has more than 256 decoders"),
    ({"unk": "a" * 300}, "unk_token has more than 256 characters"),
]


@pytest.mark.parametrize(("parts", "named"), GROWING)
def test_a_tokenizer_that_may_make_gigabytes_of_a_letter_is_refused_by_its_step(
    tmp_path: Path, parts: dict[str, Any], named: str
) -> None:
    path = tmp_path / "tokenizer.json"
    made(**parts).save(str(path))
    with pytest.raises(OptionError, match=rf"tokenizer\.json: {named}"):
        Tokenizer.load(path)


LETTERS = st.text("abcß\u0345", max_size=3)
STEPS = st.one_of(
    st.builds(normalizers.Replace, LETTERS.filter(bool), LETTERS),
    st.builds(lambda pattern, content: normalizers.Replace(Regex(pattern), content),
              st.sampled_from(["a", "[ab]", "a*", "(?=b)", "b|", "[bc]+", r"\w"]), LETTERS),
    st.builds(normalizers.Prepend, LETTERS),
    st.sampled_from([normalizers.NFKD(), normalizers.NFC(), normalizers.Lowercase(),
                     normalizers.ByteLevel(), normalizers.BertNormalizer()]),
)  # fmt: skip


@given(st.lists(STEPS, max_size=12), st.sampled_from("abcß\ufdfa\u0390"))
def test_what_is_taken_makes_no_more_of_a_character_than_allowed(
    steps: list[normalizers.Normalizer], character: str
) -> None:
    normalizer = normalizers.Sequence(steps)
    try:
        check_growth(made(normalizer=normalizer))
        size = len(normalizer.normalize_str(character))
    except BaseException as error:
        # Replacements of nothing by nothing may be a panic.
        assert isinstance(error, OptionError) or isinstance(fault_of(error), TokenizerFault)
    else:
        assert size <= MAX_GROWTH


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_shipped_tokenizers_are_taken(path: Path) -> None:
    check_growth(tokenizers.Tokenizer.from_file(str(path)))


ARGUMENTS: dict[str, list[Any]] = {
    "CharDelimiterSplit": ["a"],
    "Split": ["a", "isolated"],
    "Prepend": ["a"],
    "Precompiled": [b"\4\0\0\0\0\0\0\0a\0"],
    "BertProcessing": [("</s>", 2), ("<s>", 1)],
    "RobertaProcessing": [("</s>", 2), ("<s>", 1)],
    "Replace": ["a", "b"],
    "Sequence": [[]],
    "TemplateProcessing": ["<s> $A", None, [("<s>", 1)]],
    "Strip": [],
}
BASES = {"Normalizer", "PreTokenizer", "Decoder", "PostProcessor", "NORMALIZERS", "DecodeStream"}


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("normalizer", normalizers),
        ("pre_tokenizer", pre_tokenizers),
        ("decoder", decoders),
        ("post_processor", processors),
    ],
)
def test_every_step_that_the_library_has_is_known(name: str, module: Any) -> None:
    kinds = [kind for kind in dir(module) if kind[0].isupper() and kind not in BASES]
    assert len(kinds) >= 5
    for kind in kinds:
        step = getattr(module, kind)(*ARGUMENTS.get(kind, []))
        check_growth(made(**{name: step}))


def test_a_panic_of_the_library_is_an_error_wherever_it_comes(tmp_path: Path) -> None:
    broken = json.loads(made().to_str())
    path = tmp_path / "tokenizer.json"

    def loaded(**changes: Any) -> Tokenizer:
        path.write_text(json.dumps(broken | changes))
        return Tokenizer.load(path)

    dividing = loaded(
        pre_tokenizer={"type": "FixedLength", "length": 0},
        decoder={"type": "Strip", "content": "a", "start": 0, "stop": 100},
    )
    calls: list[Callable[[], object]] = [
        lambda: dividing.encode("a b"),
        lambda: dividing.encode("a b" * 1000),
        lambda: dividing.encode_batch(["a b"]),
        lambda: dividing.pieces("a b"),
        lambda: dividing.decode([4, 4]),
    ]
    for call in calls:
        with pytest.raises(TokenizerFault, match="tokenizer: the library failed"):
            call()
    single = [{"SpecialToken": {"id": "no", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}
    with pytest.raises(OptionError, match="library failed: no entry found for key"):
        loaded(post_processor=template)
    with pytest.raises(OptionError, match=r"tokenizer\.json: is not a tokenizer\.json: .*charsmap"):
        loaded(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})

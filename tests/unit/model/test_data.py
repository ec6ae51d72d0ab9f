import gzip
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.errors import OptionError
from seqserve_model.data import Pair, Split, normalise, read_pairs, sentence_key, split_pairs


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_pairs_are_normalised_and_further_columns_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "A\u0308  b\tc \r\nd\te\tnote\n".encode())
    assert read_pairs(path).pairs == [Pair("Ä b", "c"), Pair("d", "e")]


@pytest.mark.parametrize("content", [gzip.compress(b"a\tb\n", mtime=0), b"\xef\xbb\xbfa\tb\n"])
def test_gzip_and_a_byte_order_mark_are_known_by_the_content(
    tmp_path: Path, content: bytes
) -> None:
    assert read_pairs(write(tmp_path / "a.tsv", content)).pairs == [Pair("a", "b")]


def test_columns_can_be_chosen_and_swapped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b"1\ta\tb\n")
    assert read_pairs(path, source_column=2, target_column=1).pairs == [Pair("b", "a")]


def test_bad_lines_are_named_and_skipped(tmp_path: Path) -> None:
    lines = [b"good\tgut", b"alone", b"\tx", b"x\t ", b"caf\xe9\tx", b"long\t" + b"y" * 50, b"a\tb"]
    corpus = read_pairs(write(tmp_path / "a.tsv", b"\n".join(lines)), max_chars=40)
    assert corpus.pairs == [Pair("good", "gut"), Pair("a", "b")]
    assert [tuple(bad) for bad in corpus.bad_lines] == [
        (2, "has 1 columns, needs 2"),
        (3, "has an empty source"),
        (4, "has an empty target"),
        (5, "is not UTF-8: byte 0xE9 after 3 characters; convert it"),
        (6, "is longer than 40 characters"),
    ]
    report = corpus.report(shown=2)
    assert report[0] == f"{corpus.path}:2: has 1 columns, needs 2"
    assert report[-1].endswith("2 pairs read, 5 bad lines skipped")
    assert len(report) == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds no pair; a line"),
        (b"no tab here\n", "holds no pair: line 1 has 1 columns, needs 2; a line"),
        ("a\tb\nc\td\n".encode("utf-16"), "holds no pair: line 1 has a NUL character"),
        ("a\tb\n".encode("utf-16-le"), "holds no pair: line 1 has a NUL character"),
        (b"\x1f\x8bbroken", "cannot be read"),
    ],
)
def test_a_file_without_pairs_is_refused_by_name(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(OptionError, match=rf"a\.tsv: {reason}"):
        read_pairs(write(tmp_path / "a.tsv", content))


def test_a_missing_file_is_named_and_how_to_make_one(tmp_path: Path) -> None:
    message = r"none\.tsv: cannot be read: No such file or directory; `seqserve prepare` makes .*"
    with pytest.raises(OptionError, match=message + r"data\.path"):
        read_pairs(tmp_path / "none.tsv")


@pytest.mark.parametrize(
    ("one", "other"),
    [("Hi.", "hi!"), ("I'm  here", "i m HERE?"), ("STRASSE", "straße"), ("e\u0301", "É")],
)
def test_case_and_punctuation_do_not_make_another_sentence(one: str, other: str) -> None:
    assert sentence_key(normalise(one)) == sentence_key(normalise(other))


@pytest.mark.parametrize(("one", "other"), [("a b", "ab"), ("?", "!"), ("1 2", "1 3")])
def test_other_sentences_stay_apart(one: str, other: str) -> None:
    assert sentence_key(one) != sentence_key(other)


def split_of(
    pairs: list[Pair], validation: int, test: int, *, max_group: int = 4, seed: int = 0
) -> Split:
    return split_pairs(
        pairs, validation_pairs=validation, test_pairs=test, max_group=max_group, seed=seed
    )


texts = st.text(alphabet="abAB.!", min_size=1, max_size=3)


@given(st.lists(st.builds(Pair, texts, texts), max_size=60), st.integers(0, 3))
def test_no_held_out_sentence_is_trained_on(pairs: list[Pair], seed: int) -> None:
    try:
        split = split_of(pairs, 2, 2, seed=seed)
    except OptionError:
        return
    for side in (0, 1):
        keys = [
            {sentence_key(pair[side]) for pair in part}
            for part in (split.training, split.validation, split.test)
        ]
        assert not any(one & other for one, other in itertools.combinations(keys, 2))
    for part in (split.validation, split.test):
        assert len({sentence_key(pair.source) for pair in part}) == len(part) == 2


def numbered(count: int) -> list[Pair]:
    return [Pair(f"source {i}", f"target {i}") for i in range(count)]


def test_a_split_depends_on_its_seed_only() -> None:
    one, same, other = (split_of(numbered(50), 5, 5, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


def test_the_first_translation_of_a_held_out_source_is_kept() -> None:
    pairs = [Pair("Hi.", "Hallo!"), Pair("Hi.", "Servus!"), Pair("hi", "Tach!")]
    split = split_of([*pairs, *numbered(3)], 3, 0)
    kept = [pair for pair in split.validation if sentence_key(pair.source) == "hi"]
    assert kept in ([], [pairs[0]])
    assert len(split.training) in (1, 3)


def test_large_groups_stay_in_training() -> None:
    greetings = [Pair("Hi.", f"Hallo {i}") for i in range(10)]
    for seed in range(5):
        split = split_of([*greetings, *numbered(4)], 1, 1, max_group=9, seed=seed)
        assert set(greetings) <= set(split.training)


def test_too_few_pairs_are_refused_with_advice() -> None:
    with pytest.raises(OptionError, match=r"lower data\.validation_pairs"):
        split_of(numbered(4), 2, 2)

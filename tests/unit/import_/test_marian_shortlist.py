import base64
import gzip
from pathlib import Path

import pytest

from seqserve_import.files import CheckpointError
from seqserve_import.marian_shortlist import read_marian_shortlist

VOCABULARY = {
    token: number
    for number, token in enumerate(["</s>", "<unk>", "the", "house", "das", "Haus", "ein"])
}
ENGLISH = {token: number for token, number in VOCABULARY.items() if number < 4}
SIZE = len(VOCABULARY)

TEXT = """\
das the 0.5
ein the 0.25
NULL the 0.1
Haus the 0.125
Haus house 0.9
Gebäude house 0.05
das NULL 0.3
"""

# What Marian makes of the text: `pymarian convert --shortlist lex.s2t 2 2 0`.
BINARY = base64.b64decode(
    "9Rc0AdVIGvHx6RR4F9rECwIAAAAAAAAAAgAAAAAAAAAIAAAAAAAAAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAgAAAAAAAAAEAAAAAAAAAAQAAAAAAAAABAAAAAAAAAAEAAAAAAAAAAQAAAAGAAAAAQAAAAUAAAA="
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lex.bin"


def candidates(path: Path, *source: str, shared: bool = False) -> list[int]:
    """Gives what a source may become; Marian knows from its options whether vocabularies differ."""
    side = VOCABULARY if shared else ENGLISH
    shortlist = read_marian_shortlist(path, side, VOCABULARY, frequent=2, best=2)
    ids = [VOCABULARY[token] for token in source]
    listed: list[int] = shortlist.candidates(ids, (), SIZE).tolist()
    return listed


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("content", [BINARY, TEXT.encode()], ids=["binary", "text"])
def test_a_source_may_become_what_marian_lists(path: Path, content: bytes, is_packed: bool) -> None:
    path.write_bytes(gzip.compress(content) if is_packed else content)
    assert candidates(path) == [0, 1]
    assert candidates(path, "the") == [0, 1, 4, 6]
    assert candidates(path, "house") == [0, 1, 5]
    assert candidates(path, "the", "house", "the") == [0, 1, 4, 5, 6]


@pytest.mark.parametrize("content", [BINARY, TEXT.encode()], ids=["binary", "text"])
def test_a_source_token_may_be_copied_where_both_vocabularies_are_one(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    assert candidates(path, "the", shared=True) == [0, 1, 2, 4, 6]
    assert candidates(path, "ein", shared=True) == [0, 1, 6]


def test_unknown_words_share_a_token_and_the_most_probable_speaks_for_it(path: Path) -> None:
    path.write_text("a the 0.1\nb the 0.9\nein the 0.5\nHaus the 0.4\ndas the 0\n")
    shortlist = read_marian_shortlist(path, ENGLISH, VOCABULARY, frequent=1, best=2)
    assert shortlist.candidates([2], (), SIZE).tolist() == [0, 1, 6]


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (BINARY[:40], "has 40 bytes; its header says"),
        (BINARY + b"\0", r"has \d+ bytes; its header says"),
        (BINARY[:-9] + b"\7" + BINARY[-8:], "is damaged: its checksum is wrong"),
        (BINARY[:24] + b"\7" + BINARY[25:], "is damaged: its checksum is wrong"),
        (b"das the\n", "line 1 is not target, source and probability"),
        (b"das the 0.5\ndas the half\n", "line 2 is not target, source and probability"),
        (b"\xff\xfe\x00", "neither binary nor UTF-8"),
        (gzip.compress(BINARY, mtime=0)[:50], "cannot be read"),
    ],
)
def test_a_damaged_file_is_refused(path: Path, damaged: bytes, problem: str) -> None:
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=rf"lex\.bin: .*{problem}"):
        candidates(path)


def test_a_list_of_another_model_is_refused(path: Path) -> None:
    path.write_bytes(BINARY)
    small = {token: number for token, number in VOCABULARY.items() if number < 5}
    with pytest.raises(CheckpointError, match=r"has the target token 6; the last .* is 4"):
        read_marian_shortlist(path, small, small)


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"lex\.bin: is missing"):
        candidates(path)

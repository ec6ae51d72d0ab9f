from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine.shortlist import Shortlist

SIZE = 20
SHORTLIST = Shortlist.of([0, 1, 5], {3: [9, 4], 7: [2], 6: []})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shortlist.bin"
    SHORTLIST.write(path)
    return path


def candidates(shortlist: Shortlist, source: list[int], *needed: int) -> list[int]:
    found: list[int] = shortlist.candidates(source, needed, SIZE).tolist()
    return found


def test_a_source_may_become_frequent_tokens_and_translations_of_its_own() -> None:
    assert candidates(SHORTLIST, []) == [0, 1, 5]
    assert candidates(SHORTLIST, [3, 3, 6]) == [0, 1, 4, 5, 9]
    assert candidates(SHORTLIST, [7, 3], 19, 5) == [0, 1, 2, 4, 5, 9, 19]
    # Tokens that have no translations, and those after the last that has.
    assert candidates(SHORTLIST, [2, 8, SIZE - 1]) == [0, 1, 5]
    assert SHORTLIST.max_translations == 2


tokens = st.integers(0, SIZE - 1)


@given(
    frequent=st.sets(tokens),
    translations=st.dictionaries(tokens, st.lists(tokens, max_size=5)),
    source=st.lists(tokens),
)
def test_a_file_holds_the_whole_list(
    tmp_path_factory: pytest.TempPathFactory,
    frequent: set[int],
    translations: dict[int, list[int]],
    source: list[int],
) -> None:
    path = tmp_path_factory.mktemp("shortlist") / "shortlist.bin"
    Shortlist.of(frequent, translations).write(path)
    expected = frequent.union(*(translations.get(token, ()) for token in source))
    assert candidates(Shortlist.read(path, SIZE), source) == sorted(expected)


def changed(path: Path, at: int, to: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(to)] = to
    path.write_bytes(content)


@pytest.mark.parametrize("length", [0, 7, 19, 20, 30, 71])
def test_a_file_that_is_cut_off_is_refused(path: Path, length: int) -> None:
    content = path.read_bytes()
    assert len(content) == 20 + 4 * (3 + 9 + 3) - 8 + 8
    path.write_bytes(content[:length])
    with pytest.raises(ArtifactError, match=r"shortlist\.bin: (is not a shortlist|has \d+ bytes)"):
        Shortlist.read(path, SIZE)


def test_a_header_that_promises_more_than_the_file_has_is_refused(path: Path) -> None:
    changed(path, 8, b"\xff\xff\xff\xff" * 3)
    with pytest.raises(ArtifactError, match=r"has \d+ bytes; its header says 515396075"):
        Shortlist.read(path, SIZE)


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        (20, "frequent: 255 is not a token id"),
        # The first offset, one in the middle, the last one.
        (32, "offsets do not divide"),
        (44, "offsets do not divide"),
        (64, "offsets do not divide"),
        (68, "translations: 255 is not a token id"),
    ],
)
def test_numbers_that_fit_nothing_are_refused(path: Path, at: int, problem: str) -> None:
    changed(path, at, b"\xff")
    with pytest.raises(ArtifactError, match=problem):
        Shortlist.read(path, SIZE)


def test_a_list_for_another_vocabulary_is_refused(path: Path) -> None:
    with pytest.raises(ArtifactError, match="lists 8 source tokens; the model has 7"):
        Shortlist.read(path, 7)

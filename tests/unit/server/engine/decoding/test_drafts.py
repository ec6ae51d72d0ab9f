"""Where the output of a request stands in its draft."""

import pytest

from seqserve_server.engine.decoding.drafts import MAX_TOKENS, Draft

TOKENS = tuple(range(100, 160))


def following(output: list[int], draft: tuple[int, ...] = TOKENS, left: int = 100) -> list[int]:
    one = Draft(draft)
    for token in output:
        one.append(token)
    return one.following(left)


@pytest.mark.parametrize(
    ("output", "first"),
    [
        ([], 100),
        ([100, 101], 102),
        ([100, 7, 102, 103], 104),
        ([100, 103, 104], 105),
        ([100, 7, 8, 101, 102], 103),
        ([7, 120, 121], 122),
        ([100, 101, 100, 101, 102], 103),
        ([7], None),
        ([100, 101, 7], None),
        ([100, 101, 7, 103], None),
        ([100, 101, 102, 7, 100, 101], None),
    ],
)
def test_output_is_found_behind_its_last_two_tokens(output: list[int], first: int | None) -> None:
    found = following(output)
    assert found == ([] if first is None else list(range(first, first + 7)))


@pytest.mark.parametrize(
    ("draft", "left", "count"),
    [
        ((), 100, 0),
        (TOKENS[:4], 100, 4),
        (TOKENS[:3], 100, 0),
        (TOKENS, 6, 4),
        (TOKENS, 5, 0),
        (TOKENS, 1, 0),
        (TOKENS, 0, 0),
    ],
)
def test_few_tokens_are_left_to_steps(draft: tuple[int, ...], left: int, count: int) -> None:
    assert following([], draft, left) == list(draft[:count])


def test_passes_grow_while_all_is_right() -> None:
    draft = Draft(TOKENS)
    sizes = []
    for was_right in (True, True, False):
        draft.resize(was_right=was_right)
        sizes.append(len(draft.following(100)) + 1)
    assert sizes == [MAX_TOKENS, MAX_TOKENS, 8]

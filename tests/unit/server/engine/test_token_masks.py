"""Masks are written for the rows of a step, and only when one has changed."""

from seqserve_server.engine.step import MASKED_LOGIT
from seqserve_server.engine.token_masks import TokenMasks

FILLER = 2


def written(masks: TokenMasks, row: int) -> dict[int, float]:
    """Reads what a step adds to the logits of a row, where it changes them."""
    place = slice(row * masks.width, (row + 1) * masks.width)
    listed = zip(masks.tokens[place].tolist(), masks.values[place].tolist(), strict=True)
    return {token: value for token, value in listed if value}


def test_rows_read_their_own_tokens() -> None:
    masks = TokenMasks(slots=4, max_length=8, filler=FILLER)
    assert masks.put(0, [5, 7, 9])
    assert masks.put(2, [6])
    assert masks.write(3)
    masked = float(MASKED_LOGIT)
    found = [written(masks, row) for row in range(3)]
    assert found == [dict.fromkeys((5, 7, 9), masked), {}, {6: masked}]


def test_nothing_is_written_twice() -> None:
    masks = TokenMasks(slots=4, max_length=8, filler=FILLER)
    assert not masks.write(4)
    masks.put(1, [5])
    assert masks.write(2)
    assert not masks.write(2)
    assert not masks.write(1)
    assert not masks.put(1, [5])
    assert masks.write(3), "the third row has not been written"


def test_a_lifted_mask_changes_no_logit() -> None:
    masks = TokenMasks(slots=2, max_length=8, filler=FILLER)
    masks.put(1, [5, 6])
    masks.write(2)
    assert masks.put(1, [])
    assert masks.write(2)
    assert (masks.width, written(masks, 0), written(masks, 1)) == (1, {}, {})
    assert not masks.by_row


def test_the_width_has_few_values() -> None:
    masks = TokenMasks(slots=2, max_length=8, filler=FILLER)
    widths = set()
    for count in range(1, 40):
        masks.put(0, list(range(count)))
        masks.write(1)
        assert masks.width >= count
        widths.add(masks.width)
    assert widths == {1, 2, 4, 8, 16, 32, 64}

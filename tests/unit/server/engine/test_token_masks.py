from seqserve_server.engine.token_masks import TokenMasks

FILLER = 2


def test_nothing_is_written_twice() -> None:
    masks = TokenMasks(slots=4, max_length=8, filler=FILLER)
    assert not masks.write(4)
    masks.put(1, [5])
    assert masks.write(2)
    assert not masks.write(2)
    assert not masks.write(1)
    assert not masks.put(1, [5])
    assert masks.write(3), "the third row has not been written"


def test_the_width_has_few_values() -> None:
    masks = TokenMasks(slots=2, max_length=8, filler=FILLER)
    widths = set()
    for count in range(1, 40):
        masks.put(0, list(range(count)))
        masks.write(1)
        assert masks.width >= count
        widths.add(masks.width)
    assert widths == {1, 2, 4, 8, 16, 32, 64}

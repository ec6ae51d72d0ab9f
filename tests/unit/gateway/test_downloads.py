"""Files are kept for a while, in bounded memory."""

from __future__ import annotations

import pytest
from tests.clock import Clock

from seqserve_gateway.failure import Failure
from seqserve_gateway.fields import File
from seqserve_gateway.libretranslate import Downloads


def test_file_is_there_until_it_is_old() -> None:
    clock = Clock()
    downloads = Downloads(kept_s=10.0, clock=clock)
    key = downloads.add(File("a.txt", b"a"))
    clock.now_s += 10.0
    assert downloads.get(key).content == b"a"
    clock.now_s += 0.1
    with pytest.raises(Failure) as refused:
        downloads.get(key)
    assert refused.value.status == 404


def test_oldest_file_makes_room() -> None:
    downloads = Downloads(max_bytes=10)
    keys = [downloads.add(File(f"{n}", b"12345")) for n in range(3)]
    assert len(set(keys)) == 3
    with pytest.raises(Failure):
        downloads.get(keys[0])
    assert [downloads.get(key).name for key in keys[1:]] == ["1", "2"]

"""Of few words the scores are found alone; for many the whole projection is read."""

from __future__ import annotations

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.vocabulary import Vocabularies

from .fake_runtime import FakeRuntime, make_manifest

WORDS = make_manifest().architecture.vocabulary_size


def asked(cache: SlotCache) -> tuple[bool, bool]:
    """Tells whether a step projects onto all words, and whether onto some alone."""
    return cache.projects, cache._allowed_groups > 0


def test_what_is_cheaper_is_asked_of_the_step() -> None:
    cache = SlotCache(FakeRuntime(), slots=4)
    vocabularies = Vocabularies(cache)
    few, others = tuple(range(WORDS // 8)), tuple(range(WORDS // 8, WORDS // 3))
    vocabularies.join(few)
    assert (vocabularies.are_many, *asked(cache)) == (False, False, True)
    vocabularies.join((), rows=2)
    assert (vocabularies.are_many, *asked(cache)) == (False, True, True)
    # Together they are more than a quarter.
    vocabularies.join(others)
    assert (vocabularies.are_many, *asked(cache)) == (True, True, False)
    vocabularies.leave(others)
    assert (vocabularies.are_many, *asked(cache)) == (False, True, True)
    vocabularies.leave(())
    vocabularies.leave(())
    assert asked(cache) == (False, True)
    vocabularies.leave(few)
    assert (vocabularies.are_many, *asked(cache)) == (False, True, False)

import threading
from pathlib import Path

import pytest

from seqserve_server.contract.errors import ArtifactError, Draining, InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine

TEXTS = ["The coffee tastes music.", "Nobody paints eleven books?", "Ein Igel, 7 Äpfel!", "", "a"]


def test_long_text_is_cut_before_its_end_token(tiny_offline: LocalEngine) -> None:
    limit = tiny_offline.manifest.limits.max_source_length
    ids = tiny_offline.encode("word " * 100)
    assert len(ids) == limit
    assert ids[-1] == tiny_offline.manifest.tokens.eos
    assert ids[:-1] == tiny_offline.tokenizer.encode("word " * 100)[: limit - 1]


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ([], {}, "source: is empty"),
        ([5] * 25, {}, "source: has 25 tokens; tiny/1 reads at most 24"),
        ([5, 2], {"max_decoding_length": 0}, "max_decoding_length: is 0; tiny/1 takes 1 to 20"),
        ([5, 2], {"max_decoding_length": 21}, "max_decoding_length: is 21; tiny/1 takes 1 to 20"),
    ],
)
def test_what_does_not_fit_a_slot_is_refused(
    tiny_offline: LocalEngine, source: list[int], options: dict[str, int], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        tiny_offline.decode([source], DecodingOptions(**{"max_decoding_length": 5} | options))


def test_more_rows_than_slots_are_refused(tiny_artifact: Path) -> None:
    options = DecodingOptions(max_decoding_length=3, beam_size=3)
    with LocalEngine(tiny_artifact, slots=2) as engine, pytest.raises(InvalidRequest):
        engine.decode([[5, 2]], options)


def test_close_ends_the_threads(tiny_artifact: Path) -> None:
    before = set(threading.enumerate())
    with LocalEngine(tiny_artifact, workers=2) as offline:
        assert len(set(threading.enumerate()) - before) == 3
    assert not set(threading.enumerate()) - before
    with pytest.raises(Draining):
        offline(["a"])


def test_folder_without_an_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        LocalEngine(tmp_path)

import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.drivers.ctranslate2 import write_map
from bench.models import MARIAN_BASE, marian_base
from bench.scenarios import shortlist
from bench.scenarios.offline import write_artifacts
from bench.scenarios.shortlist import BEST, FREQUENT, draw_shortlist, draw_sources
from tests.step_graphs import steps_only
from tests.tiny import cut_down

from seqserve_model.transformer import Transformer
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.shortlist import Shortlist

TINY = replace(cut_down(MARIAN_BASE), vocabulary_size=4000)
SIX_TOKENS = DecodingOptions(max_decoding_length=6, min_decoding_length=6)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tiny model in int8 and in fp32, exported once for all tests."""
    with steps_only():
        return write_artifacts(marian_base(TINY), tmp_path_factory.mktemp("artifacts"))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, artifacts: list[Path]) -> None:
    def copy(_model: Transformer, repository: Path) -> list[Path]:
        return [
            shutil.copytree(artifact, repository / artifact.parent.name / artifact.name)
            for artifact in artifacts
        ]

    monkeypatch.setattr(shortlist, "SHAPES", {"tiny": TINY})
    monkeypatch.setattr(shortlist, "write_artifacts", copy)


def sizes(listed: Shortlist, rows: int) -> float:
    """Counts what sources may choose from together, on average."""
    sources = sorted(draw_sources(128), key=len)
    batches = [sources[begin : begin + rows] for begin in range(0, len(sources), rows)]
    tokens = ([token for source in batch for token in source] for batch in batches)
    size = MARIAN_BASE.vocabulary_size
    return statistics.fmean(len(listed.candidates(batch, (), size)) for batch in tokens)


def test_a_map_has_a_line_for_what_is_always_allowed_and_for_each_source_token(
    tmp_path: Path,
) -> None:
    listed = Shortlist.of([0, 2], {5: [7, 9], 6: [8]})
    path = write_map(listed, tmp_path / "vmap.txt")
    assert path.read_text().splitlines() == ["\tt0 t2", "t5\tt7 t9", "t6\tt8"]


def test_each_word_translates_to_itself_and_others() -> None:
    listed = draw_shortlist(TINY)
    assert listed.frequent.tolist() == list(range(FREQUENT))
    assert listed.max_translations == BEST
    for word in (4, 5, TINY.vocabulary_size - 1):
        begin, end = listed.offsets[word : word + 2]
        translations = listed.translations[begin:end].tolist()
        assert word in translations
        assert translations == sorted(set(translations))


def test_candidates_are_as_many_as_with_firefoxs_shortlist() -> None:
    """Its own: 488, 2,184 and 5,383 of 12 tokens a sentence, 1,119, 4,701 and 9,827 of 32."""
    listed = draw_shortlist()
    assert 488 < sizes(listed, 1) < 1119
    assert 2184 < sizes(listed, 8) < 4701
    assert 5383 < sizes(listed, 32) < 9827


@pytest.mark.parity
@pytest.mark.usefixtures("tiny")
def test_engines_keep_to_a_shortlist_and_write_the_same_alone() -> None:
    [table] = shortlist.measure(1, [3], SIX_TOKENS)
    assert len(table["peers"]) == 8
    assert TINY.vocabulary_size > table["candidates_of_batch"] > table["candidates"] > FREQUENT
    [laid_out] = shortlist.tables([table])
    assert laid_out.head[0].startswith("tiny, 6 target tokens")


@pytest.mark.parity
@pytest.mark.usefixtures("tiny")
def test_an_engine_that_leaves_its_shortlist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_another(_listed: Shortlist, path: Path) -> Path:
        return write_map(draw_shortlist(TINY, seed=8), path)

    monkeypatch.setattr(shortlist, "write_map", write_another)
    with pytest.raises(SystemExit, match="CTranslate2 fp32 1x1 with shortlist writes tokens"):
        shortlist.measure(1, [3], SIX_TOKENS)


def test_tables_show_both_engines_with_and_without() -> None:
    speeds = {"seqserve int8": 30.0, "CTranslate2 int8 2x1": 20.0}
    speeds |= {"seqserve fp32": 10.0, "CTranslate2 fp32 2x1": 10.0}
    speeds |= {f"{name} with shortlist": 2 * speed for name, speed in speeds.items()}
    report = {
        "name": "a student",
        "rows": 8,
        "length": 32,
        "peers": [peer(name, speeds) for name in speeds],
    } | {"candidates": 519.4, "candidates_of_batch": 2529.9}
    [table] = shortlist.tables([report])
    cells = dict(table.rows)
    assert cells["candidates of a sentence; of a batch in CTranslate2"] == "519; 2,530"
    assert cells["seqserve int8"] == "60 (2.00)"
    assert cells["**seqserve / CTranslate2, int8**"] == "1.50 (1.50-1.50)"
    assert cells["**seqserve / CTranslate2, fp32** without a shortlist"] == "1.00 (1.00-1.00)"


def peer(name: str, speeds: dict[str, float]) -> dict[str, Any]:
    ratios = {
        other: dict.fromkeys(("median", "low", "high"), speeds[name] / speed)
        for other, speed in speeds.items()
    }
    return {"name": name, "tokens_per_s": speeds[name], "ratios": ratios}

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench.drivers.ctranslate2 import CTranslate2Converter, CTranslate2Driver
from bench.models import T5_SMALL
from bench.scenarios import imported
from bench.scenarios.imported import Engine, EngineRun
from tests import checkpoints as small

from seqserve_import.checkpoint import Checkpoint
from seqserve_import.loading import load
from seqserve_model.decoding import greedy_in_batches
from seqserve_server.contract.options import DecodingOptions

LENGTH = 10

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("family", ["t5", "m2m100"])
def test_ctranslate2_gives_the_words_of_an_imported_model(family: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    small.save(small.make(family, 4), tmp_path / "checkpoint")
    model = load(Checkpoint(tmp_path / "checkpoint")).model
    CTranslate2Converter(model).convert(str(tmp_path / "converted"))
    sources = [[20 + row, *range(30, 34 + row), model.config.eos_id] for row in range(9)]
    expected = greedy_in_batches(model, sources, LENGTH, 4)
    assert len({tuple(row) for row in expected}) >= 3
    options = DecodingOptions(max_decoding_length=LENGTH)
    with CTranslate2Driver(tmp_path / "converted", "float32", (1, 1), 4, options) as driver:
        assert driver.decode(sources) == expected


def test_transformers_gives_the_words_of_an_imported_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"width": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    shape = replace(T5_SMALL, vocabulary_size=300, feed_forward_width=64, **sizes)
    monkeypatch.setitem(imported.SHAPES, "tiny", shape)
    imported.write("tiny", tmp_path)
    model = load(Checkpoint(tmp_path)).model
    sources = [[20 + row, *range(30, 34 + row), model.config.eos_id] for row in range(9)]
    expected = greedy_in_batches(model, sources, LENGTH, 4)
    assert {len(row) for row in expected} == {LENGTH}
    seconds, targets = Engine("transformers fp32", tmp_path, 4, LENGTH).turn(sources)
    assert targets == expected and seconds > 0


def test_tables_show_what_was_measured() -> None:
    run = EngineRun(ready_s=1.0, resident_bytes=2_000_000, seconds=0.5, rows=[[5, 6], [7]])
    assert run.tokens_per_s == 6.0
    peer = {"name": "seqserve int8", "equal_share": 1.0, **imported._figures([run], [run])}
    costs = {"precision": "int8", "seconds": 60.0, "peak_mb": 900.0, "checkpoint_mb": 240.0}
    shape = {"name": "T5-small", "rows": 8, "length": 32, "imports": [costs], "peers": [peer]}
    [table] = imported.tables([shape])
    assert table.head[0] == "T5-small's shape, a checkpoint of 240 MB"
    assert table.rows == [
        ["seqserve int8", "60 s, 900 MB", "1.0 s", "2 MB", "6", "1.00 (1.00-1.00)", "100%"]
    ]

import dataclasses
from pathlib import Path

import pytest
import torch
from bench import random_artifact
from bench.models import BART_LARGE, marian_base, write_unproven
from bench.random_artifact import random_model, trace, write
from tests.tiny import cut_down

from seqserve_export.fp16_conversion import halve
from seqserve_export.options import Precision
from seqserve_export.pipeline import Rounding
from seqserve_server.artifact.manifest import FILE, WEIGHTS, Manifest

TINY = cut_down(BART_LARGE)
"""Of the shapes the one with most tables: its positions are learned."""


@pytest.mark.parity
def test_an_artifact_on_traced_graphs_is_the_exported_one(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    trace(TINY, tmp_path / "tiny")
    rounding = Rounding(precision=Precision.FP16)
    exported = write_unproven(random_model(TINY), tmp_path / "r", "tiny", rounding=rounding)
    assert not (tmp_path / "tiny" / WEIGHTS).exists()
    write(halve(random_model(TINY)), tmp_path / "tiny", tmp_path / "written")
    assert Manifest.load(tmp_path / "written") == Manifest.load(exported)


@pytest.mark.parity
def test_other_weights_have_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace(TINY, tmp_path / "tiny")
    other = halve(random_model(TINY))
    with torch.no_grad():
        other.target_embedding.weight *= 2
    write(other, tmp_path / "tiny", tmp_path / "written")
    assert (
        Manifest.load(tmp_path / "written").files[WEIGHTS]
        != (Manifest.read(tmp_path / "tiny").files[WEIGHTS])
    )
    assert (tmp_path / "tiny" / FILE).exists()
    larger = halve(random_model(dataclasses.replace(TINY, width=128)))
    with pytest.raises(ValueError, match="has 51200 bytes"):
        write(larger, tmp_path / "tiny", tmp_path / "larger")


def test_no_weight_is_zero_or_stands_twice() -> None:
    model = random_model(TINY)
    contents = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    assert len(set(contents)) == len(contents)
    assert all(parameter.any() for parameter in model.parameters())


def test_all_shapes_are_traced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[Path] = []
    monkeypatch.setattr(random_artifact, "trace", lambda config, folder: traced.append(folder))
    (tmp_path / "bart-large").mkdir()
    random_artifact.main(tmp_path, "bart-large", "marian-base", "nllb-600m")
    assert traced == [tmp_path / "marian-base", tmp_path / "nllb-600m"]


def test_shapes_have_the_sizes_of_their_names() -> None:
    sizes = []
    for config in random_artifact.SHAPES.values():
        with torch.device("meta"):
            model = marian_base(config)
        sizes.append(round(sum(parameter.numel() for parameter in model.parameters()) / 1e6))
    assert sizes == [61, 404, 615, 223, 248, 406]

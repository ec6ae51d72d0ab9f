import dataclasses
from pathlib import Path

import pytest
import torch
from bench import random_artifact
from bench.models import BART_LARGE, marian_base
from bench.random_artifact import random_model, trace, write
from tests.tiny import cut_down

from seqserve_export.fp16_conversion import halve
from seqserve_server.artifact.manifest import FILE, WEIGHTS, Manifest

TINY = cut_down(BART_LARGE)
"""Of the shapes the one with most tables: its positions are learned."""


@pytest.mark.parity
def test_an_artifact_on_traced_graphs_is_the_one_that_an_export_of_its_weights_writes(
    tmp_path: Path,
) -> None:
    torch.set_num_threads(1)
    traced = tmp_path / "traced" / "tiny"
    trace(TINY, traced)
    assert not (traced / WEIGHTS).exists()
    model = halve(random_model(TINY))
    write(model, traced, tmp_path / "same")
    # Which has the digest of the weights that were exported.
    assert Manifest.load(tmp_path / "same") == Manifest.read(traced)
    with torch.no_grad():
        model.target_embedding.weight *= 2
    write(model, traced, tmp_path / "other")
    digest = Manifest.load(tmp_path / "other").files[WEIGHTS]
    assert digest != Manifest.read(traced).files[WEIGHTS]
    assert (traced / FILE).exists()
    larger = halve(random_model(dataclasses.replace(TINY, width=128)))
    with pytest.raises(ValueError, match="has 51200 bytes"):
        write(larger, traced, tmp_path / "larger")


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

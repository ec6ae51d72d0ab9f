"""What an artifact is written from."""

import dataclasses
from pathlib import Path

import pytest

from seqserve.errors import OptionError
from seqserve_export.artifact import Description
from seqserve_export.options import Caches, Precision, Scales
from seqserve_export.pipeline import Rounding, write_artifact
from seqserve_export.quantization import Calibration, precision_of, with_same_weights
from seqserve_model.config import PositionScheme
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Provenance, Quantization
from seqserve_server.text.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("precision", "record"),
    [
        (Precision.FP32, None),
        (Precision.FP16, None),
        (Precision.INT8, Quantization(scales="row", caches="int8", reason="measured")),
    ],
)
def test_a_model_is_rounded_as_its_manifest_says(
    tiny_model: Transformer,
    tiny_calibration: Calibration,
    precision: Precision,
    record: Quantization | None,
) -> None:
    scheme = {"scales": Scales.ROW, "caches": Caches.INT8, "calibration": tiny_calibration}
    rounding = Rounding(precision=precision, reason="measured", **scheme)  # type: ignore[arg-type]
    rounded = rounding.apply(with_same_weights(tiny_model))
    assert precision_of(rounded) == precision.value
    assert rounding.record == record
    assert precision_of(tiny_model) == "fp32", "the model itself was rounded"


@pytest.mark.usefixtures("traced_already")
class TestWriteArtifact:
    @pytest.fixture(autouse=True)
    def parts(
        self,
        tiny_model: Transformer,
        tiny_tokenizer: Tokenizer,
        tiny_description: Description,
        tmp_path: Path,
    ) -> None:
        self.model, self.tokenizer = tiny_model, tiny_tokenizer
        self.description, self.repository = tiny_description, tmp_path / "models"

    def write(self, model: Transformer | None = None, **changes: object) -> Path:
        description = dataclasses.replace(self.description, **changes)  # type: ignore[arg-type]
        return write_artifact(
            lambda: model or self.model, self.tokenizer, self.repository, description, held_out=None
        )

    def test_what_is_written_is_sound(self) -> None:
        place = self.write(name="other", version=3, licence="MIT")
        assert place == self.repository / "other" / "3"
        manifest = Manifest.load(place)
        assert (manifest.label, manifest.licence) == ("other/3", "MIT")
        assert manifest.verification is None
        assert manifest.architecture.config == self.model.config.to_dict()
        assert [path.name for path in place.parent.iterdir()] == ["3"], "a draft was left"
        assert place.stat().st_mode & 0o777 == 0o755

    def test_version_that_is_there_is_refused_and_kept(self) -> None:
        place = self.write()
        before = (place / "manifest.json").read_bytes()
        with pytest.raises(OptionError, match="exists already; take another --model-version"):
            self.write(licence="MIT")
        assert (place / "manifest.json").read_bytes() == before
        self.write(version=2)
        assert sorted(path.name for path in place.parent.iterdir()) == ["1", "2"]

    @pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "en de", "x" * 65])
    def test_name_that_is_no_folder_is_refused(self, name: str) -> None:
        with pytest.raises(OptionError, match="is not a model name"):
            self.write(name=name)
        assert not self.repository.exists()

    def test_version_below_one_is_refused(self) -> None:
        with pytest.raises(OptionError, match="it must be at least 1"):
            self.write(version=0)

    @pytest.mark.parametrize(
        ("positions", "heads", "message"),
        [
            (PositionScheme.ROTARY, 4, " 8; .* rotary positions it must be a multiple of 16"),
            (PositionScheme.SINUSOIDAL, 8, " 4; .* it must be a multiple of 8"),
        ],
    )
    def test_heads_that_the_operators_do_not_take_are_refused(
        self, positions: PositionScheme, heads: int, message: str
    ) -> None:
        config = dataclasses.replace(self.model.config, positions=positions, heads=heads)
        with pytest.raises(OptionError, match="a head of the model has the size" + message):
            self.write(Transformer(config).eval())
        assert not list(self.repository.iterdir())

    def test_provenance_is_kept(self) -> None:
        given = {"command": "seqserve train", "commit": "c0ffee", "steps": 7}
        provenance = Provenance(**given, data_licence="CC-BY", attribution="A")  # type: ignore[arg-type]
        assert Manifest.load(self.write(provenance=provenance)).provenance == provenance

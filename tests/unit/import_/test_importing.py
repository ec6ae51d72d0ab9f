from pathlib import Path

import pytest

from seqserve.errors import OptionError
from seqserve_import.importing import import_checkpoint
from seqserve_import.options import ImportOptions


@pytest.mark.parametrize(
    ("name", "reason"), [("tiny", "exists already"), ("../tiny", "is not a model name")]
)
def test_a_place_that_cannot_be_is_refused_before_the_checkpoint_is_read(
    tmp_path: Path, name: str, reason: str
) -> None:
    models = tmp_path / "models"
    (models / "tiny" / "1").mkdir(parents=True)
    options = ImportOptions(folder=tmp_path / "nowhere", name=name, model_repository=models)
    with pytest.raises(OptionError, match=reason):
        import_checkpoint(options)

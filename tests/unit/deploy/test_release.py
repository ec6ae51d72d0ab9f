import re
import tomllib
from pathlib import Path

import pytest

from seqserve import __version__

ROOT = Path(__file__).parents[3]
_VERSIONS = {
    "deploy/helm/seqserve/Chart.yaml": r"^(?:version|appVersion): (\S+)$",
    "deploy/kserve/runtime.yaml": r"seqserve:(\d\S*)$",
    "deploy/kustomize/kustomization.yaml": r"newTag: ([\d.]+)",
    "deploy/kustomize/seqserve.yaml": r"seqserve:(\d[\d.]*)|app.kubernetes.io/version: \"(\S+)\"",
    "docs/kubernetes.md": r"seqserve:(\d[\d.]*)",
    "RELEASING.md": r"(?:seqserve:|seqserve-|VERSION=|tag --sign v)(\d+\.\d+\.\d+)",
    "CHANGELOG.md": r"\A# Changelog\n.*?^## (\S+)",
}


@pytest.mark.parametrize("file", _VERSIONS)
def test_every_version_is_that_of_the_package(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    flags = re.MULTILINE | re.DOTALL if file == "CHANGELOG.md" else re.MULTILINE
    found = [
        next(filter(None, match.groups())) for match in re.finditer(_VERSIONS[file], text, flags)
    ]
    assert found
    assert set(found) == {__version__}


def test_the_packaged_models_are_those_that_are_served() -> None:
    names = {(ROOT / "models" / "default").read_text().strip(), "de-en"}
    newest = {
        name: max(int(path.name) for path in (ROOT / "models" / name).iterdir()) for name in names
    }
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    targets = build["targets"]
    shipped = {"models/default", *(f"models/{name}/{version}" for name, version in newest.items())}
    assert set(targets["wheel"]["force-include"]) == shipped
    left_out = targets["sdist"]["exclude"]
    assert not [part for part in shipped if f"/{part}".startswith(tuple(left_out))]

"""A release has one version, and its server begins with the newest model."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from seqserve import __version__
from seqserve_server.front.models import standard

ROOT = Path(__file__).parents[3]
_VERSIONS = {
    "deploy/helm/seqserve/Chart.yaml": r"^(?:version|appVersion): (\S+)$",
    "deploy/kserve/runtime.yaml": r"seqserve:(\d\S*)$",
    "deploy/kustomize/kustomization.yaml": r"newTag: ([\d.]+)",
    "deploy/kustomize/seqserve.yaml": r"seqserve:(\d[\d.]*)|app.kubernetes.io/version: \"(\S+)\"",
    "docs/kubernetes.md": r"seqserve:(\d[\d.]*)",
    "docs/release.md": r"(?:seqserve:|seqserve-|VERSION=|tag --sign v)(\d+\.\d+\.\d+)",
    "CHANGELOG.md": r"\A# Changelog\n.*?^## (\S+)",
}


def project_of(path: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / path).read_text("utf-8"))["project"]
    return project


@pytest.mark.parametrize("file", _VERSIONS)
def test_every_version_is_that_of_the_package(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    flags = re.MULTILINE | re.DOTALL if file == "CHANGELOG.md" else re.MULTILINE
    found = [
        next(filter(None, match.groups())) for match in re.finditer(_VERSIONS[file], text, flags)
    ]
    assert found
    assert set(found) == {__version__}


def test_the_packaged_model_is_the_one_that_is_served() -> None:
    model = project_of("models/pyproject.toml")
    name = (ROOT / "models" / "default").read_text().strip()
    newest = max(int(path.name) for path in (ROOT / "models" / name).iterdir())
    assert (model["name"], model["version"]) == (f"seqserve-{name}", str(newest))
    [pinned] = [
        wanted
        for wanted in project_of("pyproject.toml")["optional-dependencies"]["server"]
        if not wanted.startswith("seqserve[")
    ]
    assert pinned == f"{standard.PACKAGE}=={newest}.*"
    assert model["name"] == standard.PACKAGE
    build = tomllib.loads((ROOT / "models" / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    included = build["build"]["targets"]["wheel"]["force-include"]
    assert set(included) == {"default", f"{name}/{newest}"}
    assert set(included) <= set(build["build"]["targets"]["sdist"]["only-include"])
    assert (ROOT / "models" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_a_clone_needs_no_package_of_the_index_for_its_models() -> None:
    for extra, wanted in project_of("pyproject.toml")["optional-dependencies"].items():
        assert extra == "server" or "seqserve[server]" not in wanted

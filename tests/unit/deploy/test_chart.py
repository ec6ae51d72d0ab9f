import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import seqserve
from seqserve.load import capacity

HELM = Path(__file__).parents[3] / "deploy" / "helm"
CHART = HELM / "seqserve"
SCHEMA = CHART / "values.schema.json"


@pytest.fixture(scope="module")
def options() -> ModuleType:
    """The script that writes the variables into the schema."""
    spec = importlib.util.spec_from_file_location("options", HELM / "options.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects with named values, by where they stand."""
    if "properties" in schema:
        yield path, schema
        for name, part in schema["properties"].items():
            yield from objects(part, f"{path}/{name}")


def default(*path: str) -> Any:
    """The default of a value, by its names."""
    found = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for name in path:
        found = found[name]
    return found


def test_it_takes_the_variables_of_the_commands(options: ModuleType) -> None:
    text = SCHEMA.read_text(encoding="utf-8")
    assert options.written(text) == text, "stale: run `make manifests`"


def test_every_object_refuses_names_it_does_not_know(schema: dict[str, Any]) -> None:
    found = dict(objects(schema))
    assert len(found) > 10
    assert [path for path, part in found.items() if part["additionalProperties"] is not False] == []


def test_every_value_has_a_default(schema: dict[str, Any]) -> None:
    for path, part in objects(schema):
        if not path.endswith("/options"):
            names = set(default(*filter(None, path.split("/"))))
            assert set(part["properties"]) - {"global"} == names, path


def test_the_page_names_values_that_exist() -> None:
    page = (HELM.parents[1] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \| ", page, re.MULTILINE)
    assert rows
    for name in (name for row in rows for name in re.findall(r"`(.+?)`", row)):
        default(*name.split("."))


def test_its_memory_is_that_of_a_plan() -> None:
    formula = (CHART / "templates" / "_variables.tpl").read_text(encoding="utf-8")
    [answers] = re.findall(r"SEQSERVE_MAX_ANSWER_MB \| default (\d+)", formula)
    [main, front] = re.findall(r"add (\d+) \(mul (\d+) \$fronts\) \$answers", formula)[0]
    assert (int(main) + int(front), int(answers)) == (capacity.FRONT_MI, capacity.ANSWERS_MI)
    assert default("memory") == {"versions": capacity.VERSIONS, "versionMi": capacity.VERSION_MI}


def test_its_version_is_that_of_the_server() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == seqserve.__version__

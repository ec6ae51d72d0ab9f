"""Checks manifests against the schemas of their kinds: ``python schemas.py < manifests``.

It runs in the environment ``build/helm``. The schemas are those of Kubernetes itself (strict: a
field that is not known is an error), models of KEDA and of the Prometheus operator, and the fields
of KServe's package. Prints a JSON list with an error, or null, for each manifest.
"""

import functools
import importlib
import json
import re
import sys
import types
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import yaml
from jsonschema.validators import Draft202012Validator
from referencing import Registry, Resource

KUBERNETES = "v1.37.0-local-strict"
# Packages whose import takes a second each; only what is asked for is imported.
MODELS = {
    "keda.sh": "cloudcoil.models.keda",
    "monitoring.coreos.com": "cloudcoil.models.prometheus_operator",
}
KSERVE = "serving.kserve.io"
SCALARS = {"str": str, "bool": bool, "int": int, "float": (int, float)}


def errors_of(manifest: dict[str, Any]) -> Iterator[str]:
    """Yields what the schema of its kind says against a manifest."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    if group in MODELS:
        yield from _errors_by_model(f"{MODELS[group]}.{version}", manifest)
    elif group == KSERVE:
        kind = f"{version.capitalize()}{manifest['kind']}"
        yield from _errors_by_kserve(kind, manifest, manifest["kind"])
    else:
        api = "-".join(filter(None, (group.partition(".")[0], version)))
        yield from _errors_by_kubernetes(f"{manifest['kind'].lower()}-{api}.json", manifest)


def _errors_by_kubernetes(file: str, value: Any) -> Iterator[str]:
    for error in _validator(file).iter_errors(value):
        yield f"{'.'.join(map(str, error.path))}: {error.message[:300]}"


def _errors_by_model(package: str, manifest: dict[str, Any]) -> Iterator[str]:
    """A model drops fields that it does not know, so what it gives back is compared."""
    model = getattr(importlib.import_module(package), manifest["kind"])
    try:
        known = model.model_validate(manifest)
    except ValueError as error:
        yield str(error)
        return
    kept = known.model_dump(mode="json", by_alias=True, exclude_unset=True)
    yield from _dropped(manifest, kept, manifest["kind"])


def _dropped(given: Any, kept: Any, path: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name in kept:
                yield from _dropped(value, kept[name], f"{path}.{name}")
            else:
                yield f"{path}: {name} is unknown"
    elif isinstance(given, list) and isinstance(kept, list):
        for number, (value, other) in enumerate(zip(given, kept, strict=True)):
            yield from _dropped(value, other, f"{path}.{number}")


def _errors_by_kserve(kind: str, value: Any, path: str) -> Iterator[str]:
    """Follows the names and types that KServe's classes declare, down to those of Kubernetes."""
    if listed := re.fullmatch(r"list\[(.+)\]", kind):
        for number, element in enumerate(value):
            yield from _errors_by_kserve(listed[1], element, f"{path}.{number}")
    elif kind in SCALARS:
        if not isinstance(value, SCALARS[kind]):
            yield f"{path}: {value!r} is no {kind}"
    elif (model := _kserve(kind)) is not None:
        kinds = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
        for name in value.keys() - kinds.keys():
            yield f"{path}: {name} is unknown"
        for name in value.keys() & kinds.keys():
            yield from _errors_by_kserve(kinds[name], value[name], f"{path}.{name}")
    elif (_schemas() / (file := f"{kind.removeprefix('V1').lower()}-v1.json")).is_file():
        for error in _errors_by_kubernetes(file, value):
            yield f"{path}.{error}"


@functools.cache
def _kserve(kind: str) -> Any:
    """Imports one class; the packages themselves would import a web server."""
    if "kserve" not in sys.modules:
        [folder] = find_spec("kserve").submodule_search_locations
        for name, path in {"kserve": folder, "kserve.models": f"{folder}/models"}.items():
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [path]
        # It is asked for nothing but the class of its settings.
        sys.modules["kserve.configuration"] = types.SimpleNamespace(Configuration=object)
        sys.modules["six"] = types.ModuleType("six")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
    try:
        return getattr(importlib.import_module(f"kserve.models.{name}"), kind)
    except ModuleNotFoundError:
        return None


def _schemas() -> Any:
    return files("kubernetes_validate") / "kubernetes-json-schema" / KUBERNETES


@functools.cache
def _definitions() -> Any:
    return Resource.from_contents(json.loads((_schemas() / "_definitions.json").read_text()))


@functools.cache
def _validator(file: str) -> Draft202012Validator:
    schema = json.loads((_schemas() / file).read_text())
    return Draft202012Validator(schema, registry=_definitions() @ Registry())


if __name__ == "__main__":
    manifests = list(yaml.load_all(sys.stdin, yaml.CSafeLoader))
    json.dump([next(errors_of(manifest), None) for manifest in manifests], sys.stdout)

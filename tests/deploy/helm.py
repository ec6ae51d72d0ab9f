"""Renders the chart with Helm, which is in ``build/helm``; ``make test-helm`` sets that up."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "seqserve"
TOOLS = ROOT / "build" / "helm" / "bin"
RELEASE, NAMESPACE = "seqserve", "translation"
_MISSING = "build/helm is missing: `make test-helm` sets it up"

Manifest = dict[str, Any]


class Refused(Exception):
    """A tool refused what it got; the message is its own."""


def run(tool: str, *arguments: str, text: str = "") -> str:
    """Runs a tool and returns its output.

    Raises:
        Refused: It failed.
    """
    assert (TOOLS / tool).exists(), _MISSING
    done = subprocess.run(
        [str(TOOLS / tool), *arguments], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def render(values: Mapping[str, Any], *flags: str) -> list[Manifest]:
    """Returns the manifests of a release with these values.

    Raises:
        Refused: The chart refuses them.
    """
    arguments = ("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-", *flags)
    return manifests_of(run("helm", *arguments, text=json.dumps(values)))


def manifests_of(text: str) -> list[Manifest]:
    return [part for part in yaml.load_all(text, yaml.CSafeLoader) if part is not None]


def faults(manifests: Sequence[Manifest]) -> list[str | None]:
    """Checks manifests against the schemas of their kinds; gives one fault of each, or none."""
    script = str(Path(__file__).parent / "schemas.py")
    return json.loads(run("python", script, text=yaml.dump_all(manifests, Dumper=yaml.CSafeDumper)))


def one(manifests: Sequence[Manifest], kind: str, name: str = RELEASE) -> Manifest:
    [found] = [
        each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found

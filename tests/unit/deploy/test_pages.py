import contextlib
import dataclasses
import functools
import importlib
import io
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqserve.command.main import COMMANDS
from seqserve.option_values import variable_of
from seqserve.options import flag_of
from seqserve_gateway.command import GatewayOptions
from seqserve_gateway.endpoint import Metrics as HttpMetrics
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.security.usage import Usage
from seqserve_server.front.telemetry.engine_metrics import process_families
from seqserve_server.front.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "server/seqserve_server"
MODEL = ROOT / "model/seqserve_model"
BASES = (ROOT, SERVER, MODEL, ROOT / "tests", ROOT / "tests/unit/model")
"""Folders that pages may leave out of a path."""
OTHERS = ("tests/PROMISES.md", "RE*.md")
PAGES = sorted(
    page
    for pattern in ("docs/**/*.md", "[!.]*/README.md", "deploy/*/README.md", *OTHERS)
    for page in ROOT.glob(pattern)
)
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
FOREIGN_FLAGS = {
    *("--build-arg", "--gpus", "--pids-limit", "--secret"),  # Docker
    *("--enable-feature", "--strict", "--streaming"),  # Prometheus, pip-audit, perf_analyzer
}
FOREIGN_VARIABLES = {"SEQSERVE_IMAGE", "SEQSERVE_EXTRA", "SEQSERVE_MEMORY"}  # Compose
FOREIGN_VARIABLES |= {"SEQSERVE_SOAK_S", "SEQSERVE_CHAOS_S"}  # tests

pages = pytest.mark.parametrize("page", TEXTS)

FOLDERS = ("docs/**/*.svg", "clients/examples/**/*.*", "deploy/**/*.*", "*/seqserve_*/**/*.py")
SAMPLES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace")
    for pattern in (*FOLDERS, "docker-compose.yml", "clients/python/seqserve/command/*.py")
    for path in sorted(ROOT.glob(pattern))
    if path.is_file() and "node_modules" not in path.parts and path.name != "rules_test.yml"
}
"""What is shown or run beside the pages: pictures, examples, configuration, help."""
MODELS = {
    folder.name: {int(version.name) for version in folder.iterdir()}
    for folder in ROOT.glob("models/??-??/")
}
"""The versions of each shipped model; `numbers`, which the README trains, is not shipped."""
PAST = ("models/README.md", "recipes/README.md", "docs/training.md", "docs/benchmarks.md")
"""Pages whose text, but not their commands, tells of versions that are gone."""


def find(name: str) -> Path | None:
    """Finds the file that a page names."""
    direct = (base / name for base in BASES if (base / name).exists())
    folders = (ROOT / folder for folder in ("tests", "model", "recipes", "server"))
    found = (file for folder in folders for file in folder.rglob(name))
    return next(itertools.chain(direct, found), None)


@functools.cache
def help_of(verb: str, *words: str) -> str:
    """Returns what ``seqserve VERB [WORD] --help`` prints."""
    command = COMMANDS[verb]
    run = getattr(importlib.import_module(command.module), command.function)
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        run([*words, "--help"])
    return shown.getvalue()


def flags_of(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))


def commands_of(text: str) -> Iterator[str]:
    """The command lines of ``seqserve`` in a page's blocks, without their comments."""
    for block in re.findall(r"```(?:console|sh)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.search(r"(?:^|&& |\| )(seqserve [^#|>]*)", line)
            if command is not None:
                yield command[1].strip()


@pages
def test_every_link_leads_to_a_file(page: str) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", TEXTS[page])
    folder = (ROOT / page).parent
    assert [link for link in links if not (folder / link).exists()] == []


@pages
def test_every_file_exists(page: str) -> None:
    names = re.findall(r"`([\w/.-]*\w\.(?:py|proto|toml))[`:]", TEXTS[page])
    assert [name for name in names if find(name) is None and name not in YOURS] == []


YOURS = {"mine.toml"}
"""Files that a reader makes."""


@pages
def test_every_proof_exists(page: str) -> None:
    proofs = re.findall(r"`([\w/]*test_\w+\.py)::(test_\w+)`", TEXTS[page])
    missing = [
        f"{name}::{test}"
        for name, test in proofs
        if (file := find(name)) is None or f"def {test}(" not in file.read_text(encoding="utf-8")
    ]
    assert missing == []


@pages
def test_code_below_the_name_of_a_file_is_in_that_file(page: str) -> None:
    shown = re.findall(r"^`(\w+\.py)`\n\n```python\n(.*?)```", TEXTS[page], re.M | re.DOTALL)
    for file, code in shown:
        written = [line.strip() for line in (MODEL / file).read_text("utf-8").splitlines()]
        lines = [line.strip() for line in code.splitlines()]
        places = range(len(written))
        assert any(written[at : at + len(lines)] == lines for at in places), (file, code)


@pages
def test_every_command_takes_its_options(page: str) -> None:
    for command in commands_of(TEXTS[page]):
        _, verb, *rest = command.split()
        words = rest[:1] if verb in ("models", "plot") and rest else []
        assert flags_of(command) <= flags_of(help_of(verb, *words)), command


@pages
def test_every_option_and_variable_exists(page: str) -> None:
    known = {flag for verb in COMMANDS for flag in flags_of(help_of(verb))} | FOREIGN_FLAGS
    known |= flags_of(help_of("models", "fetch"))
    named = {flag for code in re.findall(r"`(--[^`]+)`", TEXTS[page]) for flag in flags_of(code)}
    assert named <= known
    variables = {variable_of(flag[2:].replace("-", "_")) for flag in known}
    named = set(re.findall(r"SEQSERVE_[A-Z_]*[A-Z]", TEXTS[page]))
    assert named <= variables | FOREIGN_VARIABLES | {"SEQSERVE_TOKEN"}


@functools.cache
def metric_names() -> set[str]:
    """Names the metrics of servers and gateways."""
    metrics = Metrics()
    metrics.show_answers(int, int)
    metrics.show_loaded_bytes(int)
    metrics.show_calls_never_accepted(int)
    metrics.calls.register(Usage())
    families = [*metrics.registry.collect(), *HttpMetrics().registry.collect()]
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in (*families, *process_families("front", [], ["front"]))
    }


@pages
def test_every_metric_exists(page: str) -> None:
    named = re.findall(r"(?<![:\w])seqserve_[a-z_]+(?![:\w./])", TEXTS[page])
    packages = {path.name for path in ROOT.glob("*/seqserve_*")}
    assert set(named) - packages <= metric_names()


@pages
def test_defaults_in_a_table_are_those_of_the_server(page: str) -> None:
    defaults = {flag_of(f.name): getattr(ServeOptions(), f.name) for f in FIELDS}
    for table in re.findall(r"(?:^\|.*\n)+", TEXTS[page], re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in row.split("|")] for row in table.splitlines())
        for row in rows if "default" in head else ():
            flags = [flag for flag in re.findall(r"`(--[a-z-]+)`", "|".join(row))]
            if len(flags) == 1 and (value := defaults.get(flags[0])) is not None:
                assert row[head.index("default")].split()[0] == f"{value:,}".removesuffix(".0"), row


FIELDS = dataclasses.fields(ServeOptions)


def versions_of(text: str) -> Iterator[tuple[str, int]]:
    """Names the versions of shipped models: en-de/4, en-de 4=95 5=5, fields of JSON."""
    name = f"({'|'.join(MODELS)})"
    for model, version in re.findall(rf"\b(?<!old/){name}/([1-9][0-9]*)\b", text):
        yield model, int(version)
    for model, version in re.findall(rf'"model": ?"{name}", ?"version": ?([0-9]+)', text):
        yield model, int(version)
    for model, versions in re.findall(rf"\b{name}[ :]((?:[0-9]+(?:=[0-9]+)?[ ,]?)+)", text):
        yield from ((model, int(each)) for each in re.findall(r"(?<![=0-9])[0-9]+", versions))


def test_every_version_exists_or_is_the_next() -> None:
    texts = TEXTS | SAMPLES
    for page in PAST:
        texts[page] = "".join(re.findall(r"```(?:console|sh)\n(.*?)```", texts[page], re.DOTALL))
    known = {model: versions | {max(versions) + 1} for model, versions in MODELS.items()}
    assert {
        (page, model, version)
        for page, text in texts.items()
        for model, version in versions_of(text)
        if version not in known[model]
    } == set()


def test_something_listens_on_every_port() -> None:
    known = {ServeOptions().port, ServeOptions().metrics_port, GatewayOptions().port}
    known |= set(map(int, re.findall(r"_PORT:-(\d+)\}:", SAMPLES["docker-compose.yml"])))
    known |= set(map(int, re.findall(r"port_value: (\d+)", SAMPLES["deploy/envoy/envoy.yaml"])))
    missing = set()
    for page, text in (TEXTS | SAMPLES).items():
        given = re.findall(r"(?:PORT=|--port |--listen \S+:|\d-)(\d+)", text)
        named = re.findall(r"(?<!ipv4:)(?:localhost|127\.0\.0\.1):(\d+)", text)
        missing |= {
            (page, port) for port in map(int, named) if port not in {*known, *map(int, given)}
        }
    assert missing == set()


def test_every_double_is_in_its_file() -> None:
    row = r"(?m)^\| (`.+?`.*?) \| (`[\w/.]+\.py`.*?) \|"
    rows = re.findall(row, TEXTS["tests/README.md"])
    assert rows
    for doubles, files in rows:
        paths = (ROOT / "tests" / file for file in re.findall(r"[\w/]+\.py", files))
        text = "".join(path.read_text("utf-8") for path in paths)
        names = re.findall(r"`(\w+)(?:\(\))?`", doubles)
        assert [name for name in names if name not in text] == [], files


def test_every_picture_of_the_walk_is_shown() -> None:
    walk = "".join(text for page, text in TEXTS.items() if page.startswith("docs/inside/"))
    drawn = {path.name for path in (ROOT / "docs/inside").glob("*.svg")}
    assert set(re.findall(r"\]\((\w+\.svg)\)", walk)) == drawn


@pytest.mark.parametrize("process", ["front", "engine"])
def test_the_picture_of_the_processes_has_their_folders(process: str) -> None:
    picture = (ROOT / "docs/processes.svg").read_text(encoding="utf-8")
    folders = {path.parent.name for path in (SERVER / process).glob("*/__init__.py")}
    assert [name for name in folders if f">{name}/<" not in picture] == []

"""The commands of the pages run here, or have a reason: another test, or something they need."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.gateway import Gateway
from tests.support.process import ROOT, ServerProcess

PAGES = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")}
CALLS = r"(?:generate|score|attention|translate|models(?= *$| --))"
ELSEWHERE = {
    r"pip install|hf download|tensorboard|curl -s https": "installs, or needs the internet",
    r"docker|chmod|chown|openssl|umask|mkdir -p|export |new=|curl --fail": "test_operations",
    r"helm|kubectl": "test_chart",
    r"seqserve (?:serve|gateway|playground)": "test_lifecycle, test_gateway, test_playground",
    r"seqserve (?:train|prepare|evaluate)": "takes long; test_train, test_prepare, test_evaluate",
    r"seqserve (?:export|upgrade)": "takes long; test_export, test_conversion",
    r"seqserve (?:import|shortlist)": "needs a checkpoint; test_import, test_shortlist",
    r"seqserve plot": "draws pictures of the pages, as docs/figures.py; test_command",
    r"seqserve (?:load|plan)": "takes long; test_load, test_plan",
    r"seqserve corpus": "test_corpus",
    r"seqserve token": "test_token",
    r"seqserve models (?:traffic|fetch|index)": "test_rollout, test_placing",
    r"seqserve generate --(?:target|token-file)": "test_security, test_operations",
    r"seqserve generate --source-language pt": "needs an imported model; test_import",
    r"seqserve (?:generate|models) .*--gloss": "test_glossaries",
    r"printf|mkdir|tar |cat ": "makes files of the next command",
}
"""Beginnings of commands, and what runs them or why nothing does."""


def commands_of(page: str) -> list[str]:
    blocks = re.findall(r"```(?:console|sh)\n(.*?)```", page, re.DOTALL)
    lines = []
    for block in blocks:
        # In a session with its output, only what follows a prompt is a command.
        is_session = block.startswith("$ ")
        for line in re.sub(
            r"\\\n\s*", "", re.sub(r"<<END\n.*?END\n", "\n", block, flags=re.S)
        ).splitlines():
            command = line.removeprefix("$ ").partition("  #")[0].strip()
            if command and (line.startswith("$ ") or not is_session):
                lines.append(command)
    return [line for line in lines if not line.startswith(("data:", "...", "seqserve: "))]


EVERY = sorted({command for page in PAGES.values() for command in commands_of(page)})
RUN = [
    command for command in EVERY if not any(re.match(beginning, command) for beginning in ELSEWHERE)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the commands name."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "letter.txt").write_text("It rains.\n")
    (folder / "goods.csv").write_text("name,description\na,A good film.\n")
    (folder / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nIt rains.\n")
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "glossaries.md", folder / "docs")
    return folder


def test_every_command_is_known() -> None:
    known = re.compile(rf"seqserve {CALLS}|curl (?:-N )?localhost")
    assert [each for each in RUN if not known.match(each)] == []


def test_every_reason_names_tests_that_exist() -> None:
    named = {name for reason in ELSEWHERE.values() for name in re.findall(r"test_\w+", reason)}
    assert {name for name in named if not [*(ROOT / "tests").rglob(f"{name}.py")]} == set()


@pytest.mark.parametrize("command", RUN)
def test_commands_run(command: str, shipped: ServerProcess, gateway: Gateway, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "SEQSERVE_TARGET": shipped.target}
    called = command.replace("localhost:5000", gateway.url.removeprefix("http://"))
    called = called.replace("curl ", "curl --fail --silent --show-error ")
    done = subprocess.run(
        called, shell=True, cwd=folder, env=environ, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or "-o " in command

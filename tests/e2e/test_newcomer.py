"""First steps: the commands of the README, the demo, the oldest versions, other languages."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import filterfalse
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pool, json_format
from google.protobuf.message_factory import GetMessageClass
from tests.support.process import ROOT, ServerProcess

from seqserve import Client
from seqserve.command.main import COMMANDS

from .long_text import long_text

README = (ROOT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.newcomer


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(program: str) -> list[str]:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    found = [line.partition("#")[0].strip() for line in lines]
    return [line for line in found if line.startswith(f"{program} ")]


def calls_a_server(command: str) -> bool:
    return not COMMANDS[command.split()[1]].extra


def environment(target: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SEQSERVE_TARGET": target}


def run(command: list[str] | str, **options: object) -> str:
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=1200, check=False, **options
    )  # type: ignore[call-overload]
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return str(finished.stdout)


@pytest.mark.parametrize("command", commands("make"))
def test_its_make_verbs_are_there(command: str) -> None:
    run([*command.split(), "--dry-run"], cwd=ROOT)


@pytest.mark.parametrize("command", [*filter(calls_a_server, commands("seqserve"))])
def test_calls_of_the_readme_work(command: str, shipped: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "source.txt").write_text("Good morning.\nThe house is old.\n" * 20)
    run(command, shell=True, cwd=tmp_path, env=environment(shipped.target))
    if target := list(tmp_path.glob("target.txt")):
        lines = target[0].read_text(encoding="utf-8").splitlines()
        assert len(lines) == 40
        assert len(set(lines)) == 2


def test_its_picture_is_what_the_command_draws(shipped: ServerProcess) -> None:
    [command] = [line for line in commands("seqserve") if "--svg" in line]
    drawn = run(command.partition(">")[0], shell=True, env=environment(shipped.target))
    names = re.compile("<text.*?>(.*?)</text>")
    shown = (ROOT / "docs" / "attention.svg").read_text(encoding="utf-8")
    # The last digits may differ between kinds of CPU.
    assert names.findall(drawn) == names.findall(shown)


@pytest.mark.parametrize("command", [*filterfalse(calls_a_server, commands("seqserve"))])
def test_its_other_commands_take_their_options(command: str) -> None:
    _, verb, *arguments = command.split()
    flags = {word for word in arguments if word.startswith("--")}
    shown = run([sys.executable, "-m", "seqserve", verb, "--help"])
    assert all(flag in shown for flag in flags)


def test_its_python_runs(shipped: ServerProcess) -> None:
    [code], [text] = blocks("python"), blocks("text")
    shown = run([sys.executable, "-c", code.replace("localhost:50051", shipped.target)])
    assert shown.strip() == text.strip()


def test_the_demo_translates_and_ends_well() -> None:
    shown = run(["make", "demo"], cwd=ROOT)
    assert "Kaffee" in shown
    assert "tokens/s" in shown
    assert "make serve" in shown


def test_the_oldest_allowed_versions_serve(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["server-core"], *extras["server"]]
    oldest = [
        line.partition(";")[0].replace(">=", "==") for line in wanted if not line.startswith("seq")
    ]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    quiet = ["--quiet", "--disable-pip-version-check"]
    run([python, "-m", "pip", "install", *quiet, f"{ROOT}[server]", *oldest])
    assert "Kaffee" in run([python, "clients/examples/demo.py"], cwd=ROOT)


def test_the_python_example_runs(shipped: ServerProcess) -> None:
    path = ROOT / "clients" / "examples" / "python" / "calls.py"
    lines = run([sys.executable, str(path), shipped.target], input="Good morning.\n").splitlines()
    assert lines[-2].startswith("refused, as it should be") and lines[-1].strip()


def test_the_calls_of_grpcurl_are_answered(shipped: ServerProcess) -> None:
    page = (ROOT / "clients" / "examples" / "grpcurl.md").read_text(encoding="utf-8")
    calls = re.findall(
        r"(?:-d '({[^']*})' (?:\\\n *)?)?localhost:50051 (seqserve\.v1\.\w+)/(\w+)", page
    )
    assert len(calls) == page.count("localhost:50051 seqserve.v1.")
    with grpc.insecure_channel(shipped.target) as channel:
        for body, name, method in calls:
            described = descriptor_pool.Default().FindServiceByName(name).methods_by_name[method]
            request = json_format.Parse(body or "{}", GetMessageClass(described.input_type)())
            call = channel.unary_stream(
                f"/{name}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=GetMessageClass(described.output_type).FromString,
            )
            assert [str(response) for response in call(request)], body


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the Node examples, with what they need installed."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed: the Node examples were NOT run")
    clone = tmp_path_factory.mktemp("node")
    examples = clone / "clients" / "examples" / "node"
    shutil.copytree(ROOT / "clients" / "examples" / "node", examples)
    shutil.copytree(ROOT / "proto", clone / "proto")
    run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=examples)
    return examples


@pytest.mark.parametrize("script", ["generate.js", "stream.js"])
def test_node_calls_it(script: str, shipped: ServerProcess, node: Path) -> None:
    shown = run(
        ["node", script, "The coffee tastes good."], cwd=node, env=environment(shipped.target)
    )
    assert "Kaffee" in shown


def test_node_sends_a_whole_text(shipped: ServerProcess, node: Path) -> None:
    text, _ = long_text(300)
    shown = run(["node", "document.js"], cwd=node, env=environment(shipped.target), input=text)
    with Client(shipped.target) as client:
        assert shown == client.generate(text, segmentation="sentences", timeout_s=300).text


def test_node_tells_which_line_fails(shipped: ServerProcess, node: Path) -> None:
    text = "We saw a good film.\n" + 5_000 * "It rains. " + "\n"
    where = {"cwd": node, "env": environment(shipped.target), "timeout": 300}
    command = ["node", "document.js"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False, **where)
    assert done.returncode == 1
    assert done.stderr.startswith("line 2 stays as it is: ")
    assert done.stdout.split("\n")[1:] == text.split("\n")[1:]

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from seqserve import __version__
from seqserve.command.main import COMMANDS, Command, main
from seqserve.errors import OptionError, SeqserveError, Unauthenticated, Unreachable

COMMAND = [sys.executable, "-m", "seqserve"]


def install(monkeypatch: pytest.MonkeyPatch, outcome: Any, extra: str = "server") -> None:
    """Adds a command ``try`` that returns an exit status or raises."""
    module = ModuleType("trial")

    def run(argv: list[str]) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome(argv)

    module.main = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trial", module)
    monkeypatch.setitem(COMMANDS, "try", Command(module="trial", extra=extra))


def ended(program: str) -> tuple[int, bytes, bytes]:
    """Runs a program to its end; returns exit status, output and errors."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_shows_commands(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    shown = capsys.readouterr().out
    listed = shown.partition("commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == [*COMMANDS]
    assert 'seqserve generate "The coffee tastes good."' in shown
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_help_names_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", "version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: seqserve version")


def test_version_and_the_parts_that_are_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        if name == "grpcio":
            return "9.9.9"
        raise metadata.PackageNotFoundError(name)

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"seqserve {__version__}\n"
    monkeypatch.setattr(metadata, "version", version)
    assert main(["version"]) == 0
    own, python, *others = capsys.readouterr().out.splitlines()
    assert own == f"seqserve {__version__}" and python.startswith("python 3.")
    assert others == ["grpcio 9.9.9"]


@pytest.mark.parametrize(
    ("word", "advice"),
    [("genrate", "; did you mean 'generate'?"), ("gen", "; did you mean 'generate'?"), ("xyz", "")],
)
def test_an_unknown_command(word: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "text"]) == 2
    assert f"unknown command '{word}'{advice}\n" in capsys.readouterr().err


def test_a_command_gets_arguments_and_returns_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, len)
    assert main(["try", "a", "b", "--c"]) == 3


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (SeqserveError("models: is empty"), 1, "seqserve: models: is empty\n"),
        (OptionError("--port: 'x' is not a whole number"), 2, "seqserve: --port: 'x' is not"),
        (Unreachable("UNAVAILABLE", "refused"), 1, "seqserve: UNAVAILABLE: refused\nIs a server"),
        (Unauthenticated("UNAUTHENTICATED", "no"), 1, "seqserve: UNAUTHENTICATED: no\n--token-"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_statuses(
    error: BaseException,
    status: int,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(monkeypatch, error)
    assert main(["try"]) == status
    streams = capsys.readouterr()
    assert streams.err.startswith(shown)
    assert streams.out == ""


def test_a_missing_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, ModuleNotFoundError("no", name="onnxruntime.capi"))
    assert main(["try"]) == 1
    assert capsys.readouterr().err == (
        "seqserve: `seqserve try` needs 'onnxruntime', which is not installed: "
        "pip install 'seqserve[server]'\n"
    )


@pytest.mark.parametrize(
    ("error", "extra"),
    [
        (ModuleNotFoundError("no", name="seqserve_server.engine"), "server"),
        (ModuleNotFoundError("no", name="seqserve.x"), "train"),
        (ModuleNotFoundError("no", name="numpy"), ""),
        (ZeroDivisionError(), "server"),
    ],
)
def test_faults_of_seqserve_show_their_traceback(
    error: Exception, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, error, extra=extra)
    with pytest.raises(type(error)):
        main(["try"])


def test_a_sub_command_is_imported_only_when_it_is_called() -> None:
    program = "import sys, seqserve.command.main as m; m.main(['version']); print(*sys.modules)"
    status, out, _ = ended(program)
    loaded = set(out.decode().splitlines()[-1].split())
    assert status == 0
    assert "seqserve.options" in loaded
    unwanted = {"seqserve.command.generate", "seqserve_server", "numpy", "torch", "onnxruntime"}
    assert unwanted & loaded == set()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_command_that_hangs_is_ended() -> None:
    """Hangs, as after an interrupt of the main thread while it held a lock."""
    program = """
import signal, threading
import seqserve.__main__, seqserve.command.main as m
from seqserve.command import process
def hang():
    process.clean_up_first()
    lock = threading.Lock()
    lock.acquire()
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        print('hangs', flush=True)
        lock.acquire()
m.main = hang
process.last_word = lambda: 'bye'
process.GRACE_S = 1
seqserve.__main__.run()
"""
    assert ended(program) == (130, b"hangs\n", b"bye")


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("module", ["argparse", "grpc", "seqserve.command.generate"])
def test_interrupted_while_it_is_loaded(module: str) -> None:
    program = (
        "import signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['seqserve', 'generate', 'text']\n"
        "from seqserve.__main__ import run\n"
        "run()\n"
    )
    assert ended(program) == (130, b"", b"")


LOST = {
    "a clean-up": "    try:\n        interrupt()\n    finally:\n        raise KeyError('half')\n",
    "a destructor": "    Destroyed()\n    raise KeyError('half')\n",
    "a library": "    swallow()\n    return 0\n",
    "a half loaded library": "    swallow()\n    raise SeqserveError('torch is half loaded')\n",
}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("where", LOST)
def test_an_interrupt_that_gets_lost_ends_the_command_too(where: str) -> None:
    program = (
        "import signal, sys, types\n"
        "import seqserve.__main__\n"
        "from seqserve.command.main import COMMANDS, Command\n"
        "from seqserve.errors import SeqserveError\n"
        "def interrupt():\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "class Destroyed:\n"
        "    def __del__(self):\n"
        "        interrupt()\n"
        "def swallow():\n"
        "    try:\n"
        "        interrupt()\n"
        "    except BaseException:\n"
        "        pass\n"
        "def main(argv):\n"
        f"{LOST[where]}"
        "sys.modules['trial'] = types.SimpleNamespace(main=main)\n"
        "COMMANDS['try'] = Command(module='trial')\n"
        "sys.argv = ['seqserve', 'try']\n"
        "seqserve.__main__.run()\n"
    )
    assert ended(program) == (130, b"", b"")


def test_nothing_is_loaded_before_interrupts_are_handled() -> None:
    program = (
        "import sys; before = set(sys.modules); import seqserve.command.process;"
        " print(*sorted(set(sys.modules) - before))"
    )
    # Without the packages of the site, whose files may load modules of their own.
    command = [sys.executable, "-S", "-c", program]
    path = os.pathsep.join(filter(None, sys.path))
    listed = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    # What is part of the interpreter takes no time.
    loaded = set(listed.stdout.split()) - set(sys.builtin_module_names)
    loaded -= {"__future__", "os", "os.path", "posixpath", "genericpath", "stat"}
    others = {name for name in loaded if not name.startswith(("_", "seqserve"))}
    assert others == set()


PROJECT = Path(__file__).parents[4] / "pyproject.toml"


def test_every_command_has_a_module_and_every_extra_is_declared() -> None:
    assert [name for name, command in COMMANDS.items() if find_spec(command.module) is None] == []
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert {command.extra for command in COMMANDS.values()} - {""} <= set(declared)

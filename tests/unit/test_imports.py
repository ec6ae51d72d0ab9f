import subprocess
import sys

import pytest

WALK = """
import pkgutil
package = importlib.import_module(sys.argv[1])
names = [name for _, name, _ in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
count = len(names)
"""
IMPORT = """
importlib.import_module(sys.argv[1])
count = 1
"""
HELP = """
import contextlib, io
module, _, function = sys.argv[1].partition(":")
with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
    getattr(importlib.import_module(module), function or "main")(["--help"])
count = shown.getvalue().count("usage: seqserve ")
"""
REPORT = """
loaded = {name.partition(".")[0] for name in sys.modules}
print(count, *sorted(loaded & set(sys.argv[2].split())))
"""


def loaded(script: str, package: str, banned: str) -> tuple[int, list[str]]:
    program = f"import importlib, sys\n{script}\n{REPORT}"
    command = [sys.executable, "-c", program, package, banned]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(output[0]), output[1:]


@pytest.mark.parametrize("script", [IMPORT, WALK], ids=["itself", "every module"])
def test_client_loads_nothing_heavy(script: str) -> None:
    banned = "numpy onnxruntime torch onnx tokenizers seqserve_server seqserve_model"
    assert loaded(script, "seqserve", banned)[1] == []


def test_no_module_of_the_server_loads_torch_or_onnx() -> None:
    banned = "torch onnx onnxscript seqserve_model seqserve_export"
    modules, found = loaded(WALK, "seqserve_server", banned)
    assert modules > 20
    assert found == []


def test_what_serves_calls_loads_nothing_that_runs_models_or_traces() -> None:
    """Models are for the engines' processes alone, tracing for who wants it."""
    banned = "numpy onnxruntime torch opentelemetry"
    assert loaded(IMPORT, "seqserve_server.serve.app", banned) == (1, [])


def test_model_loads_no_onnx() -> None:
    assert loaded(WALK, "seqserve_model", "onnx onnxscript seqserve_export")[1] == []


@pytest.mark.parametrize(
    "module",
    [
        "seqserve_model.prepare",
        "seqserve_model.command:train",
        "seqserve_model.command:evaluate",
        "seqserve_export.command",
        "seqserve_export.command:shortlist",
        "seqserve_export.command:upgrade",
        "seqserve_import.command",
        "seqserve_plot.command",
        "seqserve_server.fetch.command",
        "seqserve_server.corpus.command",
        "seqserve_gateway.command",
        "seqserve_gateway.playground",
    ],
)
def test_help_of_a_command_needs_the_client_alone(module: str) -> None:
    banned = "numpy torch onnx onnxruntime safetensors sacrebleu tokenizers tqdm matplotlib ray"
    assert loaded(HELP, module, f"{banned} starlette uvicorn") == (1, [])

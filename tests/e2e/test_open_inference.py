"""The Open Inference Protocol, called by tritonclient in its own process."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.support.endless_model import NAME
from tests.support.process import PATIENCE_S, ROOT, ServerProcess

from seqserve import Client
from seqserve.command.main import main
from seqserve.open_inference import open_inference_pb2

from . import triton

TEXTS = ["The old train", "Nobody", "Grüße 🙂"]
SHORT = {"max_decoding_length": 12}

Run: TypeAlias = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a function in another process and returns its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield lambda function, *given, **named: pool.submit(function, *given, **named).result(
            PATIENCE_S
        )


@pytest.fixture(scope="module")
def call(run: Run, server: ServerProcess) -> Run:
    """The same, for functions that call the model of the server."""
    return lambda function, *given, **named: run(function, server.target, NAME, *given, **named)


def test_names_and_numbers_are_those_of_the_protocol(run: Run) -> None:
    theirs, ours = run(triton.contract), triton.described(open_inference_pb2.DESCRIPTOR)
    assert ours
    for name, members in ours.items():
        for member, meaning in members.items():
            assert theirs[name][member] == meaning, f"{name}.{member}"


def test_server_and_model_are_described(call: Run) -> None:
    found = call(triton.describe)
    assert [found[name] for name in ("live", "ready", "model ready", "version ready")] == [True] * 4
    assert not found["other ready"]
    assert found["server"]["name"] == "seqserve"
    assert found["model"]["versions"] == ["1"]
    assert found["model"]["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": ["-1", "1"]}]
    assert found["config"]["config"]["input"][0]["data_type"] == "TYPE_STRING"
    assert found["index"]["models"] == [{"name": NAME, "version": "1", "state": "READY"}]


def test_figures_are_read(call: Run) -> None:
    before, after = call(triton.statistics), call(triton.statistics)
    assert (after["name"], after["version"]) == (NAME, "1")
    assert int(after["inference_count"]) == int(before["inference_count"]) + 2
    assert int(after["execution_count"]) > int(before["execution_count"])
    figures = after["inference_stats"]
    assert (
        int(figures["success"]["count"]) == int(before["inference_stats"]["success"]["count"]) + 1
    )
    assert all(int(figures[name]["ns"]) > 0 for name in ("success", "queue", "compute_infer"))


@pytest.fixture(scope="module")
def expected(server: ServerProcess) -> dict[str, list[Any]]:
    with Client(server.target) as client:
        results = [client.generate(text, model=NAME, max_decoding_length=12) for text in TEXTS]
    return {
        "text": [result.text for result in results],
        "score": [pytest.approx(result.score) for result in results],
        "normalized_score": [
            pytest.approx(result.hypotheses[0].normalized_score) for result in results
        ],
        "stop_reason": [result.stop_reason.name for result in results],
    }


def test_texts_are_answered(call: Run, expected: dict[str, list[Any]]) -> None:
    found = call(triton.infer, TEXTS, parameters=SHORT, request_id="mine", model_version="1")
    assert found == expected | {"version": "1", "id": "mine"}


def test_both_clients_can_be_in_one_process(call: Run) -> None:
    ours, theirs = call(triton.beside_ours, TEXTS[0])
    assert ours == theirs


def test_model_is_unloaded_and_loaded_again(call: Run) -> None:
    assert call(triton.change) == [False, True]


def test_stream(call: Run, expected: dict[str, list[Any]]) -> None:
    requests = [
        (TEXTS, SHORT),
        ([""], SHORT),
        (TEXTS[:1], SHORT | {"stream": True}),
        (TEXTS[1:2], SHORT),
    ]
    whole, error, *pieces, last = call(triton.stream, requests)
    assert whole == expected | {"version": "1", "id": "0"}
    assert error == "inputs.text[0]: is empty"
    assert {piece["id"] for piece in pieces} == {"2"}
    assert "".join(piece["text"][0] for piece in pieces) == expected["text"][0]
    assert pieces[-1]["score"] == expected["score"][:1]
    assert (last["id"], last["text"]) == ("3", expected["text"][1:2])


def test_load(server: ServerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    command = ["load", "--backend", "open-inference", "--target", server.target, "--model", NAME]
    options = ["--num-prompts", "10", "--max-concurrency", "2", "--max-decoding-length", "12"]
    options += ["--dataset-path", str(texts)]
    assert main([*command, *options, "--stream", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["completed"], result["failed"]) == (10, 0)
    assert "p99_itl_ms" in result


def test_example_of_the_page(run: Run, server: ServerProcess) -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(import numpy.*?)```", page, re.DOTALL)
    code = code.replace("localhost:50051", server.target).replace("en-de", NAME)
    assert server.target in code and NAME in code
    printed = run(
        triton.run, code.replace("parameters={", 'parameters={"max_decoding_length": 9, ')
    )
    assert len(printed.splitlines()) == 2

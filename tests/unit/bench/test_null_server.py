from pathlib import Path

import pytest
from bench.drivers.server_process import ServerProcess
from bench.scenarios.generator import measure, null_server, tables

from seqserve.load.grpc_callers import GrpcCaller
from seqserve.load.http_caller import HttpCaller, HttpForm
from seqserve.load.load import Load, send
from seqserve.requests import generate_request


@pytest.mark.slow
@pytest.mark.parametrize("way", ["unary", "streamed", "http"])
def test_every_request_is_answered(way: str, tmp_path: Path) -> None:
    server = null_server(*["--http"] * (way == "http"))
    load = Load(sources=["a", "b"], rate_per_s=500.0, requests=50)
    counted = 0

    def count(answers: int) -> None:
        nonlocal counted
        counted += answers

    with ServerProcess(server, tmp_path / "log") as process:
        caller = (
            HttpCaller(process.address, HttpForm(path="/v1/generate", text_field="source"))
            if way == "http"
            else GrpcCaller(process.address, generate_request(""), streamed=way == "streamed")
        )
        sent = send(load, caller, 1, count)
    assert counted == len(sent.answers) == 50
    assert not any(answer.error for answer in sent.answers)
    assert all(answer.tokens == 10 for answer in sent.answers)
    assert {len(answer.gaps_s) for answer in sent.answers} == {9 if way == "streamed" else 0}
    assert sent.cpu_s > 0.0


@pytest.mark.slow
def test_what_callers_cost() -> None:
    report = measure(1, rate_per_s=100.0, in_flight=2, seconds=0.1)
    [table] = tables(report)
    assert [row[0] for row in table.rows] == ["gRPC", "gRPC, streams of 10 pieces", "HTTP"]
    assert all(way["cpu_us"] > 0 for way in report["ways"].values())

"""``seqserve plan`` starts a server, measures it, asks it, and ends it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.endless_model import NAME

from seqserve import Client
from seqserve.command import plan as plan_command
from seqserve.command.load import measured, send_load
from seqserve.command.load_options import LoadOptions
from seqserve.command.main import main
from seqserve.errors import Unreachable
from seqserve.load import Caller
from seqserve.load.load import Load
from seqserve.load.rate_search import RateSearch
from seqserve.retry import RetryPolicy

NEVER = RetryPolicy(max_attempts=1, connect_timeout_s=0)


def test_a_server_for_as_long_as_it_is_measured(
    repository: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets: list[str] = []

    def find_rate(options: LoadOptions, load: Load, caller: Caller) -> RateSearch:
        """Sends a few requests in place of a minute of them."""
        targets.append(options.target)
        sent = send_load(options, replace(load, requests=8, in_flight=2), caller)
        result: dict[str, Any] = measured(options, load, sent) | {
            "limit_p99_ms": options.p99,
            "highest_request_rate": 10.0,
        }
        return RateSearch(
            result=result, answers=sent.answers, probes=[], unloaded_ms=1.0, warnings=[]
        )

    monkeypatch.setattr(plan_command, "find_rate", find_rate)
    # The server that is started is not the one of the variables, and has no guard.
    monkeypatch.setenv("SEQSERVE_TOKEN", "secret")
    monkeypatch.setenv("SEQSERVE_PORT", "1")
    texts = tmp_path / "texts"
    texts.write_text("The old train\nNobody", encoding="utf-8")
    what = ["--model", NAME, "--model-repository", str(repository), "--dataset-path", str(texts)]
    how = ["--cores", "1", "--slots", "8", "--max-decoding-length", "12"]
    command = ["plan", "--rate", "21", "--p99-ms", "500", "--headroom", "1", *what, *how, "--json"]
    assert main(command) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["replicas"], plan["values"]["cores"]) == (3, 1)
    assert plan["values"]["options"] == {"SEQSERVE_SLOTS": 8}
    assert plan["replica"]["loaded_versions"] >= 1
    assert plan["replica"]["version_bytes"] > 1 << 20
    [target] = targets
    with pytest.raises(Unreachable), Client(target, retry=NEVER) as client:
        client.models()

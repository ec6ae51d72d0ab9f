"""The signature under every table of speeds."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from bench.comparison import print_table
from bench.provenance import Provenance

from seqserve import __version__

GIVEN = Provenance(
    commit="53e181f0000000000000000000000000000000",
    date="2026-11-22",
    versions={
        "seqserve": "0.2.0",
        "onnxruntime": "1.31.1",
        "ctranslate2": "4.8.5",
        "torch": "2.13.0+cpu",
        "numpy": "2.1.0",
    },
    cpu="AMD EPYC",
    instructions=("avx2", "avx512_vnni"),
    cores=2,
)


def test_signature_names_versions_commit_processor_and_day() -> None:
    assert GIVEN.signature == (
        "seqserve 0.2.0 (commit 53e181f) | onnxruntime 1.31.1 | CTranslate2 4.8.5 | torch 2.13.0"
        " | AMD EPYC, avx2 avx512_vnni, 2 cores | 2026-11-22"
    )


def test_signature_says_what_is_not_known() -> None:
    bare = dataclasses.replace(GIVEN, commit="", instructions=())
    assert "seqserve 0.2.0 (commit unknown)" in bare.signature
    assert "AMD EPYC, no avx2, 2 cores" in bare.signature


def test_provenance_of_this_run_goes_into_a_report_of_json() -> None:
    found = json.loads(json.dumps(dataclasses.asdict(Provenance.current())))
    assert re.fullmatch(r"[0-9a-f]{40}|", found["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert found["versions"]["seqserve"] == __version__
    assert found["cores"] >= 1


def test_signature_stands_under_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    peer = {
        "name": "seqserve int8",
        "tokens_per_s": 10.0,
        "tokens_per_s_best": 11.0,
        "equal_share": 1.0,
        "ratios": {"seqserve int8": {"median": 1.0, "low": 1.0, "high": 1.0}},
    }
    print_table({"rows": 8, "peers": [peer]}, "seqserve int8")
    assert capsys.readouterr().out.endswith(f"\n{Provenance.current().signature}\n\n")

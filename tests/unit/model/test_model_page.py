"""The page about the model names its proofs; each must exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[2] / "docs" / "model.md"
MODEL = TESTS.parents[2] / "model" / "seqserve_model"


def test_every_proof_that_the_page_names_exists() -> None:
    proofs = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(proofs) > 10
    missing = [
        f"{file}::{name}"
        for file, name in proofs
        if f"def {name}(" not in (TESTS / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_file_that_the_page_names_exists() -> None:
    files = re.findall(r"^\| `(\w+\.py)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert "transformer.py" in files
    assert [file for file in files if not (MODEL / file).exists()] == []

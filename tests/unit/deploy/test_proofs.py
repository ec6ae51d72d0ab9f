"""Docs pages name a test for each promise; the test must exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("page", "least"), [("security.md", 15), ("reliability.md", 25)])
def test_every_proof_that_a_page_names_exists(page: str, least: int) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    proofs = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(proofs) == len(re.findall(r"tests/[\w/]+\.py", text))
    assert len(proofs) >= least
    missing = [
        f"{file}::{name}"
        for file, name in proofs
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []

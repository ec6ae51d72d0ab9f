"""The pages about the model name their proofs and show its code; each must exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parents[2]
PAGE = ROOT / "docs" / "model.md"
MODEL = ROOT / "model" / "seqserve_model"
INSIDE = sorted((ROOT / "docs" / "inside").glob("*.md"))


@pytest.mark.parametrize("page", [PAGE, *INSIDE], ids=lambda page: page.stem)
def test_every_proof_that_a_page_names_exists(page: Path) -> None:
    proofs = re.findall(r"`([\w/]*test_\w+\.py)::(test_\w+)`", page.read_text(encoding="utf-8"))
    assert len(proofs) >= 3
    missing = [
        f"{file}::{name}"
        for file, name in proofs
        if f"def {name}(" not in ((ROOT if "/" in file else TESTS) / file).read_text("utf-8")
    ]
    assert missing == []


def test_every_file_that_the_page_names_exists() -> None:
    files = re.findall(r"^\| `(\w+\.py)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert "transformer.py" in files
    assert [file for file in files if not (MODEL / file).exists()] == []


@pytest.mark.parametrize("page", INSIDE, ids=lambda page: page.stem)
def test_code_that_a_page_shows_is_that_of_its_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"^`(\w+\.py)`\n\n```python\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    assert len(shown) == text.count("```python") >= 1
    for file, code in shown:
        written = [line.strip() for line in (MODEL / file).read_text("utf-8").splitlines()]
        lines = [line.strip() for line in code.splitlines()]
        places = range(len(written))
        assert any(written[at : at + len(lines)] == lines for at in places), (file, code)


def test_every_page_and_picture_of_the_walk_is_reached() -> None:
    start = PAGE.read_text(encoding="utf-8")
    assert [page.name for page in INSIDE if f"(inside/{page.name})" not in start] == []
    pages = "".join(page.read_text(encoding="utf-8") for page in INSIDE)
    drawn = {path.name for path in (ROOT / "docs" / "inside").glob("*.svg")}
    assert set(re.findall(r"\]\((\w+\.svg)\)", pages)) == drawn

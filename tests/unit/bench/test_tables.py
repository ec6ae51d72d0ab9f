import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.__main__ import _tables, main
from bench.tables import Provenance, Table, document, fill_page, parts_of, shown, spread_of_ratios

from seqserve import __version__

ROOT = Path(__file__).parents[3]
GIVEN = Provenance(
    commit="53e181f0000000000000000000000000000000",
    date="2026-11-22",
    versions={"seqserve": "0.2.0", "onnxruntime": "1.31.1", "ctranslate2": "4.8.5"}
    | {"torch": "2.13.0+cpu", "numpy": "2.1.0"},
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
    parts = json.loads(json.dumps(dataclasses.asdict(Provenance.current())))
    assert re.fullmatch(r"[0-9a-f]{40}|", parts["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", parts["date"])
    assert parts["versions"]["seqserve"] == __version__
    assert parts["cores"] >= 1


def test_numbers_of_a_table_stand_on_the_right_and_its_note_below() -> None:
    table = Table(["rows", "1", "32"], [["seqserve", "9", "1,234"]], "More is better.")
    assert str(table) == (
        "| rows     |  1 |    32 |\n"
        "| -------- | -: | ----: |\n"
        "| seqserve |  9 | 1,234 |\n"
        "\nMore is better.\n"
    )


def test_a_spread_is_shown_with_its_lowest_and_highest() -> None:
    assert shown(spread_of_ratios([2.0, 3.0, 8.0], [2.0, 2.0, 2.0])) == "1.50 (1.00-4.00)"


PAGE = (
    "# A\n<!-- bench marian -->\nold\n<!-- end -->\nprose\n<!-- bench online -->\n3\n<!-- end -->\n"
)
ENGINES = [f"{name} {kind}" for name in ("seqserve", "CTranslate2") for kind in ("int8", "fp32")]


TABLES = [Table(["rows"], [[text]]) for text in ("new \\1", "second")]


def test_a_page_gets_the_tables_of_a_report_and_keeps_the_rest() -> None:
    parts = {"marian": (TABLES, "signed"), "roofline": (TABLES, "is not on the page")}
    page = fill_page(PAGE, parts)
    assert page == PAGE.replace("old\n", f"\n{document(TABLES, 'signed')}")
    assert fill_page(page, parts) == page


def test_a_marker_may_choose_tables() -> None:
    page = fill_page(PAGE.replace("marian", "marian 2"), {"marian": (TABLES, "signed")})
    assert page == PAGE.replace("marian", "marian 2").replace(
        "old\n", f"\n{document(TABLES[1:], 'signed')}"
    )


def test_the_pages_have_the_numbers_that_are_kept() -> None:
    numbers = json.loads((ROOT / "docs/benchmarks.json").read_text("utf-8"))
    for path in ("docs/benchmarks.md", "bench/NOTES.md"):
        page = (ROOT / path).read_text("utf-8")
        parts = {name: _tables(numbers, name) for name in parts_of(page) & numbers.keys()}
        assert parts
        assert fill_page(page, parts) == page


def test_the_ratios_of_the_readme_are_those_of_the_tables() -> None:
    pages = [(ROOT / path).read_text("utf-8") for path in ("docs/benchmarks.md", "bench/NOTES.md")]
    known = set(re.findall(r"(\d+\.\d\d) \(", "".join(pages)))
    for rates in re.findall(r"^\| requests a second .*\n((?:\|.*\n)+)", "".join(pages), re.M):
        most = [float(rate.replace(",", "")) for rate in re.findall(r" ms \| +([\d,]+) \|", rates)]
        known |= {f"{most[0] / other:.{digits}f}" for other in most for digits in (1, 2)}
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = re.findall(r"^\|.*\| ([\d., to;]+) \|$", readme, re.M)
    assert len(shown) > 5
    assert {ratio for cell in shown for ratio in re.findall(r"\d\.\d+", cell)} <= known


def test_the_command_writes_a_page_from_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = [{"rows": 8, "peers": [peer(name) for name in ENGINES]}]
    report, page = tmp_path / "report.json", tmp_path / "page.md"
    provenance = {"marian": dataclasses.asdict(GIVEN)}
    report.write_text(json.dumps({"marian": speeds, "provenance": provenance}))
    page.write_text(PAGE)
    monkeypatch.setattr(sys, "argv", ["bench", "--report", str(report), "--page", str(page)])
    assert main() == 0
    text = page.read_text()
    assert "| **seqserve / CTranslate2, int8** " in text and "1.00 (0.90-1.10)" in text
    assert f"`{GIVEN.signature}`\n<!-- end -->\nprose" in text
    assert text.endswith("<!-- bench online -->\n3\n<!-- end -->\n")
    # The page can be written again from the numbers that are kept beside it.
    numbers = tmp_path / "page.json"
    assert json.loads(numbers.read_text()) == json.loads(report.read_text())
    monkeypatch.setattr(sys, "argv", [*sys.argv, "sentences"])
    with pytest.raises(SystemExit, match="has none of these parts"):
        main()


@pytest.mark.parametrize("word", ["marian", "python -m bench sentences --rounds 3", "--page"])
def test_help_names_parts_and_examples(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert word in capsys.readouterr().out


def test_an_unknown_part_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "marian", "typo"])
    with pytest.raises(SystemExit):
        main()
    assert "unknown part typo" in capsys.readouterr().err


def peer(name: str) -> dict[str, Any]:
    ratio = {"median": 1.0, "low": 0.9, "high": 1.1}
    ratios = dict.fromkeys(ENGINES, ratio)
    return {"name": name, "tokens_per_s": 10.0, "equal_share": 1.0, "ratios": ratios}

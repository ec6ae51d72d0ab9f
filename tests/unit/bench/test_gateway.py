import json
from pathlib import Path

from bench.drivers.libretranslate import write_package
from bench.scenarios.gateway import LIBRE, OURS, PLAIN, tables


def figures(scale: float) -> dict[str, float]:
    names = ("array_per_s", "requests_per_s", "p50_ms", "jobs_per_s")
    return dict.fromkeys((*names, "interactive_p50_ms", "interactive_p99_ms"), 100.0 * scale)


def test_ratios_are_those_within_a_round() -> None:
    part = {
        "rounds": {
            OURS: [figures(3.0), figures(6.0)],
            LIBRE: [figures(1.0), figures(3.0)],
            PLAIN: [figures(3.0), figures(6.0)],
        },
        "lone": [{"grpc_ms": 4.0, "generate_ms": 4.5, "translate_ms": 5.0}] * 2,
        "resident_mb": {OURS: 150.0, LIBRE: 200.0, PLAIN: 100.0},
        "same_as_ours": {OURS: 1.0, LIBRE: 0.5, PLAIN: 0.75},
    }
    report = {"model": "en-de/2", "plan": {"beam_sizes": [1, 4]}, "beam_1": part, "beam_4": part}
    greedy, beam, cost = tables(json.loads(json.dumps(report)))
    assert greedy.head[:4] == ["en-de/2, greedy", OURS, LIBRE, PLAIN]
    assert greedy.rows[0][1:] == ["450", "200", "450", "2.50 (2.00-3.00)", "1.00 (1.00-1.00)"]
    assert beam.head[0] == "en-de/2, beam of 4"
    report["base"] = report | {"model": "base-int8/1"}
    titles = [table.head[0] for table in tables(report)]
    assert titles[2:4] == ["base-int8/1, greedy", "base-int8/1, beam of 4"]
    assert len(titles) == 5
    assert [row[1:] for row in cost.rows] == [
        ["4.00", ""],
        ["4.50", "0.50 (0.50-0.50)"],
        ["5.00", "1.00 (1.00-1.00)"],
    ]


def test_package_of_argos_has_a_pair_and_its_way_back(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.bin").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_text("{}")
    write_package(tmp_path / "model", tmp_path / "tokenizer.json", tmp_path / "packages")
    codes = {
        (facts["from_code"], facts["to_code"])
        for path in (tmp_path / "packages").glob("*/metadata.json")
        for facts in [json.loads(path.read_text())]
    }
    assert codes == {("en", "de"), ("de", "en")}
    assert len([*(tmp_path / "packages").glob("*/model/model.bin")]) == 2

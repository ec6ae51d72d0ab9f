"""Tokens per second of this engine, of torch and of CTranslate2, on the same weights in one run.

    python -m bench.offline            a table, and bench/report.json

Every peer decodes the same sentences greedily with the same number of rows in flight. Their outputs
are compared first: an engine that gives other words is not faster, it does something else. Then
they take turns, round after round, so that a noisy moment of the machine hits all of them alike;
what counts is the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ctranslate2
import torch

from bench.peers import CTranslate2Converter, CTranslate2Peer, Peer, SeqservePeer, TorchPeer
from seqserve_export.restore import restore
from seqserve_server.cores import available_cores
from seqserve_server.manifest import Manifest
from seqserve_server.tokenizer import Tokenizer

_SENTENCES = Path(__file__).parent / "sentences.txt"
_REPORT = Path(__file__).parent / "report.json"
_MAX_DECODING_LENGTH = 64
# CTranslate2 sums in another order, so near ties may fall the other way.
_LEAST_EQUAL_SHARE = 0.98


def main() -> int:
    """Runs the comparison."""
    options = _options()
    torch.set_num_threads(available_cores())
    manifest = Manifest.load(options.artifact)
    tokenizer = Tokenizer.load(options.artifact / "tokenizer.json")
    lines = options.sentences.read_text(encoding="utf-8").splitlines()
    sources = [tokenizer.encode(line) for line in lines if line.strip()] * options.repeat
    print(f"{_machine()}\n{len(sources)} sentences, {manifest.label}, medians of rounds\n")
    with tempfile.TemporaryDirectory() as converted:
        model = restore(options.artifact)
        CTranslate2Converter(model).convert(converted, force=True)
        tables = []
        for rows in options.rows:
            peers = _peers(options.artifact, manifest, model, Path(converted), rows)
            tables.append(_compare(peers, sources, rows, options.rounds))
            _print_table(tables[-1])
            for peer in peers:
                peer.close()
    report = {"machine": _machine(), "versions": _versions(), "model": manifest.label,
              "sentences": len(sources), "tables": tables}  # fmt: skip
    _REPORT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"written: {_REPORT}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares offline decoding with other engines.")
    parser.add_argument("--artifact", type=Path, default=Path("models/en-de/1"))
    parser.add_argument("--sentences", type=Path, default=_SENTENCES, help="one source a line")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32],
                        help="rows in flight in each worker")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5, help="each peer's turns")
    parser.add_argument("--repeat", type=int, default=2, help="times the sentences are repeated")
    return parser.parse_args()


def _peers(
    artifact: Path, manifest: Manifest, model: Any, converted: Path, rows: int
) -> list[Peer]:
    cores = available_cores()
    peers: list[Peer] = [SeqservePeer(artifact, rows, _MAX_DECODING_LENGTH)]
    for precision in ("float32", "int8"):
        for layout in dict.fromkeys([(cores, 1), (1, cores)]):
            peers.append(
                CTranslate2Peer(converted, manifest, precision, layout, rows, _MAX_DECODING_LENGTH)
            )
    return [*peers, TorchPeer(model, rows, _MAX_DECODING_LENGTH)]


def _compare(
    peers: Sequence[Peer], sources: list[list[int]], rows: int, rounds: int
) -> dict[str, Any]:
    """Checks that the outputs agree, then lets the peers take turns."""
    outputs = {peer.name: peer.decode(sources) for peer in peers}
    ours = outputs[peers[0].name]
    equal = {name: _equal_share(ours, rows_) for name, rows_ in outputs.items()}
    for name, share in equal.items():
        # Eight bits round: there only the speed is compared, and the share is shown.
        if share < _LEAST_EQUAL_SHARE and "int8" not in name:
            raise SystemExit(f"{name} agrees with us on {share:.1%} of sentences: not comparable")
    speeds: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            began_s = time.perf_counter()
            found = peer.decode(sources)
            elapsed_s = time.perf_counter() - began_s
            speeds[peer.name].append(sum(map(len, found)) / elapsed_s)
    base = speeds[peers[0].name]
    return {
        "rows": rows,
        "peers": [
            {
                "name": name,
                "tokens_per_s": statistics.median(values),
                "tokens_per_s_best": max(values),
                "ratio": _spread([our / their for our, their in zip(base, values, strict=True)]),
                "equal_share": equal[name],
            }
            for name, values in speeds.items()
        ],
    }


def _equal_share(ours: list[list[int]], theirs: list[list[int]]) -> float:
    return statistics.fmean(our == their for our, their in zip(ours, theirs, strict=True))


def _spread(ratios: list[float]) -> dict[str, float]:
    return {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}


def _print_table(table: dict[str, Any]) -> None:
    print(f"{table['rows']} rows in flight a worker")
    print(f"  {'engine':26}{'tokens/s':>10}{'best':>10}   seqserve is       same output")
    for peer in table["peers"]:
        ratio = peer["ratio"]
        print(
            f"  {peer['name']:26}{peer['tokens_per_s']:10,.0f}{peer['tokens_per_s_best']:10,.0f}"
            f"   {ratio['median']:.2f}x ({ratio['low']:.2f}-{ratio['high']:.2f})"
            f" {peer['equal_share']:11.1%}"
        )
    print(flush=True)


def _machine() -> str:
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else ():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return f"{available_cores()} cores of {cpu}"


def _versions() -> dict[str, str]:
    return {
        "onnxruntime": version("onnxruntime"),
        "ctranslate2": ctranslate2.__version__,
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    sys.exit(main())

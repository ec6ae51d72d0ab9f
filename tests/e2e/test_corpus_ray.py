"""`seqserve corpus --ray` on two simulated machines: one is lost, then the command itself."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.corpus_run import CorpusRun
from tests.support.process import MODELS, until

from seqserve_server import Offline

LINES = [f"Tom has {number} books." for number in range(2000)]

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster whose head runs no engine."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield cluster
    cluster.shutdown()


def started(cluster: Any, corpus: Path, out: Path, *more: str) -> CorpusRun:
    return CorpusRun(corpus, out, "--ray", cluster.address, "--slots", "2", *more)


def test_each_text_has_one_answer_whatever_is_lost(cluster: Any, tmp_path: Path) -> None:
    corpus, out = tmp_path / "in.txt", tmp_path / "out.txt"
    corpus.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    first, second = (cluster.add_node(num_cpus=1) for _ in range(2))
    run = started(cluster, corpus, out)
    run.wait_for(100)
    cluster.remove_node(second, allow_graceful=False)
    until(lambda: any("an engine of the cluster has ended" in line for line in run.said))
    run.wait_for(run.answered + 100)
    os.kill(run.process.pid, signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    assert not out.exists()

    before = run.answered
    cluster.add_node(num_cpus=1)
    run = started(cluster, corpus, out)
    run.wait_for(before + 100)
    # The machine that had both: another one takes over what it had.
    cluster.remove_node(first, allow_graceful=False)
    assert run.end() == 0, run.said
    assert any(f"{before:,} of 2,000 lines are answered already" in line for line in run.said)
    with Offline("en-de/4", repository=MODELS) as offline:
        expected = [result.text for result in offline.generate(LINES, segmentation="none")]
    assert out.read_text(encoding="utf-8").splitlines() == expected
    assert {*os.listdir(tmp_path)} == {"in.txt", "out.txt"}


def test_an_engine_that_does_not_fit_is_refused(cluster: Any, tmp_path: Path) -> None:
    corpus = tmp_path / "in.txt"
    corpus.write_text("It rains.\n", encoding="utf-8")
    run = started(cluster, corpus, tmp_path / "out.txt", "--workers", "99")
    assert run.end() == 2
    assert "CPUs, and an engine needs 99; see --workers" in run.said[-1]

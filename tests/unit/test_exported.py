import fcntl
import json
from pathlib import Path

from tests.exported import is_current, keep


class Export:
    """Counts the exports; each writes the file of a repository."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, repository: Path) -> None:
        self.count += 1
        repository.mkdir(parents=True)
        (repository / "number").write_text(str(self.count))


def test_an_export_is_reused_while_its_sources_stay(tmp_path: Path) -> None:
    export = Export()
    for _ in range(2):
        keep(tmp_path, "a", export)
    assert is_current(tmp_path / "a")
    assert export.count == 1


def test_an_export_whose_sources_changed_is_made_again(tmp_path: Path) -> None:
    export = Export()
    keep(tmp_path, "a", export)
    stamp = tmp_path / "a" / "sources.json"
    sources = json.loads(stamp.read_text())
    assert "tests/exported.py" in sources["sources"]
    sources["sources"]["tests/exported.py"] = "of another content"
    stamp.write_text(json.dumps(sources))
    assert not is_current(tmp_path / "a")
    keep(tmp_path, "a", export)
    assert (tmp_path / "a" / "models" / "number").read_text() == "2"


def test_an_export_whose_source_is_gone_is_not_current(tmp_path: Path) -> None:
    keep(tmp_path, "a", Export())
    stamp = tmp_path / "a" / "sources.json"
    stamp.write_text(stamp.read_text().replace("tests/exported.py", "tests/gone.py"))
    assert not is_current(tmp_path / "a")


def test_a_broken_stamp_is_not_current(tmp_path: Path) -> None:
    keep(tmp_path, "a", Export())
    (tmp_path / "a" / "sources.json").write_text("{")
    assert not is_current(tmp_path / "a")


def test_an_export_of_another_process_is_left_to_it(tmp_path: Path) -> None:
    export = Export()
    with (tmp_path / "a.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not keep(tmp_path, "a", export, waits=False)
    assert export.count == 0
    assert keep(tmp_path, "a", export, waits=False)
    assert export.count == 1

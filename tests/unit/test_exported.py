import fcntl
import json
from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    ("before", "after"), [("tests/exported.py", "tests/gone.py"), ("}", "")], ids=["gone", "broken"]
)
def test_an_export_without_its_source_or_its_stamp_is_not_current(
    tmp_path: Path, before: str, after: str
) -> None:
    keep(tmp_path, "a", Export())
    stamp = tmp_path / "a" / "sources.json"
    stamp.write_text(stamp.read_text().replace(before, after))
    assert not is_current(tmp_path / "a")


def test_an_export_of_another_process_is_left_to_it(tmp_path: Path) -> None:
    export = Export()
    with (tmp_path / "a.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not keep(tmp_path, "a", export, waits=False)
    assert export.count == 0
    assert keep(tmp_path, "a", export, waits=False)
    assert export.count == 1

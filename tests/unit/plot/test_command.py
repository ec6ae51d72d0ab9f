from pathlib import Path

import pytest

from seqserve.errors import OptionError
from seqserve_plot.command import main


def test_a_picture_is_written_as_its_name_says(tmp_path: Path) -> None:
    out = tmp_path / "masks.svg"
    assert main(["masks", "--length", "4", "--out", str(out)]) == 0
    assert "<svg" in out.read_text(encoding="utf-8")


def test_without_a_kind_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    shown = capsys.readouterr().out
    for kind in ("positions", "masks", "attention", "training", "schedule"):
        assert f"\n  {kind} " in shown
        with pytest.raises(SystemExit):
            main([kind, "--help"])
        assert f"seqserve plot {kind}" in capsys.readouterr().out.partition("examples:")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mask"], "did you mean 'masks'"),
        (["foo"], "unknown kind 'foo'; `seqserve plot --help`"),
        (["masks"], "--out"),
        (["masks", "--out", "a.pdf"], r"\.png or \.svg"),
        (["masks", "--padding", "9"], "--padding: 9 is more than --length 6"),
        (["positions"], "name either a scheme or --trained"),
        (["positions", "rotary", "--trained", "runs/x"], "name either a scheme or --trained"),
        (["positions", "--trained", "no/such"], "is not a training run"),
        (["positions", "rotary", "--heads", "3"], "multiple of model.heads"),
        (["training"], "name a training run"),
        (["schedule", "models/x"], "--file"),
        (["schedule", "models/x", "--file", "no.txt"], "no.txt cannot be read"),
    ],
)
def test_what_does_not_fit_is_named(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = [] if arguments == ["masks"] or "--out" in arguments else ["--out", "a.svg"]
    with pytest.raises(OptionError, match=message):
        main([*arguments, *out])
    assert list(tmp_path.iterdir()) == []

"""``seqserve attention`` with the weights of the fake server, see ``answers``."""

import json
import os
import shutil
import sys
from xml.etree import ElementTree

import pytest

from .conftest import Run

SVG = "{http://www.w3.org/2000/svg}"


DRAWINGS = {
    "numbers without a terminal": (
        ["good day", "Guten Tag heute"],
        "cross attention, layer 1, mean of 2 heads",
        """\
      good  day </s>
Guten 0.67 0.17 0.17
Tag   0.17 0.67 0.17
heute 0.17 0.17 0.67
</s>  0.17 0.17 0.67""",
    ),
    "shades of the encoder": (
        ["--style", "shades", "--layer", "1", "--head", "0", "--kind", "encoder", "good day"],
        "encoder attention, layer 1, head 0",
        """\
     good day </s>
good ████
day       ███
</s>          ████

0   ░░▒▒▓▓██ 1""",
    ),
    "shades of the decoder": (
        ["--style", "shades", "--layer", "1", "--head", "0", "--kind", "decoder", "good day"],
        "decoder attention, layer 1, head 0",
        """\
     (begin) GOOD DAY
GOOD ███████
DAY          ████
</s>              ███

0   ░░▒▒▓▓██ 1""",
    ),
    "the first layer and head": (
        ["--layer", "0", "--head", "0", "a"],
        "cross attention, layer 0, head 0",
        "        a </s>\nA    0.50 0.50\n</s> 0.50 0.50",
    ),
    "the mean of the first layer": (
        ["--layer", "0", "a"],
        "cross attention, layer 0, mean of 2 heads",
        "        a </s>\nA    0.75 0.25\n</s> 0.25 0.75",
    ),
}


@pytest.mark.parametrize(("argv", "heading", "drawing"), DRAWINGS.values(), ids=DRAWINGS)
def test_drawings(seqserve: Run, argv: list[str], heading: str, drawing: str) -> None:
    status, out, err = seqserve("attention", *argv)
    assert (status, out, err) == (0, f"capitals/2: {heading}\n\n{drawing}\n", "")


@pytest.mark.parametrize("flag", ["--layer", "--head"])
def test_a_layer_or_head_out_of_range(seqserve: Run, flag: str) -> None:
    report = f"seqserve: {flag}: 2 is more than 1, the last one of the model\n"
    assert seqserve("attention", flag, "2", "a") == (2, "", report)


def test_a_recurrent_decoder_has_no_attention_to_draw(seqserve: Run) -> None:
    chosen = ["--model", "ssru", "good day", "Guten Tag"]
    report = "seqserve: --kind: ssru/2 has no decoder attention: its decoder is recurrent\n"
    assert seqserve("attention", "--kind", "decoder", *chosen) == (2, "", report)
    assert seqserve("attention", *chosen)[0] == 0
    facts = json.loads(seqserve("attention", "--json", *chosen)[1])
    assert (facts["decoder"], len(facts["cross"])) == ([], 2)


@pytest.mark.parametrize(
    ("environ", "sign"), [({}, "\x1b[48;5;"), ({"NO_COLOR": "1"}, "▓"), ({"TERM": "dumb"}, "▓")]
)
def test_a_terminal_gets_colours_or_shades(
    seqserve: Run, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], sign: str
) -> None:
    for name, value in {"TERM": "xterm", "NO_COLOR": "", **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, out, _ = seqserve("attention", "good day")
    assert sign in out
    assert "0.67" not in out


def test_columns_beyond_the_width_of_the_terminal_are_drawn_below(
    seqserve: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((12, 24)))
    _, out, _ = seqserve("attention", "--style", "numbers", "good day", "Tag")
    assert out.split("\n\n")[1:] == [
        "     good\nTag  0.67\n</s> 0.17",
        "      day\nTag  0.17\n</s> 0.67",
        "     </s>\nTag  0.17\n</s> 0.17\n",
    ]


def test_svg(seqserve: Run) -> None:
    status, out, err = seqserve("attention", "--svg", "--layer", "0", "--head", "0", "a")
    assert (status, err) == (0, "")
    picture = ElementTree.fromstring(out)
    texts = [element.text for element in picture.iter(f"{SVG}text")]
    assert texts == ["capitals/2: cross attention, layer 0, head 0", "a", "</s>", "A", "</s>"]
    assert [element.text for element in picture.iter(f"{SVG}title")] == ["0.50"] * 4

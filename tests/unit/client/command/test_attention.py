"""``seqserve attention`` with the weights of the fake server, see ``answers``."""

import json
import os
import shutil
import sys
from xml.etree import ElementTree

import pytest

from .conftest import Run

SVG = "{http://www.w3.org/2000/svg}"


def test_numbers_are_the_default_without_a_terminal(seqserve: Run) -> None:
    status, out, err = seqserve("attention", "good day", "Guten Tag heute")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "capitals/2: cross attention, layer 1, mean of 2 heads",
        "",
        "      good  day </s>",
        "Guten 0.67 0.17 0.17",
        "Tag   0.17 0.67 0.17",
        "heute 0.17 0.17 0.67",
        "</s>  0.17 0.17 0.67",
    ]


def picture(out: str) -> list[str]:
    """The rows of a drawing without heading and legend."""
    return out.splitlines()[2:-2]


def test_a_head_of_a_layer_of_a_kind(seqserve: Run) -> None:
    chosen = ["--style", "shades", "--layer", "1", "--head", "0"]
    _, encoder, _ = seqserve("attention", *chosen, "--kind", "encoder", "good day")
    _, decoder, _ = seqserve("attention", *chosen, "--kind", "decoder", "good day")
    assert encoder.startswith("capitals/2: encoder attention, layer 1, head 0\n")
    assert picture(encoder) == [
        "     good day </s>",
        "good ████",
        "day       ███",
        "</s>          ████",
    ]
    assert picture(decoder) == [
        "     (begin) GOOD DAY",
        "GOOD ███████",
        "DAY          ████",
        "</s>              ███",
    ]
    assert decoder.endswith("\n\n0   ░░▒▒▓▓██ 1\n")


def test_layers_and_heads_count_from_0(seqserve: Run) -> None:
    _, alike, _ = seqserve("attention", "--layer", "0", "--head", "0", "a")
    assert alike.splitlines()[3:] == ["A    0.50 0.50", "</s> 0.50 0.50"]
    _, mean, _ = seqserve("attention", "--layer", "0", "a")
    assert mean.splitlines()[3:] == ["A    0.75 0.25", "</s> 0.25 0.75"]


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
    assert out.splitlines()[2:] == [
        "     good",
        "Tag  0.67",
        "</s> 0.17",
        "",
        "      day",
        "Tag  0.17",
        "</s> 0.67",
        "",
        "     </s>",
        "Tag  0.17",
        "</s> 0.17",
    ]


def test_svg(seqserve: Run) -> None:
    status, out, err = seqserve("attention", "--svg", "--layer", "0", "--head", "0", "a")
    assert (status, err) == (0, "")
    picture = ElementTree.fromstring(out)
    texts = [element.text for element in picture.iter(f"{SVG}text")]
    assert texts == ["capitals/2: cross attention, layer 0, head 0", "a", "</s>", "A", "</s>"]
    assert [element.text for element in picture.iter(f"{SVG}title")] == ["0.50"] * 4

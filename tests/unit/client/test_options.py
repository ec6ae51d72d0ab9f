import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from seqserve.errors import OptionError
from seqserve.options import option, parse, split_command


class Provider(Enum):
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    port: int = option(50051, help="Port.", minimum=0, maximum=65535)
    rate: float = option(0.5, help="Share, 100% is 1.", minimum=0)
    name: str = option("en-de", help="Name.")
    folder: Path = option(Path("models"), help="Folder.")
    provider: Provider = option(Provider.CPU, help="Provider.")
    json: bool = option(False, help="JSON.")
    color: bool = option(True, help="Colour.")
    limit: int | None = option(None, help="Limit.", minimum=1, group="limits")
    words: list[str] | None = option(None, help="Words.")
    sizes: list[int] = option([], help="Sizes.", minimum=1)
    rows: list[list[str]] | None = option(None, help="Rows.")
    pairs: dict[str, str] | None = option(None, help="Pairs.", metavar="KEY=VALUE")
    providers: list[Provider] | None = option(None, help="Providers.")
    texts: list[str] = option([], help="Texts.", positional=True)
    token: str | None = option(None, help="Token.", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    name: str = option(help="Name.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredPlace:
    run: Path = option(help="Folder of the run.", positional=True)
    fresh: bool = option(False, help="Fresh.")


def placed(*argv: str) -> RequiredPlace:
    return parse(RequiredPlace, argv, prog="p", description="d", environ={})


LINK = "tcp://10.0.0.1:50051"


def read(*argv: str, **environ: str) -> Options:
    return parse(Options, argv, prog="seqserve try", description="Tries.", environ=environ)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("port", "65535", 65535),
        ("rate", "0.25", 0.25),
        ("rate", "inf", math.inf),
        ("name", "de-en", "de-en"),
        ("folder", "/srv/models", Path("/srv/models")),
        ("provider", "cuda", Provider.CUDA),
        ("limit", "7", 7),
    ],
)
def test_a_flag_and_a_variable_have_the_same_effect(name: str, text: str, value: Any) -> None:
    assert getattr(read(f"--{name}", text), name) == value
    assert getattr(read(f"--{name}={text}"), name) == value
    assert getattr(read(**{f"SEQSERVE_{name.upper()}": text}), name) == value


@pytest.mark.parametrize(
    ("name", "texts", "variable", "value"),
    [
        ("words", ["a"], "a", ["a"]),
        ("words", ["a b", "", "c"], "'a b' '' c", ["a b", "", "c"]),
        ("words", ["don't"], '"don\'t"', ["don't"]),
        ("sizes", ["1", "22"], " 1  22 ", [1, 22]),
        ("rows", ["a b", "c"], "'a b' c", [["a", "b"], ["c"]]),
        ("rows", [" ' s "], '" \' s "', [["'", "s"]]),
        ("pairs", ["a=b", "c d=e=f", "="], "a=b 'c d=e=f' =", {"a": "b", "c d": "e=f", "": ""}),
        ("pairs", ["a=b", "a=b"], "a=b a=b", {"a": "b"}),
        ("providers", ["cuda", "cpu"], "cuda cpu", [Provider.CUDA, Provider.CPU]),
    ],
)
def test_a_list_is_a_repeated_flag_or_a_variable_quoted_as_in_a_shell(
    name: str, texts: list[str], variable: str, value: Any
) -> None:
    assert getattr(read(*(f"--{name}={text}" for text in texts)), name) == value
    assert getattr(read(**{f"SEQSERVE_{name.upper()}": variable}), name) == value


def test_the_flags_of_a_list_override_its_variable_and_not_the_texts() -> None:
    options = read("--words", "a", "text", "--words", "b", "texts", SEQSERVE_WORDS="c d")
    assert (options.words, options.texts) == (["a", "b"], ["text", "texts"])


@pytest.mark.parametrize(
    ("argv", "environ", "reason"),
    [
        (["--sizes", "2", "--sizes", "0"], {}, "--sizes: 0 is less than 1, the smallest allowed"),
        ([], {"SIZES": "1 x"}, "SEQSERVE_SIZES: 'x' is not a whole number"),
        ([], {"JSON": "maybe"}, "SEQSERVE_JSON: 'maybe' is not true or false"),
        ([], {"WORDS": "don't"}, "SEQSERVE_WORDS: .* has a quote that is not closed"),
        (["--pairs", "a=b", "--pairs", "ab"], {}, "--pairs: 'ab' has no = between two texts"),
        ([], {"PAIRS": "a=b a=c"}, "SEQSERVE_PAIRS: 'a' is given twice, with different values"),
        # As Kubernetes sets it for a service.
        ([], {"PORT": LINK}, "SEQSERVE_PORT: .* Kubernetes .* enableServiceLinks"),
        (["--port", LINK], {}, "--port: 'tcp:.*' is not a whole number$"),
    ],
)
def test_an_error_in_a_value_names_the_flag_or_variable(
    argv: list[str], environ: dict[str, str], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        read(*argv, **{f"SEQSERVE_{name}": value for name, value in environ.items()})


@pytest.mark.parametrize(
    ("words", "value"),
    [("true TRUE 1 yes on", True), ("false False 0 no off", False)],
)
def test_booleans_of_the_environment(words: str, value: bool) -> None:
    for word in words.split():
        options = read(SEQSERVE_JSON=word, SEQSERVE_COLOR=f" {word} ")
        assert (options.json, options.color) == (value, value)


def test_a_flag_overrides_a_variable_and_an_empty_one_counts_as_unset() -> None:
    assert (read("--json").json, read("--no-color").color) == (True, False)
    assert read("--no-json", SEQSERVE_JSON="true").json is False
    assert read("--port", "1", SEQSERVE_PORT="2").port == 1
    assert read(SEQSERVE_PORT="", SEQSERVE_NAME="", SEQSERVE_JSON="") == Options()
    # Positional arguments have no variable.
    assert read(SEQSERVE_TEXTS="a").texts == []


def test_the_process_s_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQSERVE_PORT", "77")
    assert parse(Options, [], prog="p", description="d").port == 77


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("port", "http", "'http' is not a whole number"),
        ("port", "1.5", "'1.5' is not a whole number"),
        ("port", "-1", "-1 is less than 0, the smallest allowed"),
        ("port", "65536", "65536 is more than 65535, the largest allowed"),
        ("rate", "fast", "'fast' is not a number"),
        ("rate", "nan", "'nan' is not a number"),
        ("provider", "tpu", "'tpu' is not one of cpu, cuda"),
        ("limit", "0", "0 is less than 1, the smallest allowed"),
    ],
)
def test_an_error_names_the_flag_or_variable(name: str, text: str, reason: str) -> None:
    with pytest.raises(OptionError) as by_flag:
        read(f"--{name}={text}")
    with pytest.raises(OptionError) as by_variable:
        read(**{f"SEQSERVE_{name.upper()}": text})
    assert str(by_flag.value) == f"--{name}: {reason}"
    assert str(by_variable.value) == f"SEQSERVE_{name.upper()}: {reason}"


@pytest.mark.parametrize(
    "argv",
    [
        ["a", "b", "--port", "1", "--json"],
        ["--port", "1", "a", "--json", "b"],
        ["--json", "--port", "1", "a", "b"],
        ["--json", "--port", "1", "a", "--", "b"],
        ["a", "--port", "1", "--json", "--", "b"],
    ],
)
def test_flags_may_be_anywhere_before_two_dashes(argv: list[str]) -> None:
    assert read(*argv) == Options(port=1, json=True, texts=["a", "b"])


def test_after_two_dashes_everything_is_an_argument() -> None:
    assert read("--json", "-", "--", "-", "-x", "--port").texts == ["-", "-", "-x", "--port"]
    assert parsed("--out", "x", "--mode=--").mode == "--"
    assert placed("--fresh", "--", "-runs") == RequiredPlace(run=Path("-runs"), fresh=True)
    with pytest.raises(OptionError, match="'-b' is one argument too many"):
        placed("--", "a", "-b")


@pytest.mark.parametrize(
    ("argv", "split"),
    [
        ([], ("", [])),
        (["load", "a"], ("load", ["a"])),
        (["--json", "load", "a", "--port", "1"], ("load", ["--json", "a", "--port", "1"])),
        (["--port", "1", "--rate=2", "load", "a"], ("load", ["--port", "1", "--rate=2", "a"])),
        (["--name", "load", "x", "load"], ("", ["--name", "load", "x", "load"])),
        (["--name"], ("", ["--name"])),
        (["--no-color", "load"], ("load", ["--no-color"])),
    ],
)
def test_a_command_stands_anywhere_in_flags(argv: list[str], split: tuple[str, list[str]]) -> None:
    assert split_command(Options, argv, ["load", "unload"]) == split


def test_a_secret_has_a_variable_but_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    options = read(SEQSERVE_TOKEN="abc")
    assert options.token == "abc"
    assert "abc" not in repr(options)
    with pytest.raises(OptionError, match="unknown option --token"):
        read("--token", "abc")
    with pytest.raises(SystemExit):
        read("--help")
    assert "Token." not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--por", "1"], "unknown option --por (did you mean --port?)"),
        (["--prov", "1"], "unknown option --prov (did you mean --provider?)"),
        (["--provder=cpu", "text"], "unknown option --provder (did you mean --provider?)"),
        *(
            (argv, f"unknown option {text} (put a text that begins with - after --: -- {text})")
            for argv, text in (
                (["text", "-x"], "-x"),
                (["-hello"], "-hello"),
                (["--xyz", "--", "-x"], "--xyz"),
            )
        ),
        (["--port"], "argument --port: expected one argument"),
    ],
)
def test_an_unknown_option(argv: list[str], reason: str) -> None:
    with pytest.raises(OptionError) as refused:
        read(*argv)
    assert str(refused.value) == f"{reason}; see `seqserve try --help`"


def test_a_required_option() -> None:
    assert parse(Required, ["--name", "x"], prog="p", description="d", environ={}).name == "x"
    with pytest.raises(OptionError, match=r"--name \(or SEQSERVE_NAME\) is required"):
        parse(Required, [], prog="p", description="d", environ={"SEQSERVE_NAME": ""})


def test_a_required_argument() -> None:
    assert placed("--fresh", "runs/a") == RequiredPlace(run=Path("runs/a"), fresh=True)
    with pytest.raises(OptionError, match="required: RUN; see `p --help`"):
        placed()
    with pytest.raises(OptionError, match="'b' is one argument too many"):
        placed("a", "b")


def test_help_shows_variables_defaults_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        read("--help")
    assert left.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "usage: seqserve try [TEXTS ...] [OPTIONS]" in shown
    assert "--port NUMBER Port. [SEQSERVE_PORT; 50051]" in shown
    assert "--rate NUMBER Share, 100% is 1. [SEQSERVE_RATE; 0.5]" in shown
    assert "--provider VALUE Provider. One of: cpu, cuda. [SEQSERVE_PROVIDER; cpu]" in shown
    assert "--json, --no-json JSON. [SEQSERVE_JSON; false]" in shown
    assert "limits: --limit NUMBER Limit. [SEQSERVE_LIMIT]" in shown
    assert "--words TEXT Words. May be repeated. [SEQSERVE_WORDS]" in shown
    assert "--sizes NUMBER Sizes. May be repeated. [SEQSERVE_SIZES]" in shown
    assert "--rows WORDS Rows. May be repeated. [SEQSERVE_ROWS]" in shown
    assert "--pairs KEY=VALUE Pairs. May be repeated. [SEQSERVE_PAIRS]" in shown
    assert "--providers VALUE Providers. One of: cpu, cuda. May be repeated." in shown
    assert "TEXTS Texts." in shown
    assert "MISSING" not in shown and "None" not in shown


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlyShown:
    out: Path = option(help="File.")
    mode: str = option("a", help="Mode.", has_variable=False)
    rare: int = option(1, help="Rare.", group="rare")


def parsed(*argv: str, **environ: str) -> PartlyShown:
    return parse(PartlyShown, argv, prog="try", description="d", hidden=["rare"], environ=environ)


def test_an_option_may_have_no_variable() -> None:
    assert parsed("--out", "x", SEQSERVE_MODE="b").mode == "a"
    assert parsed("--out", "x", "--mode", "b").mode == "b"


def test_the_help_shows_what_is_required_and_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = capsys.readouterr().out
    assert shown.startswith("usage: try --out PATH [OPTIONS]\n")
    assert "Mode. [a]" in shown and "rare" not in shown
    assert parsed("--out", "x", "--rare", "2").rare == 2

import difflib
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

from seqserve.command.analysis import AttentionOptions, ScoreOptions, TokenizeOptions
from seqserve.command.generate import GenerateCommandOptions
from seqserve.command.load_options import LoadOptions as SentLoadOptions
from seqserve.command.main import COMMANDS
from seqserve.command.models import LoadOptions, TrafficOptions, UnloadOptions
from seqserve.command.plan_options import PlanOptions
from seqserve.command.token import TokenOptions
from seqserve.command.translate import TranslateOptions
from seqserve.option_values import NAMESAKES, misspelt_variables, variable_of
from seqserve.options import parse
from seqserve_export.options import ExportOptions, ShortlistOptions
from seqserve_gateway.command import GatewayOptions
from seqserve_gateway.playground import PlaygroundOptions
from seqserve_import.options import ImportOptions
from seqserve_model.options import EvaluateOptions, TrainOptions
from seqserve_model.prepare import PrepareOptions
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.healthcheck import HealthcheckOptions

from .test_options import Options

CALLERS: list[Any] = [
    AttentionOptions,
    GenerateCommandOptions,
    LoadOptions,
    SentLoadOptions,
    PlanOptions,
    ScoreOptions,
    TokenizeOptions,
    TrafficOptions,
    TranslateOptions,
    UnloadOptions,
]
CLIENTS: list[Any] = [*CALLERS, GatewayOptions, PlaygroundOptions]
ALL: list[Any] = [
    *CALLERS,
    EvaluateOptions,
    ExportOptions,
    HealthcheckOptions,
    ImportOptions,
    PrepareOptions,
    ServeOptions,
    ShortlistOptions,
    TokenOptions,
    TrainOptions,
]
VARIABLES = {
    variable_of(each.name)
    for options in ALL
    for each in fields(options)
    if each.metadata["has_variable"] and not each.metadata["positional"]
}


def test_misspelt_variables() -> None:
    words = ("PRT", "PROVDER", "PROVIDER", "TOKENS", "TEXTS", "WORKERS")
    names = ["PROVIDR", *(f"SEQSERVE_{word}" for word in words)]
    assert misspelt_variables(Options, dict.fromkeys(names, "")) == {
        "SEQSERVE_PROVDER": "SEQSERVE_PROVIDER",
        "SEQSERVE_PRT": "SEQSERVE_PORT",
    }


def test_the_process_s_environment_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQSERVE_PROVDER", "cpu")
    assert misspelt_variables(Options)["SEQSERVE_PROVDER"] == "SEQSERVE_PROVIDER"


@pytest.mark.parametrize("options", ALL)
def test_variables_of_other_commands_are_right_as_they_are(options: Any) -> None:
    assert misspelt_variables(options, dict.fromkeys(VARIABLES, "")) == {}


@pytest.mark.parametrize("options", CLIENTS)
def test_a_client_reads_no_variable_of_a_server(options: Any) -> None:
    shared = {each.name for each in fields(options)} & {each.name for each in fields(ServeOptions)}
    assert not [each for each in fields(options) if each.name in shared and read_from(each)]


def read_from(field: Any) -> bool:
    return field.metadata["has_variable"] and not field.metadata["positional"]


def test_the_segmentation_of_a_server_is_not_that_of_a_request() -> None:
    argv, environ = ["a"], {"SEQSERVE_SEGMENTATION": "lines"}
    for kind in (GenerateCommandOptions, TranslateOptions):
        options: Any = parse(kind, argv, prog="p", description="d", environ=environ)
        assert options.decoding()["segmentation"] is None
    assert misspelt_variables(GenerateCommandOptions, environ) == {}


def test_no_namesake_is_kept_for_nothing() -> None:
    for name in NAMESAKES:
        assert difflib.get_close_matches(name, VARIABLES - {name}, cutoff=0.9), name


@pytest.mark.parametrize("warns", [True, False])
def test_parsing_tells_of_them(warns: bool, capsys: pytest.CaptureFixture[str]) -> None:
    parse(Options, [], prog="p", description="d", environ={"SEQSERVE_PRT": "7"}, warns=warns)
    report = "seqserve: SEQSERVE_PRT has no effect; did you mean SEQSERVE_PORT?\n"
    assert capsys.readouterr().err == (report if warns else "")


CALLS = "generate translate score attention tokenize models load plan"


# One option of each; `serve` has a log, and `version` and `demo` have no options.
@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("prepare", "SEQSERVE_NUMBRS"),
        ("train", "SEQSERVE_THREDS"),
        ("evaluate", "SEQSERVE_THREDS"),
        ("export", "SEQSERVE_PRECISON"),
        ("import", "SEQSERVE_PRECISON"),
        ("shortlist", "SEQSERVE_ITERATONS"),
        ("token", "SEQSERVE_SCOP"),
        *((name, "SEQSERVE_TARGT") for name in CALLS.split()),
    ],
)
def test_every_command_tells_of_them(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "x")
    with pytest.raises(SystemExit):
        command = COMMANDS[name]
        getattr(import_module(command.module), command.function)(["--help"])
    assert f"seqserve: {variable} has no effect; did you mean " in capsys.readouterr().err

"""The options of ``seqserve load``, and what they ask for."""

import math
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path

from google.protobuf import json_format

from seqserve import errors
from seqserve.address import grpc_target
from seqserve.arguments import DEFAULT_TARGET, DEFAULT_TIMEOUT_S, GenerateOptions
from seqserve.command.connection import GenerateCallOptions, options_outside
from seqserve.load import Caller
from seqserve.load.grpc_callers import GrpcCaller, OpenInferenceCaller, parameters_of
from seqserve.load.http_caller import HttpCaller, HttpForm
from seqserve.load.result import GOODPUT_TIMES
from seqserve.options import flag_of, option
from seqserve.requests import generate_request

_arrivals = partial(option, group="arrivals")
_limit = partial(option, group="limits")
_output = partial(option, group="output")
_HTTP_TARGET = "localhost:5000"
DURATION_S = 10.0
_WARM_UPS = 16

HIDDEN = options_outside("languages") - {"seed"} | {"priority", "max_attempts"}
"""Options that the help leaves out: ``seqserve generate --help`` explains them. The seed is one of
the load."""


class Backend(Enum):
    """Protocol of a server."""

    GRPC = "grpc"
    OPEN_INFERENCE = "open-inference"
    HTTP = "http"
    LIBRETRANSLATE = "libretranslate"


_OVER_HTTP = {Backend.HTTP, Backend.LIBRETRANSLATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(GenerateCallOptions):
    """The options of ``seqserve load``."""

    results: list[Path] = option([], help="Two results, with --compare.", positional=True)
    target: str = option(
        "",
        help=f"Address of the server, host:port; by default {DEFAULT_TARGET}, over HTTP"
        f" {_HTTP_TARGET}.",
        group="connection",
    )
    backend: Backend = option(
        Backend.GRPC,
        help="Protocol of the server: http is /v1/generate of `seqserve gateway`, open-inference"
        " the protocol of Triton and KServe over gRPC.",
    )
    input_name: str | None = option(
        None,
        help="With open-inference: name of the tensor for the text; by default the only one"
        " of type BYTES.",
    )
    stream: bool = option(False, help="Ask for streams, and time their first token and pieces.")
    dataset_path: Path | None = option(
        None,
        help="File of texts to draw from: one a line, or in .jsonl the field 'prompt' or 'source';"
        " by default a few sentences in English.",
    )
    num_prompts: int | None = option(None, help="Number of requests.", minimum=1)
    duration: float | None = option(
        None,
        help=f"Seconds for which to send requests; by default {DURATION_S:g} if neither"
        " --num-prompts nor --trace ends them.",
        minimum=0.01,
    )
    num_warmups: int = option(
        _WARM_UPS, help="Requests to send first, unmeasured.", minimum=0, maximum=100_000
    )
    seed: int = option(
        0, help="Seed of arrivals and the choice of texts; equal seeds give equal load."
    )

    request_rate: float | None = _arrivals(
        None,
        help="Mean requests a second of an open loop, inf for all at once. For --find-rate the"
        " first rate, by default half the rate of one request at a time.",
        minimum=0.001,
    )
    burstiness: float = _arrivals(
        1.0,
        help="Shape of the gamma distribution of the gaps between requests: 1 is a Poisson process,"
        " less comes in bursts, more is steadier.",
        minimum=0.01,
        maximum=1000,
    )
    max_concurrency: int | None = _arrivals(
        None, help="Maximum number of requests in flight.", minimum=1, maximum=100_000
    )
    trace: Path | None = _arrivals(
        None, help="File of the times at which to send requests, in seconds, one a line."
    )
    processes: int = _arrivals(
        1, help="Number of sending processes, if one cannot keep up.", minimum=1, maximum=256
    )

    connections: int | None = _arrivals(
        None,
        help="Connections of each process to each server; by default one, and up to 8 if many"
        " calls are in flight. Over HTTP each request in flight has one.",
        minimum=1,
    )

    find_rate: bool = _limit(False, help="Search for the highest rate that keeps the limit --p99.")
    p99: float | None = _limit(
        None,
        help="Milliseconds within which 99 of 100 requests must be answered, for --find-rate.",
        minimum=0.001,
    )
    timeout_s: float | None = option(
        None,
        help="Seconds after which a request has failed, counted from when it was due; by default"
        f" {DEFAULT_TIMEOUT_S:g}.",
        minimum=0.001,
        group="connection",
    )
    goodput: list[str] = _limit(
        [],
        help="Count requests within limits in milliseconds: ttft:200 (first token), tpot:20 (each"
        " after it), e2el:1000 (whole answer).",
        metavar="TIME:MS",
    )

    json: bool = _output(False, help="Print the result as one JSON object.")
    save_result: Path | None = _output(None, help="File to write the result to, JSON.")
    save_detailed: bool = _output(
        False, help="Write the times of every request to --save-result too."
    )
    html: Path | None = _output(None, help="File for a self-contained page with plots.")
    compare: bool = _output(
        False, help="Compare two files of --save-result instead: the second with the first."
    )

    def __post_init__(self) -> None:
        for name, reason in self._faults().items():
            if reason:
                raise errors.OptionError(f"{flag_of(name)}: {reason}")
        if self.backend in _OVER_HTTP:
            if "/" in self.address or "," in self.address:
                reason = f"{self.address!r} is not one host:port; write for instance {_HTTP_TARGET}"
                raise errors.OptionError(f"--target: {reason}")
            grpc_target(self.address)
        self.limits_ms()
        self.form()

    def _faults(self) -> dict[str, str | bool]:
        compared, rate = len(self.results), self.request_rate or 0.0
        alone = "does not go with --find-rate, which chooses when requests come"
        places = self.max_concurrency or self.processes
        foreign = self.backend is Backend.OPEN_INFERENCE
        protocol = "the Open Inference Protocol"
        return {
            "compare": compared != 2 * self.compare
            and f"compares two files of --save-result, and {compared} are given",
            "find_rate": self.find_rate is not bool(self.p99)
            and "goes with --p99, and --p99 with it",
            "trace": self.trace is not None
            and ((self.find_rate and alone) or (rate > 0 and "does not go with --request-rate")),
            "max_concurrency": self.find_rate and self.max_concurrency is not None and alone,
            "num_prompts": math.isinf(rate)
            and self.num_prompts is None
            and "--request-rate inf needs a number of requests",
            "request_rate": math.isinf(rate)
            and self.find_rate
            and "--find-rate begins at a number",
            "processes": self.processes > places
            and f"{self.processes} cannot share {places} of --max-concurrency",
            "connections": self.connections is not None
            and self.backend in _OVER_HTTP
            and "over HTTP each request in flight has one",
            "save_detailed": self.save_detailed
            and self.save_result is None
            and "needs --save-result",
            "stream": self.stream
            and self.backend is Backend.LIBRETRANSLATE
            and "LibreTranslate has no streams",
            "model": foreign and self.model is None and f"{protocol} needs one",
            "priority": foreign and self.priority is not None and f"{protocol} has no such option",
            "input_name": not foreign
            and self.input_name is not None
            and "goes with --backend open-inference",
        }

    @property
    def address(self) -> str:
        """Where the server is."""
        default = _HTTP_TARGET if self.backend in _OVER_HTTP else DEFAULT_TARGET
        return self.target or default

    def call(self) -> GenerateOptions:
        """Returns the options of each request; the seed is not one of them."""
        call = self.keywords()
        call["seed"] = None
        return call

    def limits_ms(self) -> dict[str, float]:
        """Reads --goodput."""
        limits: dict[str, float] = {}
        for word in " ".join(self.goodput).split():
            name, _, value = word.partition(":")
            try:
                limits[name] = float(value)
            except ValueError:
                limits[name] = math.nan
            if name not in GOODPUT_TIMES or not limits[name] > 0:
                names = ", ".join(GOODPUT_TIMES)
                raise errors.OptionError(
                    f"--goodput: {word!r} is not TIME:MS, such as e2el:100; times are {names}"
                )
            if name != "e2el" and not self.stream:
                raise errors.OptionError(f"--goodput: {name} needs --stream")
        return limits

    def form(self) -> HttpForm:
        """Returns the form of requests over HTTP."""
        call = self.call()
        if self.backend is not Backend.LIBRETRANSLATE:
            facts = json_format.MessageToDict(
                generate_request("", **call), preserving_proto_field_name=True
            )
            path = "/v1/generate:stream" if self.stream else "/v1/generate"
            return HttpForm(path=path, text_field="source", fields=facts, is_streamed=self.stream)
        source, target = call.pop("source_language"), call.pop("target_language")
        if target is None:
            raise errors.OptionError("--target-language: LibreTranslate needs one, such as de")
        call["model_version"] = call.pop("version")  # type: ignore[typeddict-unknown-key]
        for name, value in call.items():
            if value is not None:
                raise errors.OptionError(f"{flag_of(name)}: LibreTranslate has no such option")
        facts = {"source": source or "auto", "target": target, "format": "text"}
        return HttpForm(path="/translate", text_field="q", fields=facts)

    def caller(self) -> Caller:
        """Makes what sends the requests."""
        given = self.settings()
        settings = {name: given[name] for name in ("tls", "token", "connections")}
        if self.backend in _OVER_HTTP:
            form = self.form()
            del settings["connections"]
            if self.backend is Backend.LIBRETRANSLATE and settings["token"] is not None:
                form = replace(form, fields={**form.fields, "api_key": settings["token"]})
            return HttpCaller(self.address, form, **settings)
        request = generate_request("", **self.call())
        if self.backend is Backend.OPEN_INFERENCE:
            return OpenInferenceCaller(
                self.address,
                self.model or "",
                version=self.model_version,
                parameters=parameters_of(request.options),
                input_name=self.input_name,
                streamed=self.stream,
                **settings,
            )
        return GrpcCaller(self.address, request, streamed=self.stream, **settings)

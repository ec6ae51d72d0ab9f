"""Options of ``seqserve serve``: each a flag and a variable, with its default and the trade-off."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.logs import LogFormat, LogLevel
from seqserve_server.contract.provider import Provider
from seqserve_server.front.cores import available_cores

_MODELS = "models"
_NETWORK = "network"
_SECURITY = "security"
_ENGINE = "engine"
_LOG = "log and traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What an operator decides."""

    model_repository: Path = option(
        Path("models"), help="Folder of <name>/<version>/ artifacts.", group=_MODELS
    )
    default_model: str = option(
        "", help="Model of calls that name none; the only one where not given.", group=_MODELS
    )
    watch_interval_s: float = option(
        5.0,
        help="Seconds between two looks for versions that came or went; 0 looks only at start.",
        minimum=0,
        maximum=86_400,
        group=_MODELS,
    )
    keep_versions: int = option(
        0,
        help="Highest versions of each model that are kept loaded, each with a process and caches"
        " of its own; 0 for all.",
        minimum=0,
        group=_MODELS,
    )
    traffic: list[str] = option(
        [],
        help="How calls that name no version are shared, as en-de:1=90,2=10; all go to the highest"
        " version where not given.",
        metavar="NAME:VERSION=WEIGHT,...",
        group=_MODELS,
    )
    host: str = option(
        "127.0.0.1",
        help="Address to listen on; 0.0.0.0 for all, which needs TLS and tokens, or --insecure.",
        group=_NETWORK,
    )
    port: int = option(
        50051,
        help="Port of the gRPC service; 0 for any free.",
        minimum=0,
        maximum=65535,
        group=_NETWORK,
    )
    metrics_host: str = option(
        "127.0.0.1", help="Address of /metrics, /healthz and /readyz.", group=_NETWORK
    )
    metrics_port: int = option(
        9464,
        help="Port of /metrics, /healthz and /readyz; 0 for any free.",
        minimum=0,
        maximum=65535,
        group=_NETWORK,
    )
    max_message_bytes: int = option(
        1 << 20,
        help="Largest request; a larger one is refused before it is read.",
        minimum=1024,
        maximum=(1 << 31) - 1,
        group=_NETWORK,
    )
    reuse_port: bool = option(
        False,
        help="Let several servers share the port; off, a second server fails loudly.",
        group=_NETWORK,
    )
    max_connections: int | None = option(
        None,
        help="Connections at once; more are closed. As many as open files allow where not given.",
        minimum=1,
        group=_NETWORK,
    )
    max_calls_per_connection: int = option(
        1024,
        help="Calls that one connection may have under way; more wait in the client.",
        minimum=1,
        maximum=(1 << 31) - 1,
        group=_NETWORK,
    )
    max_connection_age_s: float = option(
        3600.0,
        help="Age at which a connection takes no new calls, so that clients look servers up again"
        " and show their certificates again; calls under way finish.",
        minimum=1,
        maximum=2_000_000,
        group=_NETWORK,
    )
    tls_certificate: Path | None = option(
        None,
        help="Certificate of the server, PEM, with those that lead to its authority behind it; read"
        " again when it changes. Without one nothing is encrypted.",
        group=_SECURITY,
    )
    tls_key: Path | None = option(
        None, help="Private key of --tls-certificate, PEM, not encrypted.", group=_SECURITY
    )
    tls_client_ca: Path | None = option(
        None,
        help="Authorities, PEM, one of which must have signed a client's certificate (mutual TLS).",
        group=_SECURITY,
    )
    tokens: Path | None = option(
        None,
        help="File of the tokens that callers must show, as `seqserve token` makes them; read again"
        " when it changes. Without one nobody is asked.",
        group=_SECURITY,
    )
    insecure: bool = option(
        False,
        help="Listen on --host, which other machines reach, though TLS or tokens are missing.",
        group=_SECURITY,
    )
    provider: Provider = option(
        Provider.CPU, help="Who runs the model; cuda needs the extra server-gpu.", group=_ENGINE
    )
    workers: int | None = option(
        None,
        help="Threads that run steps, each with rows of its own; one per core where not given.",
        minimum=1,
        group=_ENGINE,
    )
    threads: int = option(
        1,
        help="Threads within one step. More shorten a lone request, fewer serve more at once.",
        minimum=1,
        group=_ENGINE,
    )
    slots: int = option(
        64,
        help="Rows that run at once; more raise throughput, memory and the time of a step.",
        minimum=1,
        maximum=4096,
        group=_ENGINE,
    )
    max_queue: int = option(
        512,
        help="Requests that may wait; what memory allows, for --max-queue-s bounds the waiting.",
        minimum=1,
        group=_ENGINE,
    )
    max_queue_tokens: int = option(
        65536, help="Source tokens that may wait.", minimum=1, group=_ENGINE
    )
    max_queue_s: float | None = option(
        None,
        help="Longest that a request may be expected to wait, judged by the recent pace, before it"
        " is refused. Where not given it is 2 s, or twice what a request takes, so that bursts find"
        " room; but while some requests are refused it is only half as long as one takes, so"
        " that accepted calls stay fast. Those of low priority may wait for longer.",
        minimum=0,
        group=_ENGINE,
    )
    caller_share: float = option(
        0.5,
        help="Part of the queue, and of --max-queue-s, that one caller may take up; 1 for all"
        " of it, which leaves none for others.",
        minimum=0.01,
        maximum=1,
        group=_ENGINE,
    )
    caller_metadata: str = option(
        "",
        help="Metadata that names the caller, as a proxy in front sets it, where no token does; the"
        " address a call comes from where not given. Use it only where a proxy sets it: a caller"
        " who can choose it can evade the share.",
        group=_NETWORK,
    )
    max_source_tokens_per_step: int = option(
        256,
        help="Source tokens encoded between two steps; fewer keep running streams steadier.",
        minimum=1,
        group=_ENGINE,
    )
    drain_timeout_s: float = option(
        30.0,
        help="How long accepted calls may take to finish after SIGTERM, or when their version is"
        " unloaded; keep it shorter than what kills the server.",
        minimum=0,
        maximum=86_400,
        group=_ENGINE,
    )
    stall_timeout_s: float = option(
        60.0,
        help="How long a step may take before its engine counts as hung and is started again, which"
        " fails the calls it has; 0 for ever.",
        minimum=0,
        maximum=86_400,
        group=_ENGINE,
    )
    log_format: LogFormat = option(
        LogFormat.TEXT, help="text for people, json for machines.", group=_LOG
    )
    log_level: LogLevel = option(
        LogLevel.INFO, help="info writes a line for every call.", group=_LOG
    )
    otlp_endpoint: str = option(
        "",
        help="OpenTelemetry collector that gets a trace of each call, as http://host:4317; none"
        " where empty. StepOutputs the extra tracing.",
        group=_LOG,
    )
    trace_sample_ratio: float = option(
        1.0,
        help="Share of calls that are traced; where the caller traces, its own choice holds.",
        minimum=0,
        maximum=1,
        group=_LOG,
    )

    def engine_limits(self) -> EngineLimits:
        """Gives what bounds each engine."""
        return EngineLimits(
            workers=self.worker_count(),
            slots=self.slots,
            max_queue=self.max_queue,
            max_source_tokens_per_step=self.max_source_tokens_per_step,
            max_queue_tokens=self.max_queue_tokens,
            max_queue_s=self.max_queue_s,
            caller_share=self.caller_share,
        )

    def worker_count(self) -> int:
        """Gives the number of workers, chosen from the cores where it was left open."""
        return self.workers or max(1, available_cores() // self.threads)

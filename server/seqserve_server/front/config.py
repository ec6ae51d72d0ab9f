"""Options of ``seqserve serve``: each one a flag and an environment variable."""

# Each default declares an option, which makes a dataclass field.
# ruff: noqa: RUF009

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from seqserve.errors import OptionError
from seqserve.options import option
from seqserve.processes import available_cores
from seqserve_server.contract.limits import CacheScope, EngineLimits, Provider
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.process.logs import LogFormat, LogLevel

_models = partial(option, group="models")
_network = partial(option, group="network")
_port = partial(_network, minimum=0, maximum=65535)
_security = partial(option, group="security")
_engine = partial(option, group="engine")
_count = partial(_engine, minimum=1)
_megabytes = partial(_network, maximum=1_000_000)
_seconds = partial(option, minimum=0, maximum=86_400)
_log = partial(option, group="log and traces")

# If no number is given. Fewer slots a worker would refuse beams on many cores, and waste steps.
_MIN_SLOTS, _SLOTS_PER_WORKER = 64, 16
# A front answers what the engines of some three cores decode with a small model.
_CORES_OF_ONE_FRONT, _CORES_PER_FRONT, _MAX_FRONTS = 4, 3, 8
CAN_SHARE_PORTS = sys.platform == "linux"
"""Whether the system spreads the connections to a port over the processes that listen there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Settings of a server; each help text says what the option does and its trade-off."""

    model_repository: Path | None = _models(
        None,
        help="Folder of models; each version is a subfolder <name>/<version>/. By default models"
        " if it has any, or else the models in the wheel.",
    )
    default_model: str = _models(
        "",
        help="Model of calls that name none; if not given, the one that the file `default` of the"
        " repository names, or else the only model.",
    )
    watch_interval_s: float = _seconds(
        5.0,
        help="Seconds between two scans for new and removed versions, and for glossaries that"
        " change; 0 scans only at start.",
        group="models",
    )
    keep_versions: int = _models(
        1,
        help="Number of highest versions of each model to keep loaded, in addition to those with"
        " a weight. With 2 you can go back at once. Each takes memory for its processes and"
        " caches; 0 keeps all.",
        minimum=0,
    )
    traffic: list[str] = _models(
        [],
        help="Weights that divide the calls without a version, such as en-de:4=90,5=10; if not"
        " given, all go to the highest version.",
        metavar="NAME:VERSION=WEIGHT,...",
    )
    max_loaded_mb: int = _models(
        0,
        help="Memory for loaded versions, in MB. The first call of a version loads it, and the"
        " least recently used one makes room. Each counts with its files and 75 MB a process,"
        " without its caches. 0 loads all versions at start.",
        minimum=0,
    )
    segmentation: SegmentationMode = _models(
        SegmentationMode.NONE,
        help="How to divide sources if neither the request nor the model's manifest says so."
        " With sentences, callers may send whole texts to a model that reads sentences.",
    )
    glossaries: Path | None = _models(
        None,
        help="Folder of glossaries, each a file NAME.SOURCE-TARGET.tsv or .tbx such as"
        " products.en-de.tsv, which requests may name; reloaded when they change.",
    )
    host: str = _network(
        "127.0.0.1",
        help="Address to listen on; 0.0.0.0 for all of IPv4, :: for all of IPv4 and IPv6. If other"
        " machines can reach it, it needs TLS and tokens, or --insecure.",
    )
    port: int = _port(50051, help="Port of the gRPC service; 0 for any free port.")
    metrics_host: str = _network("127.0.0.1", help="Address of /metrics, /healthz and /readyz.")
    metrics_port: int = _port(9464, help="Port of /metrics, /healthz and /readyz; 0 for any free.")
    max_message_bytes: int = _network(
        1 << 20,
        help="Maximum size of a request; a larger one is refused before it is read.",
        minimum=1024,
        maximum=(1 << 31) - 1,
    )
    max_answer_mb: int = _megabytes(
        256,
        help="Memory for answers that clients have not read yet, in MB; one client may have"
        " --caller-share of it. A call waits for the memory of its answer, and is refused if that"
        " exceeds one client's share.",
        minimum=1,
    )
    cache_mb: int = _megabytes(
        0,
        help="Memory for kept answers, in MB: a repeated request of a client gets the same answer"
        " without the model. Samples are kept only with a seed; 0 keeps none.",
        minimum=0,
    )
    cache_scope: CacheScope = _network(
        CacheScope.CALLER,
        help="Who gets a kept answer. With caller, the client that got it before; with server,"
        " every client, which can then learn from response times whether somebody has sent a text.",
    )
    front_processes: int | None = _network(
        None,
        help="Processes that take calls, on one port. More help small models on many cores, or"
        " with a GPU; each takes some 80 MB, and its part of --max-answer-mb and --cache-mb. If"
        " not given, 1 on up to four cores, and one more for every three further ones, up to 8.",
        minimum=1,
        maximum=64,
    )
    max_connections: int | None = _network(
        None,
        help="Maximum number of connections; further ones are closed. If not given, as many as"
        " the limit on open files allows.",
        minimum=1,
    )
    max_calls_per_connection: int = _network(
        1024,
        help="Maximum number of calls at a time on one connection; others wait in the client.",
        minimum=1,
        maximum=(1 << 31) - 1,
    )
    max_connection_age_s: float = _network(
        3600.0,
        help="Age at which a connection takes no new calls, so that clients resolve the server's"
        " name and show their certificates again; calls in progress finish.",
        minimum=1,
        maximum=2_000_000,
    )
    tls_certificate: Path | None = _security(
        None,
        help="Certificate of the server, PEM, followed by its intermediates; reloaded when it"
        " changes. Without it connections are not encrypted.",
    )
    tls_key: Path | None = _security(
        None, help="Private key of --tls-certificate, PEM, not encrypted."
    )
    tls_client_ca: Path | None = _security(
        None, help="Authorities, PEM; one of them must have signed a client's certificate (mTLS)."
    )
    tokens: Path | None = _security(
        None,
        help="File of the tokens that clients must show, made by `seqserve token`; reloaded when it"
        " changes. Without it clients need no token.",
    )
    usage: Path | None = _security(None, help="File that counts the usage of names in --tokens.")
    insecure: bool = _security(
        False, help="Listen on a --host that other machines can reach, even without TLS or tokens."
    )
    provider: Provider = _engine(
        Provider.CPU,
        help="Execution provider of ONNX Runtime; cuda needs the extra server-gpu and artifacts at"
        " fp16.",
    )
    workers: int | None = _count(
        None,
        help="Threads that run steps, each with its own rows; if not given, one per core or GPU.",
    )
    threads: int = _count(
        1, help="Threads in one step. More make a request faster, fewer raise throughput."
    )
    engine_processes: int | None = _count(
        None,
        help="Processes that run each version and share its workers, slots and queue. More help"
        " small models on many cores; each copies the weights. If not given, one for up to four"
        " workers; with more, one for every two of a small model, or every 16 of a larger one."
        " With --provider cuda each takes one GPU.",
    )
    slots: int | None = _count(
        None,
        help="Maximum number of running rows; more raise throughput, memory and step time. By"
        " default 64, or 16 for each worker if that is more. A request runs on one worker, whose"
        " share bounds its beam.",
        maximum=4096,
    )
    max_queue: int = _count(
        512,
        help="Maximum number of waiting requests, and of waiting sources of bulk calls and batches."
        " It bounds memory; --max-queue-s bounds the time.",
    )
    max_queue_tokens: int = _count(65536, help="Maximum number of waiting source tokens.")
    max_queue_s: float | None = _engine(
        None,
        help="Maximum expected wait, estimated from recent throughput; a request that would wait"
        " longer is refused. If not given, it is half the time that requests take, but at least"
        " 0.3 s. Requests of low priority, bulk calls and batches may wait longer.",
        minimum=0,
    )
    caller_share: float = _engine(
        0.5,
        help="Share of the queue that one client may use; with 1 a single client can fill it.",
        minimum=0.01,
        maximum=1,
    )
    caller_metadata: str = _network(
        "",
        help="Metadata key, set by a proxy, that identifies a client without a token; if not"
        " given, its address does. A client that can choose the value evades --caller-share.",
    )
    max_source_tokens_per_step: int = _count(
        256, help="Source tokens to encode between two steps; fewer keep streams steady."
    )
    drain_timeout_s: float = _seconds(
        30.0,
        help="Time that accepted calls have to finish after SIGTERM, or when their version is"
        " unloaded; keep it below the time after which the platform kills the server.",
        group="engine",
    )
    stall_timeout_s: float = _seconds(
        60.0,
        help="Time without progress after which an engine process counts as hung and is"
        " restarted; its calls fail. 0 means never.",
        group="engine",
    )
    log_format: LogFormat = _log(
        LogFormat.TEXT, help="Format of log lines: text for people, json for machines."
    )
    log_level: LogLevel = _log(
        LogLevel.INFO, help="Least severe line that is written; info writes a line for every call."
    )
    otlp_endpoint: str = _log(
        "",
        help="OpenTelemetry collector for traces of calls, such as http://host:4317; needs the"
        " extra tracing. If empty, nothing is traced.",
    )
    trace_sample_ratio: float = _log(
        1.0,
        help="Share of calls to trace; a client that traces decides for its own calls.",
        minimum=0,
        maximum=1,
    )

    def engine_limits(self) -> EngineLimits:
        """Returns the bounds of each version, over all its engine processes."""
        return EngineLimits(
            workers=self.worker_count(),
            slots=self.slot_count(),
            max_queue=self.max_queue,
            max_source_tokens_per_step=self.max_source_tokens_per_step,
            max_queue_tokens=self.max_queue_tokens,
            max_queue_s=self.max_queue_s,
            caller_share=self.caller_share,
        )

    def process_count(self) -> int | None:
        """Returns the number of engine processes of each version; None if the model decides."""
        if self.provider is Provider.CUDA:
            return self._gpu_count()
        if (self.engine_processes or 1) > self.worker_count():
            raise OptionError(
                f"--engine-processes: {self.engine_processes} processes need a worker each, and"
                f" there are {self.worker_count()}; see --workers"
            )
        return self.engine_processes

    def front_count(self) -> int:
        """Returns the number of front processes; if not given, it follows from the cores."""
        if self.max_loaded_mb:
            if (self.front_processes or 1) > 1:
                raise OptionError("--front-processes: must be 1 with --max-loaded-mb")
            return 1
        further = max(0, available_cores() - _CORES_OF_ONE_FRONT)
        by_cores = min(1 + -(-further // _CORES_PER_FRONT), _MAX_FRONTS) if CAN_SHARE_PORTS else 1
        return self.front_processes or by_cores

    def slot_count(self) -> int:
        """Returns the number of slots; if not given, it follows from the workers."""
        return self.slots or max(_MIN_SLOTS, _SLOTS_PER_WORKER * self.worker_count())

    def worker_count(self) -> int:
        """Returns the number of workers; if not given, it follows from the cores, or GPUs."""
        if self.provider is Provider.CUDA:
            return self._gpu_count()
        return self.workers or max(1, available_cores() // self.threads)

    def _gpu_count(self) -> int:
        # Each GPU has a process, whose only worker makes one batch.
        gpus = self.engine_processes or 1
        if (self.workers or gpus) != gpus:
            raise OptionError(
                f"--workers: with --provider cuda each GPU has one worker, not {self.workers}"
                f" for {gpus}; leave it out, and give --engine-processes the number of GPUs"
            )
        return gpus

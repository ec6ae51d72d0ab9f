"""What the dashboards show: rows of panels, each with the queries of its lines.

``build.py`` writes them as Grafana reads them. Queries that start with ``model:`` and the like ask
for the series of ``deploy/prometheus/rules.yml``, which must be loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines over time or, where ``is_number``, the latest value of each."""

    title: str
    text: str
    """What to read from it."""
    lines: dict[str, str]
    """Queries by legend, in which ``{{label}}`` is the value of a label."""
    unit: str = "short"
    is_number: bool = False
    is_stacked: bool = False
    limit: float | None = None
    """Value from which on it is red."""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """Panels in titled rows; ``choices`` are queries for the values of its variables, by name."""

    uid: str
    title: str
    text: str
    rows: dict[str, list[Panel]]
    choices: dict[str, str] = field(default_factory=dict)
    constants: dict[str, list[str]] = field(default_factory=dict)
    """Values to choose from, by the name of a variable; the first is the default."""


FAILURES = "INTERNAL|UNKNOWN|UNAVAILABLE|RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED"
"""Statuses for which the server answers, as in the rules; the others are the callers'."""
MODELS = {"model": 'label_values(seqserve_model_state{job="seqserve"}, model)'}
SERVERS = {"instance": 'label_values(up{job="seqserve"}, instance)'}
_OF = 'model=~"$model"'
_AT = 'model=~"$model",instance=~"$instance"'
_RATE = "$__rate_interval"
_VERSION = "{{model}}/{{version}}"


def _quantiles(histogram: str, labels: str, by: str, legend: str) -> dict[str, str]:
    """Median and 99th percentile of a histogram."""
    return {
        f"{legend} {name}": f"histogram_quantile({share}, sum by ({by}, le)"
        f" (rate({histogram}_bucket{{{labels}}}[{_RATE}])))"
        for name, share in (("p50", "0.5"), ("p99", "0.99"))
    }


def _rate(counter: str, labels: str, by: str) -> str:
    return f"sum by ({by}) (rate({counter}{{{labels}}}[{_RATE}]))"


def _mean(histogram: str, labels: str, by: str) -> str:
    return f"{_rate(f'{histogram}_sum', labels, by)} / {_rate(f'{histogram}_count', labels, by)}"


OVERVIEW = Dashboard(
    uid="seqserve-overview",
    title="seqserve: overview",
    text="Calls of each model and version: how many, how fast, how many fail.",
    choices=MODELS,
    rows={
        "Now": [
            Panel(
                title="Servers up",
                text="Servers whose metrics are read.",
                lines={"up": 'sum(up{job="seqserve"})'},
                is_number=True,
            ),
            Panel(
                title="Slots in use",
                text="Of the fullest version. At 100 % further requests wait.",
                lines={
                    "used": f"max(sum by (model, version) (seqserve_slots_in_use{{{_OF}}})"
                    f" / sum by (model, version) (seqserve_slots{{{_OF}}}))"
                },
                unit="percentunit",
                is_number=True,
            ),
            Panel(
                title="Waiting requests",
                text="For a slot, or for the pass that scores.",
                lines={"waiting": f"sum(seqserve_queue_depth{{{_OF}}})"},
                is_number=True,
            ),
            Panel(
                title="Calls that fail",
                text="Share in five minutes, of the worst model; the alert is at 5 %.",
                lines={"failed": f"max(model:seqserve_request_errors:ratio5m{{{_OF}}})"},
                unit="percentunit",
                is_number=True,
                limit=0.05,
            ),
            Panel(
                title="Alerts",
                text="That fire now.",
                lines={
                    "firing": 'count(ALERTS{alertname=~"Seqserve.+",alertstate="firing"})'
                    " or vector(0)"
                },
                is_number=True,
                limit=1,
            ),
            Panel(
                title="Versions by state",
                text="available: in the repository, but not loaded.",
                lines={"{{state}}": f"sum by (state) (seqserve_model_state{{{_OF}}})"},
                is_number=True,
            ),
        ],
        "Calls": [
            Panel(
                title="Calls by version",
                text="An empty version: calls that found none.",
                lines={_VERSION: _rate("seqserve_requests_total", _OF, "model, version")},
                unit="reqps",
                is_stacked=True,
            ),
            Panel(
                title="Calls by method",
                text="A call of many sources is one call.",
                lines={"{{method}}": _rate("seqserve_requests_total", _OF, "method")},
                unit="reqps",
                is_stacked=True,
            ),
            Panel(
                title="Calls that fail, by version",
                text="Share of the calls in five minutes that ended with an error of the server.",
                lines={_VERSION: f"model_version:seqserve_request_errors:ratio5m{{{_OF}}}"},
                unit="percentunit",
            ),
        ],
        "What callers wait": [
            Panel(
                title="Until the whole answer",
                text="Calls that were answered or reached their deadline; refusals come at once.",
                lines=_quantiles(
                    "seqserve_request_duration_seconds",
                    f'{_OF},code=~"OK|DEADLINE_EXCEEDED"',
                    "model, version",
                    _VERSION,
                ),
                unit="s",
            ),
            Panel(
                title="Until the first token",
                text="What a reader of a stream waits.",
                lines=_quantiles(
                    "seqserve_time_to_first_token_seconds", _OF, "model, version", _VERSION
                ),
                unit="s",
            ),
            Panel(
                title="Between two tokens",
                text="Of one request.",
                lines=_quantiles(
                    "seqserve_inter_token_duration_seconds", _OF, "model, version", _VERSION
                ),
                unit="s",
            ),
        ],
        "Answers": [
            Panel(
                title="Tokens a second",
                text="Generated tokens, also those of calls that were cancelled.",
                lines={_VERSION: _rate("seqserve_generated_tokens_total", _OF, "model, version")},
                is_stacked=True,
            ),
            Panel(
                title="Length of sources and answers",
                text="Mean, in tokens. A version whose answers grow longer may repeat itself.",
                lines={
                    f"{_VERSION} {name}": _mean(f"seqserve_{name}_tokens", _OF, "model, version")
                    for name in ("source", "generated")
                },
            ),
            Panel(
                title="Why answers stop",
                text="length: at the greatest length, as in a loop. time_limit: cut short.",
                lines={"{{reason}}": _rate("seqserve_stop_total", _OF, "reason")},
                unit="reqps",
                is_stacked=True,
            ),
        ],
    },
)

ENGINE = Dashboard(
    uid="seqserve-engine",
    title="seqserve: engines",
    text="What limits a server: slots, queue, steps and their parts, cores and memory.",
    choices={**MODELS, **SERVERS},
    rows={
        "Slots and queue": [
            Panel(
                title="Slots in use",
                text="Share of each version now. KEDA adds servers by the sum of their averages.",
                lines={
                    f"{_VERSION} on {{{{instance}}}}": f"seqserve_slots_in_use{{{_AT}}}"
                    f" / seqserve_slots{{{_AT}}}"
                },
                unit="percentunit",
            ),
            Panel(
                title="Waiting requests",
                text="By priority. Bulk calls and batches have room of their own.",
                lines={
                    f"{_VERSION} {{{{priority}}}}": "sum by (model, version, priority)"
                    f" (seqserve_queue_depth{{{_AT}}})"
                },
            ),
            Panel(
                title="Wait for a slot",
                text="Requests that would wait longer than --max-queue-s are refused.",
                lines=_quantiles(
                    "seqserve_queue_duration_seconds", _AT, "model, version", _VERSION
                ),
                unit="s",
            ),
        ],
        "Steps": [
            Panel(
                title="Rows of a step",
                text="Mean. The more rows share a step, the more tokens a second.",
                lines={_VERSION: _mean("seqserve_batch_rows", _AT, "model, version")},
            ),
            Panel(
                title="A step",
                text="New rows join, then each row gets a token.",
                lines=_quantiles("seqserve_step_duration_seconds", _AT, "model, version", _VERSION),
                unit="s",
            ),
            Panel(
                title="Encoding",
                text="Of the sources that join in one step; it holds up the rows that run.",
                lines=_quantiles(
                    "seqserve_encode_duration_seconds", _AT, "model, version", _VERSION
                ),
                unit="s",
            ),
        ],
        "Requests": [
            Panel(
                title="In a slot",
                text="From its slot to its last token.",
                lines=_quantiles(
                    "seqserve_compute_duration_seconds", _AT, "model, version", _VERSION
                ),
                unit="s",
            ),
            Panel(
                title="Kept answers",
                text="With --cache-mb: where answers came from.",
                lines={"{{result}}": _rate("seqserve_answer_cache_lookups_total", _AT, "result")},
                unit="reqps",
                is_stacked=True,
            ),
            Panel(
                title="Memory for answers",
                text="Reserved until callers have taken them; bounded by --max-answer-mb.",
                lines={
                    "{{instance}}": 'seqserve_answer_bytes{instance=~"$instance"}',
                    "{{instance}}: calls that wait for some": "seqserve_answers_waiting"
                    '{instance=~"$instance"}',
                },
                unit="bytes",
            ),
        ],
        "Processes": [
            Panel(
                title="Cores of the engines",
                text="CPU time a second.",
                lines={_VERSION: _rate("seqserve_engine_cpu_seconds_total", _AT, "model, version")},
                is_stacked=True,
            ),
            Panel(
                title="Python's share of a step",
                text="Times the workers of a process it should stay below a half; beyond that, more"
                " --engine-processes help.",
                lines={
                    _VERSION: _rate(
                        "seqserve_step_outside_runtime_seconds_total", _AT, "model, version"
                    )
                    + " / "
                    + _rate("seqserve_step_seconds_total", _AT, "model, version")
                },
                unit="percentunit",
            ),
            Panel(
                title="Memory",
                text="Resident, of each version's processes and of the front.",
                lines={
                    f"{_VERSION} on {{{{instance}}}}": "seqserve_engine_resident_memory_bytes"
                    f"{{{_AT}}}",
                    "front on {{instance}}": "process_resident_memory_bytes"
                    '{job="seqserve",instance=~"$instance"}',
                },
                unit="bytes",
            ),
        ],
    },
)

_BURN = (
    f"sum by (model) (avg_over_time(model:seqserve_request_errors:rate5m{{{_OF}}}[%(window)s]))"
    f" / sum by (model) (avg_over_time(model:seqserve_requests:rate5m{{{_OF}}}[%(window)s]))"
    " / (1 - $objective)"
)

RELIABILITY = Dashboard(
    uid="seqserve-reliability",
    title="seqserve: reliability",
    text="What is refused, late, lost or restarted, and how fast it uses up the error budget.",
    choices=MODELS,
    constants={"objective": ["0.999", "0.99", "0.995", "0.9999"]},
    rows={
        "Error budget": [
            Panel(
                title="Burn rate",
                text="Share of calls that fail, over the share that the objective allows. At 1 the"
                " budget lasts as long as its period; at 14 a month's is gone in two days.",
                lines={
                    f"{{{{model}}}} {window}": _BURN % {"window": window}
                    for window in ("5m", "30m", "1h", "6h")
                },
                limit=14,
            ),
            Panel(
                title="Failed calls by status",
                text="What the server answers for; a caller's mistake or cancel is not here.",
                lines={
                    "{{model}} {{code}}": _rate(
                        "seqserve_requests_total",
                        f'{_OF},code=~"{FAILURES}"',
                        "model, code",
                    )
                },
                unit="reqps",
                is_stacked=True,
            ),
            Panel(
                title="Calls by status",
                text="All of them.",
                lines={"{{code}}": _rate("seqserve_requests_total", _OF, "code")},
                unit="reqps",
                is_stacked=True,
            ),
        ],
        "Overload": [
            Panel(
                title="Refusals by reason",
                text="invalid is a caller's mistake; of the others most ask for more servers.",
                lines={"{{reason}}": _rate("seqserve_rejected_total", _OF, "reason")},
                unit="reqps",
                is_stacked=True,
            ),
            Panel(
                title="Deadlines missed",
                text="In the queue, or while the answer was decoded.",
                lines={
                    "{{model}} {{where}}": _rate(
                        "seqserve_deadline_exceeded_total", _OF, "model, where"
                    )
                },
                unit="reqps",
            ),
            Panel(
                title="Cancelled and lost",
                text="Callers went away, or gRPC ended calls before the server saw them.",
                lines={
                    "{{model}} cancelled": _rate("seqserve_cancelled_total", _OF, "model"),
                    "lost": f"sum(rate(seqserve_lost_calls_total[{_RATE}]))",
                },
                unit="reqps",
            ),
        ],
        "Versions": [
            Panel(
                title="Engines started again",
                text="In ten minutes. The alert is at three.",
                lines={
                    f"{_VERSION} on {{{{instance}}}}": "increase(seqserve_engine_restarts_total"
                    f"{{{_OF}}}[10m])"
                },
                limit=3,
            ),
            Panel(
                title="State of versions",
                text="Servers that have each version in a state.",
                lines={
                    f"{_VERSION} {{{{state}}}}": "sum by (model, version, state)"
                    f" (seqserve_model_state{{{_OF}}})"
                },
            ),
            Panel(
                title="Versions loaded and failed",
                text="In an hour.",
                lines={"{{result}}": "sum by (result) (increase(seqserve_model_loads_total[1h]))"},
            ),
        ],
        "Alerts and files": [
            Panel(
                title="Alerts",
                text="That wait or fire.",
                lines={"{{alertname}} {{alertstate}}": 'ALERTS{alertname=~"Seqserve.+"}'},
            ),
            Panel(
                title="Certificates expire in",
                text="Of servers with TLS. The alert is at 14 days.",
                lines={
                    "{{option}} on {{instance}}": "seqserve_certificate_expiry_timestamp_seconds"
                    " - time()"
                },
                unit="s",
            ),
            Panel(
                title="Files in use as they are",
                text="0: a file of the option is broken, and what was read before is used.",
                lines={"{{option}} on {{instance}}": "seqserve_reload_successful"},
            ),
        ],
    },
)

_FORM = 'form=~"$form"'

GATEWAY = Dashboard(
    uid="seqserve-gateway",
    title="seqserve: gateway",
    text="HTTP of `seqserve gateway`, by form: its own JSON, LibreTranslate's and DeepL's.",
    choices={"form": "label_values(seqserve_http_requests_total, form)"},
    rows={
        "Now": [
            Panel(
                title="Gateways up",
                text="Gateways whose metrics are read.",
                lines={"up": 'sum(up{job="gateway"})'},
                is_number=True,
            ),
            Panel(
                title="Requests under way",
                text="Bounded by --max-requests.",
                lines={"requests": "sum(seqserve_http_requests_in_progress)"},
                is_number=True,
            ),
            Panel(
                title="Connections",
                text="Bounded by --max-http-connections.",
                lines={"connections": "sum(seqserve_http_connections)"},
                is_number=True,
            ),
        ],
        "Requests": [
            Panel(
                title="Requests by path",
                text="An empty path is one that does not exist.",
                lines={
                    "{{form}} {{path}}": _rate("seqserve_http_requests_total", _FORM, "form, path")
                },
                unit="reqps",
                is_stacked=True,
            ),
            Panel(
                title="Requests by outcome",
                text="The status of gRPC that an answer stands for.",
                lines={"{{code}}": _rate("seqserve_http_requests_total", _FORM, "code")},
                unit="reqps",
                is_stacked=True,
            ),
            Panel(
                title="Until the whole answer",
                text="Requests that got an answer.",
                lines=_quantiles(
                    "seqserve_http_request_duration_seconds", _FORM, "form", "{{form}}"
                ),
                unit="s",
            ),
        ],
        "Processes": [
            Panel(
                title="Cores",
                text="CPU time a second. A gateway has one core at most; add gateways before that.",
                lines={
                    "{{instance}}": f'rate(process_cpu_seconds_total{{job="gateway"}}[{_RATE}])'
                },
            ),
            Panel(
                title="Memory",
                text="Resident.",
                lines={"{{instance}}": 'process_resident_memory_bytes{job="gateway"}'},
                unit="bytes",
            ),
            Panel(
                title="Open files",
                text="Connections are among them.",
                lines={"{{instance}}": 'process_open_fds{job="gateway"}'},
            ),
        ],
    },
)

DASHBOARDS = [OVERVIEW, ENGINE, RELIABILITY, GATEWAY]

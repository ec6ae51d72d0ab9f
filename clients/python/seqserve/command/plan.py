"""``seqserve plan``: how many servers a rate needs, and what each of them needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, TypeAlias

import grpc

from seqserve import errors
from seqserve._transport.connection import Connection
from seqserve.arguments import MAX_MESSAGE_BYTES
from seqserve.command.load import check_server, find_rate, load_of, result_in
from seqserve.command.load_options import HIDDEN, LoadOptions
from seqserve.command.plan_options import PlanOptions
from seqserve.load.capacity import ANSWERS_MI, FRONT_MI, SURGE, CapacityPlan, Replica, settings_of
from seqserve.load.result import Result
from seqserve.open_inference import open_inference_pb2, open_inference_pb2_grpc
from seqserve.options import parse
from seqserve.output import aligned, json_line

_ABOUT = """\
Computes how many servers a rate needs, and which resources each needs.

It looks for the highest rate at which one server answers 99 of 100 requests in time, as `seqserve
load --find-rate` does, and divides. Use your own texts: long ones take longer, and so lower the
capacity of a server.
Options of `seqserve generate` for search and lengths apply too, such as --beam-size.

examples:
  seqserve plan --rate 200 --p99-ms 300 --model en-de --dataset-path sentences.txt
  seqserve load --find-rate --p99 300 --duration 20 --save-result load.json
  seqserve plan --rate 200 --report load.json --cores 4"""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(PlanOptions, argv, prog="seqserve plan", description=_ABOUT, hidden=HIDDEN)
    result, replica, doubts = (_measured if options.report is None else _reported)(options)
    plan = CapacityPlan(rate_per_s=options.rate, headroom=options.headroom, replica=replica)
    assumed = [*_assumed(plan, result, is_here=options.is_started)]
    if options.json:
        print(json_line({**_facts(plan, result), "assumptions": assumed, "doubts": doubts}))
    else:
        lines = [*_lines(plan, result), "", "It assumes:", *(f"- {each}" for each in assumed)]
        print(*lines, *(f"\nWarning: {each}." for each in doubts), sep="\n")
    return 0


def _facts(plan: CapacityPlan, result: Result) -> dict[str, Any]:
    replica = plan.replica
    return {
        "rate_per_s": plan.rate_per_s,
        "p99_ms": result["limit_p99_ms"],
        "headroom": plan.headroom,
        "replica": {
            "highest_rate_per_s": replica.rate_per_s,
            "p99_ms_at_it": result["p99_e2el_ms"],
            "in_flight": replica.in_flight,
            "cores": replica.cores,
            "slots": replica.slots,
            "loaded_versions": replica.versions,
            "version_bytes": replica.version_bytes,
        },
        "replicas": plan.replicas,
        "spare_for_rolling_update": SURGE,
        "load": plan.load_of(plan.replicas),
        "load_if_one_fails": plan.load_of(plan.replicas - 1) if plan.replicas > 1 else None,
        "memory_mi": plan.memory_mi,
        "values": plan.values(),
    }


def _lines(plan: CapacityPlan, result: Result) -> Iterator[str]:
    replica = plan.replica
    limit_ms, late_ms = result["limit_p99_ms"], result["p99_e2el_ms"]
    yield (
        f"One server handles {replica.rate_per_s:,.4g} requests a second within p99 {limit_ms:g} ms"
        f" ({late_ms:,.1f} ms), with {replica.in_flight:,.1f} in flight."
    )
    yield ""
    yield from aligned([*_rows(plan)])
    yield ""
    settings = ",".join(settings_of(plan.values()))
    yield f"helm upgrade --install seqserve deploy/helm/seqserve --reuse-values --set {settings}"


def _rows(plan: CapacityPlan) -> Iterator[tuple[str, str]]:
    replica, replicas = plan.replica, plan.replicas
    each = plan.load_of(replicas)
    yield (
        "replicas",
        f"{replicas:,}: {plan.rate_per_s:,.4g} / ({replica.rate_per_s:,.4g} x {plan.headroom:g}),"
        f" each at {each:.0%} of its capacity",
    )
    yield "a rolling update", f"{SURGE} more at a time, which needs room"
    yield "if one fails", _without_one(plan)
    if replica.cores is not None:
        total = replica.cores * replicas
        yield "cores", f"{replica.cores} each, a worker on each; {total:,} in all"
    if replica.slots is not None:
        yield "slots", f"{replica.slots:,} each"
    yield (
        "memory",
        f"{plan.memory_mi:,} MiB each: {FRONT_MI} front, {ANSWERS_MI} answers, {plan.versions}"
        f" versions x {plan.version_mi}",
    )


def _without_one(plan: CapacityPlan) -> str:
    left = plan.replicas - 1
    if not left:
        return "no server is left; --set replicas=2 keeps one"
    share = plan.load_of(left)
    much = "" if share <= 1 else ": some requests would be late or refused; add a server"
    return f"the others are at {share:.0%} of their capacity{much}"


def _assumed(plan: CapacityPlan, result: Result, *, is_here: bool) -> Iterator[str]:
    replica = plan.replica
    texts = result["dataset_path"] or "a few English sentences, because --dataset-path is not set"
    lengths = ""
    if result["total_output_tokens"] and result["completed"]:
        source, target = (
            result[f"total_{name}_tokens"] / result["completed"] for name in ("input", "output")
        )
        lengths = f", {source:,.0f} tokens that give {target:,.0f} on average"
    yield f"texts as long as those measured: {texts}{lengths}"
    where = "this machine" if is_here else f"the server that was measured, {result['target']}"
    if replica.cores is None:
        yield f"as many cores as {where}, and as fast; set their number with --cores"
    else:
        yield f"{replica.cores} cores for each server, as fast as the cores of {where}"
    if is_here:
        yield "the load generator ran there too, so a server by itself handles a little more"
    yield "a network as fast as the one between this command and the server"
    shape = result["burstiness"]
    come = "at random (a Poisson process)" if shape == 1 else f"as with --burstiness {shape:g}"
    yield f"requests that come {come}, at one rate: use the rate of the busiest minute"
    yield "calls spread evenly over the servers, as the client and Envoy spread them"
    assumed = "as the chart assumes"
    size = assumed if replica.version_bytes is None else "measured, with room for peaks"
    many = assumed if replica.versions is None else "the loaded ones and one more"
    yield f"{plan.versions} versions ({many}) of {plan.version_mi} MiB ({size})"


_TIMEOUT_S = 10.0
_OF_A_SEARCH = ("highest_request_rate", "limit_p99_ms", "lone_p99_ms", "probes")
_OF_ANSWERS = ("mean_e2el_ms", "p99_e2el_ms", "completed", "burstiness")


_Capacity: TypeAlias = tuple[Result, Replica, Sequence[str]]
"""Of one server: the result of the search for its highest rate, and reasons to doubt it."""


def _measured(options: PlanOptions) -> _Capacity:
    with options.load_options() as load_options:
        load = load_of(load_options)
        check_server(load_options, load)
        search = find_rate(load_options, load, load_options.caller())
        _raise_if_none_holds(search.result)
        replica = Replica.of(search.result, cores=options.known_cores, **_known(load_options))
        return search.result, replica, search.warnings


def _reported(options: PlanOptions) -> _Capacity:
    assert options.report is not None
    result = dict(result_in(options.report, "--report"))
    if not _is_of_a_search(result):
        reason = "is not a result of `seqserve load --find-rate`"
        raise errors.OptionError(f"--report: {options.report}: {reason}")
    if options.p99_ms not in (None, result["limit_p99_ms"]):
        raise errors.OptionError(
            f"--p99-ms: the report has a limit of {result['limit_p99_ms']:g} ms; leave it out, or"
            " measure again"
        )
    _raise_if_none_holds(result)
    return result, Replica.of(result, cores=options.known_cores), ()


def _is_of_a_search(result: Mapping[str, Any]) -> bool:
    if not all(name in result for name in _OF_A_SEARCH):
        return False
    numbers = all(isinstance(result.get(name), int | float) for name in _OF_ANSWERS)
    return numbers or result["highest_request_rate"] is None


def _raise_if_none_holds(result: Mapping[str, Any]) -> None:
    if result["highest_request_rate"] is not None:
        return
    tried = [(probe["rate_per_s"], probe["p99_ms"]) for probe in result["probes"]]
    rate_per_s, late_ms = min(tried, default=(0.0, result["lone_p99_ms"]))
    load = f"at {rate_per_s:,.3g} requests a second" if tried else "with one request at a time"
    late = "infinite, because some fail" if late_ms == "inf" else f"{late_ms:,.1f} ms"
    error = errors.SeqserveError(
        f"no rate keeps p99 within {result['limit_p99_ms']:g} ms: {load}, the lowest load tried,"
        f" p99 is {late}"
    )
    error.add_note(
        "A higher --p99-ms, shorter texts, a smaller --beam-size, a smaller model or one at int8"
        " may help, and so may a machine that does nothing else."
    )
    raise error


def _known(options: LoadOptions) -> dict[str, int | None]:
    known: dict[str, int | None] = {"version_bytes": _version_bytes(options)}
    with suppress(errors.CallError), options.connect() as client:
        loaded = [model.slots for model in client.models() if model.slots]
        known |= {"slots": max(loaded, default=None), "versions": len(loaded)}
    return known


def _version_bytes(options: LoadOptions) -> int | None:
    settings = options.settings()
    connection = Connection(options.address, MAX_MESSAGE_BYTES, settings["tls"], settings["token"])
    request = open_inference_pb2.ModelStatisticsRequest()
    with closing(connection.channel()) as channel, suppress(grpc.RpcError):
        stub: Any = open_inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelStatistics(request, metadata=connection.metadata(), timeout=_TIMEOUT_S)
        used = (sum(kind.byte_size for kind in each.memory_usage) for each in answer.model_stats)
        return max(used, default=0) or None
    return None

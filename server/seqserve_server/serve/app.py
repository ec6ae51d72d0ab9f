"""The command ``seqserve serve``: builds the server, runs it until a signal, drains it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from seqserve.address import address_of, is_taken
from seqserve.option_values import misspelt_variables
from seqserve.options import parse
from seqserve.processes import available_cores
from seqserve_server.contract.errors import StartupError
from seqserve_server.contract.limits import RAISE_THREADS
from seqserve_server.front.call.connections import refuse_few_files
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.fronts.fronts import Fronts
from seqserve_server.front.models.rollout import Rollout, parse_traffic, rollout_of
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.front.telemetry.scrape import ScrapeServer
from seqserve_server.process import logs
from seqserve_server.process.processes import TRIM_INTERVAL_S, malloc_trim
from seqserve_server.serve.server import Server, read_files, tracing_of

_EPILOG = """\
examples:
  seqserve serve                                    models/, or the installed one
  seqserve serve --host 0.0.0.0 --tls-certificate server.pem --tls-key server.key --tokens tokens
  SEQSERVE_SLOTS=128 SEQSERVE_LOG_FORMAT=json seqserve serve
"""
# Less than the second after which probes give up.
_READY_TIMEOUT_S = 0.8
# On two cores the front has 13 threads, most of them of gRPC.
_OWN_THREADS = 16


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve serve`` and returns the exit status."""
    options = parse(
        ServeOptions,
        sys.argv[1:] if argv is None else argv,
        prog="seqserve serve",
        description="Serves the models of a repository over gRPC, until Ctrl-C or SIGTERM.",
        epilog=_EPILOG,
        warns=False,  # the log does, in its format
    )
    logs.configure(options.log_format, options.log_level)
    for name, meant in misspelt_variables(ServeOptions).items():
        facts = {"name": name, "did_you_mean": meant}
        logs.event("unknown variable", facts, logging.WARNING)
    security, glossaries = read_files(options)
    refuse_few_files(options)
    _refuse_taken_ports(options)
    metrics = Metrics()
    layout = {
        "cores": available_cores(),
        "front_processes": options.front_count(),
        "workers": options.worker_count(),
        "threads": options.threads,
    }
    logs.event("layout", layout)
    rollout = rollout_of(options, metrics)
    fronts = Fronts(options, rollout, metrics) if options.front_count() > 1 else None

    def server() -> Server | Fronts:
        return fronts or Server(
            options, rollout, metrics, security, tracing_of(options), glossaries
        )

    try:
        rollout.open(options.default_model, parse_traffic(options.traffic))
        refuse_few_threads()
        run_loop(_serve(options, rollout, metrics, server))
    finally:
        rollout.discard()
        if fronts is not None:
            fronts.terminate()
    return 0


def _refuse_taken_ports(options: ServeOptions) -> None:
    # Before the models are loaded, which takes longer.
    for flag, host, port in (
        ("--port", options.host, options.port),
        ("--metrics-port", options.metrics_host, options.metrics_port),
    ):
        if is_taken(host, port):
            raise StartupError(
                f"{flag}: cannot listen on {address_of(host, port)}: another server does;"
                f" {flag} 0 takes any free one"
            )


def refuse_few_threads() -> None:
    """Fails if the limit on threads is too low: gRPC then ends the process without a word."""
    is_over = threading.Event()
    begun: list[threading.Thread] = []
    try:
        for _ in range(_OWN_THREADS):
            thread = threading.Thread(target=is_over.wait, name="room", daemon=True)
            thread.start()
            begun.append(thread)
    except RuntimeError:
        raise StartupError(
            f"the limit on threads leaves {len(begun)} besides those of the models, and"
            f" the server needs {_OWN_THREADS}; {RAISE_THREADS}"
        ) from None
    finally:
        is_over.set()
        for thread in begun:
            thread.join()


def run_loop(serving: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine in the fastest event loop there is."""
    try:
        import uvloop
    except ImportError:  # it is not available everywhere, and is only a little faster
        asyncio.run(serving)
    else:
        uvloop.run(serving)


async def _serve(
    options: ServeOptions,
    rollout: Rollout,
    metrics: Metrics,
    new_server: Callable[[], Server | Fronts],
) -> None:
    loop = asyncio.get_running_loop()
    server = new_server()
    scrape = ScrapeServer(
        options.metrics_host,
        options.metrics_port,
        metrics.registry,
        partial(is_ready, server, loop),
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stop)
    await server.start()
    # Objects made until here live as long as the server, so the collector need not visit them.
    gc.collect()
    gc.freeze()
    trimming = asyncio.create_task(trim_memory())
    _announce(options, server.port, scrape.port, rollout)
    await stop.wait()
    trimming.cancel()
    logs.event("draining", {"timeout_s": options.drain_timeout_s})
    finished = await server.drain(options.drain_timeout_s)
    logs.event("stopped", {"all_finished": finished})
    scrape.close()


async def trim_memory(interval_s: float = TRIM_INTERVAL_S) -> None:
    """Returns the memory of ended calls to the system at an interval, until cancelled.

    A cancelled task group leaves a circle of objects, with the request and its texts, which Python
    collects only after many new objects.
    """
    trim = malloc_trim()
    while True:
        await asyncio.sleep(interval_s)
        gc.collect()
        if trim is not None:
            await asyncio.to_thread(trim, 0)


def is_ready(
    server: Server | Fronts, loop: asyncio.AbstractEventLoop, timeout_s: float = _READY_TIMEOUT_S
) -> bool:
    """Asks in the event loop, so that a loop that hangs is not ready; blocks."""

    async def ask() -> bool:
        return server.is_ready

    answer = asyncio.run_coroutine_threadsafe(ask(), loop)
    try:
        return answer.result(timeout_s)
    except TimeoutError:
        answer.cancel()
        return False


def _announce(options: ServeOptions, port: int, metrics_port: int, rollout: Rollout) -> None:
    address = address_of(options.host, port)
    metrics = f"http://{address_of(options.metrics_host, metrics_port)}/metrics"
    models = rollout.repository.models()
    listed = ", ".join(
        f"{model.manifest.label} ({model.manifest.precision}, {model.provider.value},"
        f" {model.engine.capacity.slots} slots, caches"
        f" {model.engine.capacity.cache_bytes / 1e6:.0f} MB)"
        for model in models
    )
    waiting = [each.label for each in rollout.repository.entries if each.waits_for_call]
    listed += f"{len(waiting)} are loaded by their first calls" if waiting else ""
    text = f"seqserve ready on {address}, metrics {metrics}, models: {listed}"
    labels = [model.manifest.label for model in models]
    facts = {"address": address, "metrics": metrics, "models": labels}
    logs.announce(options.log_format, text, "ready", facts)


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        # A second signal: do not wait for the drain.
        os._exit(130)
    stop.set()

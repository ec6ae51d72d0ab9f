"""Engines on one GPU, or on one core of a CPU: speed, and a step beside the limits of the device.

Shapes of usual models with random weights at fp16; sources have 8 to 32 tokens, targets 32. Every
engine has one worker, in a process of its own: one that fails is named with its reason, and the
others go on. Cases come in the order of their weight, until the time is over.

A step reads every weight of its products once and does two operations for each weight and row. The
limits are measured in the same run: a copy within the device's memory, and a product of two large
matrices.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.drivers import Rows
from bench.drivers.device_engines import ARTIFACT, StepTime, Turn, kinds
from bench.drivers.device_limits import DeviceLimits, LimitsProbe
from bench.drivers.device_models import ModelWriter
from bench.drivers.remote_object import RemoteObject
from bench.models import random_sources
from bench.random_artifact import SHAPES, Work, folder_name
from bench.tables import Table, shown, spread, spread_of_ratios
from bench.turns import equal_share, take_turns

from seqserve.cores import available_cores

LENGTH = 32
"""Target tokens of each source."""
_SOURCE_LENGTH = 32
"""Tokens of the longest source."""
_WAVES = 2
"""Times as many sources in a turn as are in flight."""
_TURN_S = 0.25
"""How long a turn takes at least."""
_MIN_CASE_S = 6.0
"""Time that must be left for a case to begin."""
_FULL = 0.9
"""Share of the most rows in flight that a step has whose time counts."""
_GRACE_S = 5.0
"""How much later than planned an engine that is busy is ended."""
_START_S, _COMPILED_START_S = 75.0, 150.0
"""How long an engine may take to start, and to warm up; a driver compiles kernels then, or torch
does."""
_TURN_LIMIT_S = 20.0
"""How long a turn may take."""
_OURS = "seqserve fp16"

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A shape, and how many rows are in flight; compiled steps of transformers are apart."""

    shape: str
    """A key of :data:`~bench.random_artifact.SHAPES`."""
    rows: int
    is_compiled: bool = False

    @classmethod
    def parse(cls, text: str) -> Case:
        """Reads ``bart-large:64`` or ``marian-base:64:compiled``.

        Raises:
            ValueError: There is no such shape, or no number.
        """
        name, rows, *rest = text.split(":")
        shapes = {folder_name(shape): shape for shape in SHAPES}
        if name not in shapes or rest not in ([], ["compiled"]):
            raise ValueError(f"{text}: not SHAPE:ROWS; shapes are {', '.join(shapes)}")
        return cls(shapes[name], int(rows), is_compiled=bool(rest))

    @property
    def label(self) -> str:
        """As :meth:`parse` reads it."""
        return f"{folder_name(self.shape)}:{self.rows}" + ":compiled" * self.is_compiled


_BASE, _BART, _NLLB = SHAPES
CASES = (
    *(Case(_BASE, rows) for rows in (64, 1, 256)),
    *(Case(_BART, rows) for rows in (1, 64)),
    *(Case(_NLLB, rows) for rows in (1, 64)),
    Case(_BASE, 1024),
    Case(_BASE, 64, is_compiled=True),
    Case(_BART, 256),
    Case(_BASE, 8),
    Case(_NLLB, 256),
    Case(_BASE, 1, is_compiled=True),
    Case(_BART, 8),
    Case(_NLLB, 8),
)
"""What matters most comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and where."""

    device: str = "cuda"
    """Or ``cpu``."""
    max_s: float = 600.0
    """Time for everything, models included."""
    rounds: int = 4
    cases: Sequence[Case] = CASES
    folder: Path = Path("build/bench/gpu")
    """Keeps the models, for a later run too, and ``traced`` the graphs of all shapes."""


class _Clock:
    """Time that is left."""

    def __init__(self, max_s: float) -> None:
        self._began_s = time.monotonic()
        self._end_s = self._began_s + max_s

    @property
    def left_s(self) -> float:
        return self._end_s - time.monotonic()

    def patience_s(self, most_s: float = math.inf) -> float:
        """How long to wait for something that takes ``most_s`` at most."""
        return min(max(self.left_s, 0.0) + _GRACE_S, most_s)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)


def measure(plan: Plan) -> Iterator[Report]:
    """Runs the cases in turn; yields the report after each of them.

    Raises:
        RuntimeError: The device cannot be used at all, or its models not be written.
    """
    clock = _Clock(plan.max_s)
    shapes = list(dict.fromkeys(case.shape for case in plan.cases))
    limits = _prepare(plan, shapes, clock)
    report: Report = {
        "device": plan.device,
        "length": LENGTH,
        "limits": asdict(limits),
        "work": {shape: asdict(Work.of(plan.folder / _place(shape, ARTIFACT))) for shape in shapes},
        "cases": [],
        "left_out": [],
    }
    with ExitStack() as stack:
        engines = _Engines(plan, clock, stack)
        for case in plan.cases:
            if clock.left_s < _MIN_CASE_S:
                report["left_out"].append(case.label)
                clock.say(f"{case.label}: left out, the time is over")
            else:
                report["cases"].append(_measure(case, plan, engines, clock))
            yield report


def _place(shape: str, name: str) -> Path:
    return Path(folder_name(shape), name)


def _prepare(plan: Plan, shapes: Sequence[str], clock: _Clock) -> DeviceLimits:
    """Writes the models of all shapes at the same time, then measures the device.

    Raises:
        RuntimeError: One failed.
    """
    threads = max(1, available_cores() // len(shapes))
    with ExitStack() as stack:
        writers = {
            shape: stack.enter_context(RemoteObject(shape, ModelWriter, plan.device, threads))
            for shape in shapes
        }
        probe = stack.enter_context(RemoteObject("limits", LimitsProbe, plan.device))
        for process in (*writers.values(), probe):
            process.wait(clock.patience_s())
        for shape, writer in writers.items():
            writer.send("write", shape, SHAPES[shape], plan.folder)
        for shape, writer in writers.items():
            writer.receive(clock.patience_s())
            clock.say(f"{shape}: its models are written")
        limits: DeviceLimits = probe.call("measure", timeout_s=clock.patience_s())
    clock.say(_shown(asdict(limits)))
    return limits


def _shown(limits: Report) -> str:
    return (
        f"{limits['name']}: {limits['bytes_per_s'] / 1e9:,.0f} GB/s read and written by a copy,"
        f" {limits['operations_per_s'] / 1e12:,.3g} TFLOP/s in a product of large matrices"
    )


class _Engines:
    """Processes of engines that have been started, by shape and name."""

    def __init__(self, plan: Plan, clock: _Clock, stack: ExitStack) -> None:
        self._plan, self._clock, self._stack = plan, clock, stack
        self._kinds = kinds(plan.device, _SOURCE_LENGTH)
        self._started: dict[tuple[str, str], RemoteObject] = {}
        self._failed: dict[tuple[str, str], str] = {}

    def of(self, case: Case) -> tuple[dict[str, RemoteObject], dict[str, str]]:
        """Returns the engines of a case, and the reasons of those that cannot be had."""
        names = [
            name
            for name in self._kinds
            if name == _OURS or name.endswith(" compiled") == case.is_compiled
        ]
        new = [name for name in names if not self._is_known(case.shape, name)]
        for name in new:
            kind = self._kinds[name]
            folder = self._plan.folder / _place(case.shape, kind.folder)
            engine = RemoteObject(name, kind.make, folder, self._plan.device, LENGTH)
            self._started[case.shape, name] = self._stack.enter_context(engine)
        for name in new:
            try:
                self._started[case.shape, name].wait(self._clock.patience_s(_START_S))
            except RuntimeError as error:
                self.fail(case.shape, name, error)
                self._failed[case.shape, name] = str(error)
        engines = {
            name: self._started[case.shape, name]
            for name in names
            if (case.shape, name) in self._started
        }
        failed = {
            name: self._failed[case.shape, name]
            for name in names
            if (case.shape, name) in self._failed
        }
        return engines, failed

    def fail(self, shape: str, name: str, error: RuntimeError) -> None:
        """Ends an engine; the next case starts it again if it has ever run."""
        self._clock.say(f"{shape}: {error}")
        self._started.pop((shape, name)).close()

    def _is_known(self, shape: str, name: str) -> bool:
        return (shape, name) in self._started or (shape, name) in self._failed


class _Run:
    """The engines of one case, without those that have failed."""

    def __init__(self, case: Case, engines: _Engines, clock: _Clock) -> None:
        self._case, self._engines, self._clock = case, engines, clock
        self._running, self.failed = engines.of(case)
        self._sources = random_sources(_WAVES * case.rows, config=SHAPES[case.shape])

    @property
    def names(self) -> list[str]:
        return [name for name in self._running if name not in self.failed]

    def warm_up(self) -> dict[str, Rows]:
        """Lets all engines decode, at the same time: what they compile takes long."""
        for name in self.names:
            self._try(name, lambda engine: engine.send("warm_up", self._sources, self._case.rows))
        return {name: self._try(name, partial(self._warm, name)) for name in self.names}

    def turn(self, name: str) -> Turn | None:
        """Lets an engine take a turn; None where it has failed."""
        arguments = self._sources, self._case.rows, _TURN_S
        patience_s = self._clock.patience_s(_TURN_LIMIT_S)
        return self._try(  # type: ignore[no-any-return]
            name, lambda engine: engine.call("turn", *arguments, timeout_s=patience_s)
        )

    def _warm(self, name: str, engine: RemoteObject) -> Any:
        most_s = _COMPILED_START_S if name.endswith("compiled") else _START_S
        return engine.receive(self._clock.patience_s(most_s))

    def _try(self, name: str, call: Callable[[RemoteObject], Any]) -> Any:
        if name in self.failed:
            return None
        try:
            return call(self._running[name])
        except RuntimeError as error:
            self._engines.fail(self._case.shape, name, error)
            self.failed[name] = str(error)
            return None


def _measure(case: Case, plan: Plan, engines: _Engines, clock: _Clock) -> Report:
    """Lets every engine decode in each round; leaves out those that fail."""
    run = _Run(case, engines, clock)
    targets = run.warm_up()
    rounds: list[dict[str, list[Turn | None]]] = []
    while not rounds or (len(rounds) < plan.rounds and clock.left_s > 0):
        rounds.append(take_turns({name: partial(run.turn, name) for name in run.names}, 1))
    turns = {
        name: [turn for one in rounds for turn in one[name] if turn is not None]
        for name in run.names
    }
    peers = _peers(turns, targets)
    for peer in peers:
        clock.say(f"{case.label}: {peer['name']}: {peer['tokens_per_s']:,.0f} tokens/s")
    report = {
        "label": case.label,
        **asdict(case),
        "rounds": len(rounds),
        "peers": peers,
        "failed": run.failed,
    }
    if _OURS in turns:
        report["step"] = _step(turns[_OURS])
    return report


def _peers(turns: dict[str, list[Turn]], targets: dict[str, Rows]) -> list[Report]:
    speeds = {name: [turn.tokens_per_s for turn in several] for name, several in turns.items()}
    return [
        {
            "name": name,
            "tokens_per_s": statistics.median(ours),
            "tokens_per_s_best": max(ours),
            "lengths": sorted({len(row) for row in targets[name]}),
            # transformers draws weights of its own.
            "equal_share": equal_share(targets[_OURS], targets[name])
            if _OURS in turns and "transformers" not in name
            else None,
            "ratios": {other: spread_of_ratios(ours, theirs) for other, theirs in speeds.items()},
        }
        for name, ours in speeds.items()
    ]


def _step(turns: Iterable[Turn]) -> Report | None:
    """Computes what a step takes with most rows in flight, and what encoding takes."""
    several = list(turns)
    steps = [step for turn in several for step in turn.steps]
    encoded = sum(turn.encoded_tokens for turn in several)
    if not steps or not encoded:
        return None
    most = max(step.rows for step in steps)
    full = [step for step in steps if step.rows >= _FULL * most]
    encode_s = sum(turn.encode_s for turn in several)
    return {
        "steps": len(full),
        "rows": statistics.fmean(step.rows for step in full),
        "step_us": _quantiles(full),
        "outside_share": sum(step.outside_s for step in full) / sum(step.seconds for step in full),
        "outside_us": 1e6 * statistics.median(step.outside_s for step in full),
        "encode_us_a_token": 1e6 * encode_s / encoded,
        "encode_share": encode_s / sum(turn.seconds for turn in several),
    }


def _quantiles(steps: Sequence[StepTime]) -> dict[str, float]:
    return spread([1e6 * step.seconds for step in steps])


def tables(report: Report) -> list[Table]:
    """Lays out the speeds of each shape, a column for each number of rows, and our steps."""
    found = []
    for shape in report["work"]:
        for is_compiled in (False, True):
            cases = [
                case
                for case in report["cases"]
                if case["shape"] == shape and case["is_compiled"] is is_compiled
            ]
            if cases:
                found.append(_speeds(shape, sorted(cases, key=lambda case: case["rows"])))
    steps = [case for case in report["cases"] if case.get("step") and not case["is_compiled"]]
    if steps:
        found.append(_steps(report, steps))
    return found


def _speeds(shape: str, cases: Sequence[Report]) -> Table:
    columns = [{peer["name"]: peer for peer in case["peers"]} for case in cases]
    names = list(dict.fromkeys(name for case in cases for name in (*_names(case), *case["failed"])))
    rows = [
        [name, *(f"{c[name]['tokens_per_s']:,.0f}" if name in c else "failed" for c in columns)]
        for name in names
    ]
    for name in names:
        if name != _OURS and any(name in column for column in columns):
            ratios = [column.get(_OURS, {}).get("ratios", {}).get(name) for column in columns]
            shares = [shown(ratio) if ratio else "" for ratio in ratios]
            rows.append([f"**seqserve fp16 / {name}**", *shares])
    compared = [name for name in names if name.startswith("CTranslate2")]
    for name in compared:
        shares = [f"{c[name]['equal_share']:.0%}" if _is_compared(c, name) else "" for c in columns]
        rows.append([f"same targets as ours: {name}", *shares])
    reasons = dict.fromkeys(reason for case in cases for reason in case["failed"].values())
    head = [f"{shape}; rows in flight; tokens/s", *(str(case["rows"]) for case in cases)]
    return Table(head, rows, " ".join(f"{reason}." for reason in reasons))


def _names(case: Report) -> list[str]:
    return [peer["name"] for peer in case["peers"]]


def _is_compared(column: Report, name: str) -> bool:
    return name in column and column[name]["equal_share"] is not None


def _steps(report: Report, cases: Sequence[Report]) -> Table:
    limits, rows = report["limits"], []
    for case in cases:
        step, work = case["step"], report["work"][case["shape"]]
        seconds = step["step_us"]["median"] / 1e6
        bytes_share = work["bytes"] / seconds / limits["bytes_per_s"]
        operations = 2 * work["weights"] * step["rows"] / seconds / limits["operations_per_s"]
        rows.append(
            [
                case["label"],
                f"{step['rows']:,.0f}",
                f"{step['step_us']['median']:,.0f}",
                f"{bytes_share:.0%}",
                f"{operations:.0%}",
                f"{step['outside_share']:.0%}",
                f"{step['outside_us']:,.0f}",
                f"{step['encode_us_a_token']:,.1f}",
                f"{step['encode_share']:.0%}",
            ]
        )
    head = [
        "steps of seqserve fp16",
        "rows",
        "us a step",
        "of the bandwidth",
        "of the products",
        "outside ONNX Runtime",
        "us outside",
        "us to encode a token",
        "of the time, encoding",
    ]
    note = (
        f"{_shown(limits)}. Shares count the weights of the decoder's products alone: neither"
        " caches nor attention."
    )
    return Table(head, rows, note)

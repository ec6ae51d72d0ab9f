"""Engines on one GPU, or on one core of a CPU: speed, and steps against the limits of the device.

Shapes of usual models with random weights at fp16; sources have 8 to 32 tokens, targets 32. Those
of BART-large-CNN have 260 to 440 and 128. Every engine has one worker, in a separate process. If
one fails, the report gives its reason, and the others go on. The most important cases come first,
until the time is over. Tokens are target tokens, the last one too.

A step reads every weight of its products once and does two operations for each weight and row. The
limits are measured in the same run: a copy within the device's memory, and a product of two large
matrices.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from bench.comparison import equal_share, peers_of, take_turns
from bench.drivers import Rows
from bench.drivers.device_engines import ARTIFACT, Turn, kinds
from bench.drivers.subprocess_driver import RemoteObject
from bench.random_artifact import SHAPES, Device, DeviceLimits, Work, folder_name
from bench.scenarios.gpu_cases import CASES, OURS, Case, Clock, Report, shown_limits
from bench.served import serve_on_device
from bench.tables import spread
from seqserve.processes import available_cores

_TURN_S = 0.25
"""How long a turn takes at least."""
_MIN_CASE_S = 6.0
"""Time that must be left for a case to begin."""
_FULL = 0.9
"""Share of the most rows in flight that a step has whose time counts."""
_START_S = 75.0
"""How long an engine may take to start, and to warm up; a driver compiles kernels then."""
_TURN_LIMIT_S = 20.0
"""How long a turn may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The measurements, and their device."""

    device: str = "cuda"
    """Or ``cpu``."""
    max_s: float = 600.0
    """Time for everything, models included."""
    rounds: int = 4
    cases: Sequence[Case] = CASES
    folder: Path = Path("build/bench/gpu")
    """Keeps the models, for a later run too, and ``traced`` the graphs of all shapes."""


def measure(plan: Plan) -> Iterator[Report]:
    """Runs the cases in turn; yields the report after each of them."""
    clock = Clock(plan.max_s)
    shapes = list(dict.fromkeys(case.shape for case in plan.cases))
    limits = _prepare(plan, shapes, clock)
    report: Report = {
        "device": plan.device,
        "limits": asdict(limits),
        "work": {shape: asdict(Work.of(SHAPES[shape])) for shape in shapes},
        "cases": [],
        "served": [],
        "left_out": [],
    }
    with ExitStack() as stack:
        engines = _Engines(plan, clock, stack)
        for case in plan.cases:
            if clock.left_s < _MIN_CASE_S:
                report["left_out"].append(case.label)
                clock.say(f"{case.label}: left out, the time is over")
            elif case.is_served:
                try:
                    report["served"].append(_served(case, plan, clock))
                except RuntimeError as error:
                    report["left_out"].append(case.label)
                    clock.say(f"{case.label}: {error}")
            else:
                report["cases"].append(_measure(case, plan, engines, clock))
            yield report


def _served(case: Case, plan: Plan, clock: Clock) -> Report:
    artifact = plan.folder / _place(case.shape, ARTIFACT)
    config = SHAPES[case.shape]
    report = serve_on_device(artifact, config, case.rows, case.length, plan.device)
    clock.say(
        f"{case.label}: {report['tokens_per_s']:,.0f} tokens/s, p50 {report['p50_ms']:.1f} ms,"
        f" p99 {report['p99_ms']:.1f} ms, ready after {report['ready_s']:.1f} s"
    )
    return {"shape": case.shape, "callers": case.rows, **report}


def _place(shape: str, name: str) -> Path:
    return Path(folder_name(shape), name)


def _prepare(plan: Plan, shapes: Sequence[str], clock: Clock) -> DeviceLimits:
    threads = max(1, available_cores() // len(shapes))
    with ExitStack() as stack:
        writers = {
            shape: stack.enter_context(RemoteObject(shape, Device, plan.device, threads))
            for shape in shapes
        }
        probe = stack.enter_context(RemoteObject("limits", Device, plan.device))
        for process in (*writers.values(), probe):
            process.receive(clock.patience_s())
        for shape, writer in writers.items():
            writer.send("write", shape, SHAPES[shape], plan.folder)
        for shape, writer in writers.items():
            writer.receive(clock.patience_s())
            clock.say(f"{shape}: its models are written")
        limits: DeviceLimits = probe.call("measure", timeout_s=clock.patience_s())
    clock.say(shown_limits(asdict(limits)))
    return limits


class _Engines:
    """The engines of all cases, each in a process that is kept for the next case."""

    def __init__(self, plan: Plan, clock: Clock, stack: ExitStack) -> None:
        self._plan, self._clock, self._stack = plan, clock, stack
        self._started: dict[_EngineKey, RemoteObject] = {}
        self._broken: dict[_EngineKey, str] = {}
        """Why those that did not start did not; they are not tried again."""

    def begin(self, case: Case) -> None:
        """Starts what the case lacks; :attr:`failed` has the reasons of those that fail in it."""
        self._case, self._sources = case, case.sources()
        known = kinds(self._plan.device, SHAPES[case.shape], case.beam_size)
        self._keys = {name: (case.shape, case.beam_size, name) for name in known}
        self.failed = {n: self._broken[key] for n, key in self._keys.items() if key in self._broken}
        new = [name for name in self.names if self._keys[name] not in self._started]
        for name in new:
            folder = self._plan.folder / _place(case.shape, known[name].folder)
            engine = RemoteObject(name, known[name].make, folder, self._plan.device, case.length)
            self._started[self._keys[name]] = self._stack.enter_context(engine)
        for name in new:
            self._try(name, lambda engine: engine.receive(self._clock.patience_s(_START_S)))
            if name in self.failed:
                self._broken[self._keys[name]] = self.failed[name]

    @property
    def names(self) -> list[str]:
        return [name for name in self._keys if name not in self.failed]

    def warm_up(self) -> dict[str, Rows]:
        """Lets all engines decode, at the same time: what they compile takes long."""
        for name in self.names:
            self._try(name, lambda engine: engine.send("warm_up", self._sources, self._case.rows))
        return {
            name: self._try(name, lambda engine: engine.receive(self._clock.patience_s(_START_S)))
            for name in self.names
        }

    def turn(self, name: str) -> Turn | None:
        arguments = self._sources, self._case.rows, _TURN_S
        patience_s = self._clock.patience_s(_TURN_LIMIT_S)
        return self._try(  # type: ignore[no-any-return]
            name, lambda engine: engine.call("turn", *arguments, timeout_s=patience_s)
        )

    def _try(self, name: str, call: Callable[[RemoteObject], Any]) -> Any:
        if name in self.failed:
            return None
        try:
            return call(self._started[self._keys[name]])
        except RuntimeError as error:
            self._clock.say(f"{self._case.shape}: {error}")
            self._started.pop(self._keys[name]).close()
            self.failed[name] = str(error)
            return None


_EngineKey: TypeAlias = tuple[str, int, str]
"""Shape, beam size, name."""


def _measure(case: Case, plan: Plan, engines: _Engines, clock: Clock) -> Report:
    engines.begin(case)
    targets = engines.warm_up()
    rounds: list[dict[str, list[Turn | None]]] = []
    while not rounds or (len(rounds) < plan.rounds and clock.left_s > 0):
        rounds.append(take_turns({name: partial(engines.turn, name) for name in engines.names}, 1))
    turns = {
        name: [turn for one in rounds for turn in one[name] if turn is not None]
        for name in engines.names
    }
    peers = _peers(turns, targets)
    for peer in peers:
        clock.say(f"{case.label}: {peer['name']}: {peer['tokens_per_s']:,.0f} tokens/s")
    report = {
        "label": case.label,
        **asdict(case),
        "rounds": len(rounds),
        "peers": peers,
        "failed": engines.failed,
    }
    if OURS in turns:
        report["step"] = _step(turns[OURS])
    return report


def _peers(turns: dict[str, list[Turn]], targets: dict[str, Rows]) -> list[Report]:
    speeds = {name: [turn.tokens_per_s for turn in several] for name, several in turns.items()}
    # transformers draws other weights.
    equal = {
        name: equal_share(targets[OURS], targets[name])
        if OURS in turns and "transformers" not in name
        else None
        for name in turns
    }
    return [
        {**peer, "lengths": sorted({len(row) for row in targets[peer["name"]]})}
        for peer in peers_of(speeds, equal)
    ]


def _step(turns: Iterable[Turn]) -> Report | None:
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
        "step_us": spread([1e6 * step.seconds for step in full]),
        "outside_share": sum(step.outside_s for step in full) / sum(step.seconds for step in full),
        "outside_us": 1e6 * statistics.median(step.outside_s for step in full),
        "encode_us_a_token": 1e6 * encode_s / encoded,
        "encode_share": encode_s / sum(turn.seconds for turn in several),
    }

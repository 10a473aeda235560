"""Runs a plan and gives its result: what the command, the library and sweeps all call."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windtunnel.core.histogram import Histogram
from windtunnel.core.invariants import Invariant, InvariantChecker
from windtunnel.core.telemetry import Sink, Telemetry
from windtunnel.twin.checks import INVARIANTS
from windtunnel.twin.compose import compose
from windtunnel.twin.results.recorder import RowSink
from windtunnel.twin.results.result import result_of
from windtunnel.twin.results.timeline import Timeline
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.simulation import Simulation

if TYPE_CHECKING:
    from windtunnel.scaling.actuation import Ticking


class Run:
    """A run that has ended: its result as plain data, its samples over time, its token gaps."""

    def __init__(
        self,
        plan: ScenarioPlan,
        result: dict[str, Any],
        timeline: Timeline,
        token_gaps: dict[str, Histogram],
    ) -> None:
        self.plan = plan
        self.result = result
        self.timeline = timeline
        self.token_gaps = token_gaps  # by pool


def simulate(plan: ScenarioPlan, *, check: bool = False) -> dict[str, Any]:
    """Runs a scenario and returns its result as plain data, with the keys of `result.json`."""
    return run(plan, check=check).result


def run(
    plan: ScenarioPlan,
    *,
    rows: RowSink | None = None,
    events: Sink | None = None,
    decisions: Sink | None = None,
    check: bool = False,
    look: Callable[[Simulation], None] | None = None,
    step_scales: Mapping[str, float] | None = None,
    scaler: "Ticking | None" = None,
) -> Run:
    """Runs a scenario.

    `rows` receives the ended requests in batches, `events` every decision, and `decisions` those of
    the control plane: all but what concerns single requests. `check` runs every invariant after
    every event instead of only at the end. `look` is called every thousand events with the
    simulation, and after each of the control plane. `step_scales` make the steps of some pools
    longer or shorter. A `scaler` takes the place of the one that the plan's `scaling` asks for.
    """
    checker = InvariantChecker(_invariants(plan))
    telemetry = Telemetry(events) if events is not None else None
    scaling = Telemetry(*[sink for sink in (events, decisions) if sink is not None])
    with _no_collection():
        simulation = compose(plan, rows, telemetry, step_scales, scaler, scaling)

    def check_now(state: Simulation) -> None:
        checker.run(
            state,
            lambda: f"{plan.name}, seed {plan.seed}, event {state.events} at {state.now_s} s",
        )

    with _no_collection():
        simulation.run(look or breathe, check_now if check else None)
    if not simulation.is_torn:
        check_now(simulation)
    result = result_of(plan, simulation, checker.checked)
    return Run(plan, result, simulation.timeline, _token_gaps(simulation))


def _invariants(plan: ScenarioPlan) -> Sequence[Invariant[Simulation]]:
    if not plan.on_machines:
        return INVARIANTS
    from windtunnel.twin.infrastructure.checks import EVERY_INVARIANT

    return EVERY_INVARIANT


def _token_gaps(simulation: Simulation) -> dict[str, Histogram]:
    """The gaps between tokens that each pool's servers have made."""
    gaps = {pool.name: Histogram() for pool in simulation.cluster.pools}
    for pool in simulation.cluster.pools:
        for server in pool.servers:
            gaps[pool.name].merge(server.token_gaps)
    return gaps


def breathe(_: Simulation) -> None:
    """Lets Ctrl-C through: compiled code never looks for signals, a call of plain Python does."""


@contextmanager
def _no_collection() -> Iterator[None]:
    """A run leaves no cycles behind; looking for them among live objects costs a tenth of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    except BaseException:
        gc.freeze()  # nor after it was interrupted, when all that it has in memory is still there
        raise
    finally:
        if enabled:
            gc.enable()

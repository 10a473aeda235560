"""Runs a plan and returns its result, for the command, the library and sweeps."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.core.invariants import InvariantChecker
from windtunnel.core.statistics.histogram import Histogram, merged
from windtunnel.core.telemetry import Sink, Telemetry
from windtunnel.twin.checks import INVARIANTS, RunChecker
from windtunnel.twin.compose import compose
from windtunnel.twin.results.recorder import RowSink
from windtunnel.twin.results.result import result_of
from windtunnel.twin.results.timeline import Timeline
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.simulation import Simulation

if TYPE_CHECKING:
    from windtunnel.scaling.actuation import Ticking
    from windtunnel.twin.infrastructure.checks import InfrastructureChecker


class Run(NamedTuple):
    """A completed run: its result as plain data, its samples over time, its inter-token times."""

    plan: ScenarioPlan
    result: dict[str, Any]
    timeline: Timeline
    token_gaps: dict[str, Histogram]
    """By pool."""


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
    the control plane: all except those about single requests. `check` runs every invariant after
    every event, on what it changed and from time to time on everything, instead of only at the end.
    `look` is called with the simulation every thousand events, and after each control-plane event.
    `step_scales` make the steps of some pools longer or shorter. A `scaler` replaces the one that
    the plan's `scaling` configures.
    """
    checker = InvariantChecker(INVARIANTS)
    telemetry = Telemetry(events) if events is not None else None
    scaling = Telemetry(*[sink for sink in (events, decisions) if sink is not None])
    with _no_collection():
        simulation = compose(plan, rows, telemetry, step_scales, scaler, scaling)

    below = _infrastructure_checker(simulation)

    def context() -> str:
        event = f"event {simulation.events} at {simulation.now_s} s"
        return f"{plan.name}, seed {plan.seed}, {event}"

    with _no_collection():
        if check:
            after_event = RunChecker(simulation, checker)

            def check_now(_: Simulation) -> None:
                after_event.check(context)
                if below is not None:
                    below.check(context)

            simulation.run(look or breathe, check_now, lambda _: after_event.check_whole(context))
            after_event.stop()
        else:
            simulation.run(look or breathe)
    if not simulation.is_torn:
        checker.run(simulation, context)
        if below is not None:
            below.check(context, at_once=True)
    checked = checker.checked + (below.checked if below is not None else 0)
    result = result_of(plan, simulation, checked)
    return Run(plan, result, simulation.timeline, _token_gaps(simulation))


def _infrastructure_checker(simulation: Simulation) -> "InfrastructureChecker | None":
    """The checker of gangs and machines; None when there are none."""
    if simulation.lifecycle.infrastructure is None:
        return None
    from windtunnel.twin.infrastructure.checks import InfrastructureChecker
    from windtunnel.twin.infrastructure.infrastructure import Infrastructure

    infrastructure = simulation.lifecycle.infrastructure
    if not isinstance(infrastructure, Infrastructure):
        return None
    return InfrastructureChecker(infrastructure)


def _token_gaps(simulation: Simulation) -> dict[str, Histogram]:
    """The inter-token times of each pool's servers."""
    return {
        pool.name: merged(server.token_gaps for server in pool.servers)
        for pool in simulation.cluster.pools
    }


def breathe(_: Simulation) -> None:
    """Lets Ctrl-C through: compiled code never checks for signals, a call of plain Python does."""


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disables garbage collection: a run leaves no cycles, and searching live objects for them
    costs a tenth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    except BaseException:
        gc.freeze()  # nor after an interrupt, when everything is still in memory
        raise
    finally:
        if enabled:
            gc.enable()

"""Whether a scheduler's own topology still agrees with the binding that sets are written by."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from windtunnel.gangs.conditions import Verdict
from windtunnel.gangs.objects import FALSE, TRUE, UNKNOWN

DRIFT = "SchedulerTopologyDrift"


class TopologyStatus(NamedTuple):
    """How one scheduler's topology stands to the binding."""

    scheduler: str
    reference: str
    in_sync: bool
    message: str


class Drift(NamedTuple):
    """The condition of a binding, if it has one, and the status of each scheduler."""

    verdict: Verdict | None
    statuses: tuple[TopologyStatus, ...]


def drift(
    levels: Mapping[str, str],
    bindings: Mapping[str, str],
    backends: Mapping[str, Mapping[str, Sequence[str]]],
) -> Drift:
    """Compares the keys of `levels`, broadest first, with the topologies that `bindings` name.

    `bindings` are from scheduler to the name of its topology; `backends` are, of the schedulers
    that can be reached, the keys of each topology. A scheduler without a binding gets its topology
    made from the levels, so there is nothing to compare.
    """
    statuses = []
    for scheduler, reference in sorted(bindings.items()):
        found = backends.get(scheduler)
        wanted = list(levels.values())
        if found is None:
            what = f"the scheduler {scheduler} cannot be reached"
        elif reference not in found:
            what = f"there is no topology {reference}"
        elif list(found[reference]) != wanted:
            what = f"it has the levels {', '.join(found[reference])}, not {', '.join(wanted)}"
        else:
            what = ""
        statuses.append(TopologyStatus(scheduler, reference, not what, what))
    if not statuses:
        return Drift(None, ())
    wrong = [f"{one.scheduler}: {one.message}" for one in statuses if not one.in_sync]
    if any(one.scheduler not in backends for one in statuses):
        verdict = Verdict(UNKNOWN, "TopologyNotFound", "; ".join(wrong))
    elif wrong:
        verdict = Verdict(TRUE, "Drift", "; ".join(wrong))
    else:
        verdict = Verdict(FALSE, "InSync", "All topologies have the levels of the binding")
    return Drift(verdict, tuple(statuses))

"""The output of a cycle: actions on machines, and a verdict for each need."""

from typing import Final

import msgspec

from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.states import CONFIGURED, IDLE, SPECULATIVE

NOTHING: Final = 0
BOOTSTRAP: Final = 1
PROVISION: Final = 2
ADOPT: Final = 3
PREEMPT: Final = 4
RECLAIM: Final = 5
DELETE: Final = 6

ACTIONS: Final = ("nothing", "bootstrap", "provision", "adopt", "preempt", "reclaim", "delete")
"""By number: an idle machine joins a cluster; a machine is created and joins one; a machine of the
cluster is counted for another of its needs; a machine is drained for a need of higher priority; one
is drained because its cluster no longer needs it; an idle one is deleted."""

START_STATE: Final = (-1, IDLE, SPECULATIVE, CONFIGURED, CONFIGURED, CONFIGURED, IDLE)
"""By action: the state in which it may start; adoption also while the machine is configuring."""


class Action(msgspec.Struct, frozen=True, gc=False):
    """One action on one machine, and the reason."""

    kind: int
    machine: str
    cluster: str = ""
    need: NeedKey | None = None
    """The need that gets the machine, at once or after its drain."""
    grace_s: float = 0.0
    """How long the cluster may take to empty it."""
    priority: int = 0
    """The priority of the need that it is for; actions of higher priority start first."""
    cost: float = 0.0
    """The effective dollars per hour by which the machine was chosen."""
    reason: str = ""


SATISFIED: Final = 0
PREEMPTING: Final = 1
TOPOLOGY_UNSATISFIABLE: Final = 2
PRIORITY_STARVED: Final = 3
NO_MATCHING_SUPPLY: Final = 4
PREEMPTION_EXHAUSTED: Final = 5
QUOTA_EXHAUSTED: Final = 6
INSUFFICIENT_CAPACITY: Final = 7

VERDICTS: Final = (
    "SATISFIED",
    "PREEMPTING",
    "TOPOLOGY_UNSATISFIABLE",
    "PRIORITY_STARVED",
    "NO_MATCHING_SUPPLY",
    "PREEMPTION_EXHAUSTED",
    "QUOTA_EXHAUSTED",
    "INSUFFICIENT_CAPACITY",
)
"""By number: covered by machines that are there or on their way; the rest is being drained for it;
enough machines, but not within one domain or not evenly enough; all matching machines belong to
needs of the same or a higher priority; no machine matches, or too few do; the machines of lower
priority are not enough; all matching machines are in use, and no need has a higher priority; the
provider makes none of those that the quota still allows."""


class NeedVerdict(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a cycle for a need, as a code and a sentence."""

    need: NeedKey
    verdict: int
    reason: str


class CyclePlan(msgspec.Struct):
    """The decisions of one cycle."""

    actions: list[Action]
    """In the order in which they should start: acquisitions by priority, then removals."""
    withdrawn: list[str]
    """Machines whose planned action is withdrawn before it has begun."""
    shortfalls: list[NeedVerdict]
    """The needs that are not satisfied."""
    needs: int
    """The number of needs; those without a shortfall are satisfied."""


IDLE_REASON: Final = "the cheapest idle machine that matches"
SPECULATIVE_REASON: Final = "the cheapest that can be created: no idle machine matches"
SURPLUS_REASON: Final = "surplus of another need of the cluster"
OWN_VICTIM_REASON: Final = "taken from a need of lower priority in the same cluster"
VICTIM_REASON: Final = "the best machine to preempt from needs of lower priority"
RECLAIM_REASON: Final = "no need of its cluster requires it"
DELETE_REASON: Final = "idle for longer than its kind is kept"

WHY: Final = (
    "machines that exist or are on their way cover it",
    "the rest is being preempted from needs of lower priority",
    "there are enough machines, but not within one domain or evenly enough",
    "all machines that match belong to needs of the same or a higher priority",
    "no machine that exists or can be created now matches and can host the smallest unit",
    "needs of lower priority do not hold enough machines",
    "the quota is used up: all machines that match are in use",
    "no machine that matches is free",
)
"""The reason by verdict."""


TOO_FEW: Final = "the quota is too small: all machines that match, free or in use, are too few"


def in_words(
    verdict: int, missing: list[tuple[str, int]], *, some_match: bool = True, withheld: int = 0
) -> str:
    """Describes a verdict in a sentence, with the missing amounts.

    `withheld`: the number of suitable places for which the provider had no capacity.
    """
    why = TOO_FEW if verdict == NO_MATCHING_SUPPLY and some_match else WHY[verdict]
    if withheld:
        why = f"{why}; {withheld} places are tried again later: their provider created no machine"
    if not missing:
        return why
    amounts = ", ".join(f"{amount} {name}" for name, amount in missing)
    return f"short of {amounts}: {why}"

"""What a cycle wants done to machines, and what it says of each need."""

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
"""By number: an idle machine joins a cluster; one is created, and joins it; a machine of the
cluster is counted for another need of it; a machine is drained for a need of higher priority;
one is drained since its cluster needs it no more; an idle one is given back."""

START_STATE: Final = (-1, IDLE, SPECULATIVE, CONFIGURED, CONFIGURED, CONFIGURED, IDLE)
"""By action: the state that a machine must be in when it starts. Adoption may also start while
the machine is configuring."""


class Action(msgspec.Struct, frozen=True, gc=False):
    """One thing to do to one machine, and why."""

    kind: int
    machine: str
    cluster: str = ""
    need: NeedKey | None = None
    """The need that gets the machine, now or once it is drained."""
    grace_s: float = 0.0
    """How long the cluster may take to empty it."""
    priority: int = 0
    """Of the need that it is for; work of higher priority is started first."""
    cost: float = 0.0
    """The effective dollars per hour by which the machine was chosen."""
    reason: str = ""


SATISFIED: Final = 0
PREEMPTING: Final = 1
TOPOLOGY_UNSATISFIABLE: Final = 2
PRIORITY_STARVED: Final = 3
NO_MATCHING_SUPPLY: Final = 4
PREEMPTION_EXHAUSTED: Final = 5

VERDICTS: Final = (
    "SATISFIED",
    "PREEMPTING",
    "TOPOLOGY_UNSATISFIABLE",
    "PRIORITY_STARVED",
    "NO_MATCHING_SUPPLY",
    "PREEMPTION_EXHAUSTED",
)
"""By number: machines that are there or on their way cover it; the rest is being drained for it;
machines would suffice, but not within one domain or evenly enough; all that match
belong to needs of the same or a higher priority; no machine matches, or too few do; all that
could be taken from needs of lower priority is not enough."""


class NeedVerdict(msgspec.Struct, frozen=True, gc=False):
    """What became of a need in a cycle, in a word and in a sentence."""

    need: NeedKey
    verdict: int
    reason: str


NONE: Final = 0
MEDIUM: Final = 1
HIGH: Final = 2
CONFIDENCE: Final = ("none", "medium", "high")
"""By number: nothing matches; machines could be created; idle machines are there."""


class Hint(msgspec.Struct, frozen=True, gc=False):
    """What a cluster could get more of, if it asked."""

    cluster: str
    fingerprint: str
    confidence: int
    price_per_hour: float
    """Of the cheapest machine that is free; 0 where none is."""


class CyclePlan(msgspec.Struct):
    """What one cycle decided."""

    actions: list[Action]
    """In the order in which they should start: acquisitions by priority, then what leaves."""
    withdrawn: list[str]
    """Machines whose planned action, not begun, is taken back."""
    shortfalls: list[NeedVerdict]
    """The needs that are not satisfied."""
    needs: int
    """How many needs there are; those without a shortfall are satisfied."""
    hints: list[Hint] = []
    """What clusters could get more of, where that changed."""


IDLE_REASON: Final = "the cheapest idle machine that matches"
SPECULATIVE_REASON: Final = "the cheapest that can be created: no idle machine matches"
SURPLUS_REASON: Final = "another need of the cluster has it to spare"
OWN_VICTIM_REASON: Final = "a need of lower priority in the same cluster had it"
VICTIM_REASON: Final = "the best to take from needs of lower priority"
RECLAIM_REASON: Final = "no need of its cluster counts on it"
DELETE_REASON: Final = "idle for longer than its kind is held"

WHY: Final = (
    "machines that are there or on their way cover it",
    "the rest is being drained from needs of lower priority",
    "machines would suffice, but not within one domain or evenly enough",
    "all machines that match belong to needs of the same or a higher priority",
    "no machine that is there, or can be had now, matches and can host the smallest unit",
    "what needs of lower priority hold is not enough",
)
"""By verdict: the reason in words."""


TOO_FEW: Final = "all machines that match, free or in use, are too few"


def in_words(
    verdict: int, missing: list[tuple[str, int]], *, some_match: bool = True, withheld: int = 0
) -> str:
    """A verdict as a sentence, with the amounts that are missing.

    `withheld`: how many places would do where their provider made no machine.
    """
    why = TOO_FEW if verdict == NO_MATCHING_SUPPLY and some_match else WHY[verdict]
    if withheld:
        if verdict == PRIORITY_STARVED:
            why = "no machine that matches is free"
        why = f"{why}; {withheld} places are tried again later: their provider made no machine"
    if not missing:
        return why
    amounts = ", ".join(f"{amount} {name}" for name, amount in missing)
    return f"short of {amounts}: {why}"

"""The states of a machine and the edges between them.

    Speculative --create--> Creating --> Idle --configure--> Configuring --> Configured
    Configured --drain--> Draining --> Idle --delete--> Deleting --> Speculative
    Creating --> Speculative                 the provider had no capacity
    Configuring --> Idle                     rolled back before the provider was asked
    Creating, Configuring, Draining, Deleting --> Failed     permanent error, or no answer
    Idle, Configured --> Failed              the machine was lost: spot interruption, hardware
    Failed --> Speculative, Idle, Configured                 its provider lists it so again

Speculative is a place in a quota: a machine that could be created but has no host. A machine that
its provider no longer lists is gone, whatever its state was; that is not an edge, since no machine
is left.
"""

from typing import Final

SPECULATIVE: Final = 0
CREATING: Final = 1
IDLE: Final = 2
CONFIGURING: Final = 3
CONFIGURED: Final = 4
DRAINING: Final = 5
DELETING: Final = 6
FAILED: Final = 7

STATES: Final = (
    "speculative",
    "creating",
    "idle",
    "configuring",
    "configured",
    "draining",
    "deleting",
    "failed",
)
"""The name of each state, by its number."""

EDGES: Final = (
    (SPECULATIVE, CREATING),
    (CREATING, IDLE),
    (IDLE, CONFIGURING),
    (CONFIGURING, CONFIGURED),
    (CONFIGURED, DRAINING),
    (DRAINING, IDLE),
    (IDLE, DELETING),
    (DELETING, SPECULATIVE),
    (CREATING, SPECULATIVE),
    (CONFIGURING, IDLE),
    (CREATING, FAILED),
    (CONFIGURING, FAILED),
    (DRAINING, FAILED),
    (DELETING, FAILED),
    (IDLE, FAILED),
    (CONFIGURED, FAILED),
    (FAILED, SPECULATIVE),
    (FAILED, IDLE),
    (FAILED, CONFIGURED),
)
"""All legal changes of state."""

_LEGAL: Final = [(one, other) in EDGES for one in range(8) for other in range(8)]

HAS_HOST: Final = (False, False, True, True, True, True, True, False)
"""By state: whether there must be a host. A failed machine may have one."""
HAS_CLUSTER: Final = (False, False, False, False, True, True, False, False)
"""By state: whether it must belong to a cluster. A configuring or failed machine may."""


def is_legal(before: int, after: int) -> bool:
    """Whether a machine may go from one state to another. Staying in a state is allowed."""
    return before == after or _LEGAL[before * 8 + after]


def next_states(state: int) -> str:
    """The states that may follow, for a message."""
    after = [STATES[other] for one, other in EDGES if one == state]
    return ", ".join(after) if after else "none"

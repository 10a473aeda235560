"""Messages between shards and their coordinator: reports one way, instructions the other.

Both are repeated until they are acknowledged. A report answers the instructions of the last reply,
and a reply has every instruction that is not answered yet, so a lost message costs only time.
"""

from typing import Final

import msgspec

from windtunnel.fleet.need import Need
from windtunnel.fleet.shape import MachineShape, Resources

MOST_WISHES: Final = 100
"""Maximum shortfalls per report: the highest priorities, then the oldest."""


class FreeMachines(msgspec.Struct, frozen=True):
    """Machines of one shape that a shard does not use."""

    shape: MachineShape
    idle: int
    quota: int


class Shortfall(msgspec.Struct, frozen=True):
    """A need that a shard cannot satisfy by itself."""

    need: Need
    missing: Resources
    unit: Resources
    """What a machine must offer to help: the largest unit without room."""
    full: tuple[str, ...]
    """The domains of its spread in which one more machine would be too many."""
    age: int
    """How many cycles it has lasted."""


class Released(msgspec.Struct, frozen=True):
    """The machines that a donor gave up: possibly fewer than asked for, or none."""

    instruction: int
    machines: tuple[str, ...]


class ShardReport(msgspec.Struct, frozen=True):
    """The report of a shard."""

    shard: str
    epoch: int = 0
    """The epoch of the sending process; one that was replaced is asked to stop."""
    free: tuple[FreeMachines, ...] = ()
    wishes: tuple[Shortfall, ...] = ()
    released: tuple[Released, ...] = ()
    taken: tuple[int, ...] = ()
    """Instructions to take machines that it has followed."""
    gone: tuple[str, ...] = ()
    """Machines that it was given and that no longer exist."""


class Release(msgspec.Struct, frozen=True):
    """To a donor: give up this many machines of a shape, of its own choice."""

    id: int
    term: int
    shape: MachineShape
    idle: int
    quota: int


class Take(msgspec.Struct, frozen=True):
    """To the receiver: these machines are yours now."""

    id: int
    term: int
    machines: tuple[str, ...]


class Retire(msgspec.Struct, frozen=True):
    """To a process: another one runs this shard; stop."""

    term: int


Instruction = Release | Take | Retire

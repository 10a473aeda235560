"""A kind of fault: its settings, their checks, its effects, and how the fuzzer draws it.

Each kind is a class in a module of `kinds/`: a section of the scenario with a `kind`, whose methods
are all that the rest of the program needs.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Final, NamedTuple, get_args

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Name
from windtunnel.settings.section import Context, Section
from windtunnel.twin.faults.context import FaultContext
from windtunnel.twin.faults.timing import FaultCondition, Length, Moment, RandomTimes, too_late
from windtunnel.twin.faults.world import World

ON: Final = True
OFF: Final = False


class Injection(NamedTuple):
    """One occurrence of a fault: what it hits, and what happens when it begins and ends."""

    subjects: list[str]
    begin: Callable[[float], None]
    end: Callable[[float], None] | None = None
    """None: it is over as soon as it has begun."""


def lasting(subjects: list[str], switch: Callable[[bool, float], None]) -> Injection:
    """An injection that is switched on when it begins, and off when it ends."""
    return Injection(
        subjects, begin=lambda now_s: switch(ON, now_s), end=lambda now_s: switch(OFF, now_s)
    )


class InjectedFault(Section):
    """An injected fault: when it begins, and how long it lasts."""

    name: Annotated[str, Name()] | None = Field(
        default=None,
        description="Names it in results, and its random stream. Default: its place in the list.",
    )
    at_s: Moment | None = Field(
        default=None, description="Once, at this time. One of `at`, `every` and `when`."
    )
    every: RandomTimes | None = Field(
        default=None, description="At random times, with exponential gaps."
    )
    when: FaultCondition | None = Field(default=None, description="When a condition holds.")

    @classmethod
    def word(cls) -> str:
        """The value of `kind` that selects this class."""
        word: str = get_args(cls.model_fields["kind"].annotation)[0]
        return word

    def name_at(self, place: int) -> str:
        """Its own name, or its position in the list."""
        return str(place) if self.name is None else self.name

    @property
    def length_s(self) -> float | None:
        """How long it lasts; None: until the end of the run, or it has no duration."""
        return None

    @property
    def is_random(self) -> bool:
        """Whether its times or its subjects are random."""
        return self.every is not None

    def prepare(self, world: World, stream: Stream) -> Injection:
        """Chooses what it hits now, with draws from `stream`; nothing changes before `begin`."""
        raise NotImplementedError

    def check(self, where: Context) -> Iterator[Fault]:
        """Reports a missing or too late time; kinds add their own checks."""
        times = {"at": self.at_s, "every": self.every, "when": self.when}
        given = [name for name, time in times.items() if time is not None]
        if len(given) != 1:
            what = f"{' and '.join(given)} are written" if given else "it has no time"
            yield where.fault((), what, "one of at, every and when")
        yield from too_late(where, "at", self.at_s)

    @classmethod
    def applies(cls, context: FaultContext) -> bool:  # noqa: ARG003 - for kinds that override it
        """Whether a scenario can have this kind of fault."""
        return True

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:  # noqa: ARG003 - as above
        """Draws settings for the fuzzer, except the time and the kind."""
        return {}


class LastingFault(InjectedFault):
    """A fault with a duration."""

    for_s: Length | None = Field(
        default=None,
        serialization_alias="for_",
        description="Duration. Default: to the end of the run.",
    )

    @property
    def length_s(self) -> float | None:
        return self.for_s

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        return {**super().draw(dice, context), "for": context.span_s(dice)}

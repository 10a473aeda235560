"""The elements of an explanation: steps, each with its time, layer and further decisions."""

from enum import StrEnum

import msgspec

from windtunnel.core.units import format_duration

REQUEST = "request"
TRAFFIC = "traffic"
GATEWAY = "gateway"
SERVER = "server"
POOL = "pool"
AUTOSCALER = "autoscaler"
GANG = "gang"
FLEET = "fleet"
MACHINE = "machine"
FAULT = "fault"

LONG_S = 600.0


class Cause(StrEnum):
    """Root causes of a request's time."""

    FAULT = "fault"
    LOST_SERVER = "lost server"
    DRAIN = "drain"
    ADMISSION = "admission"
    QUOTA = "quota"
    """A limit on replicas, or no machine available."""
    AUTOSCALER = "autoscaler delay"
    MACHINE = "machine"
    """Ordering, creating and joining a machine."""
    GANG = "gang wait"
    COLD_START = "cold start"
    QUEUE = "queue"
    """Other requests occupied the servers."""
    ENCODING = "encoding"
    LONG_PROMPT = "long prompt"
    PREFILL = "prefill"
    TRANSFER = "transfer"
    PREEMPTION = "preemption"
    DECODE = "decode"


class CauseStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact on the way to a cause; `ids` are decisions that can be explained further."""

    time: float
    layer: str
    says: str
    ids: list[str] = []
    seconds: dict[str, float] = {}
    """The exact durations that it mentions."""
    cause: str = ""
    """For a root: its kind, a `Cause`."""


class CauseChain(msgspec.Struct, frozen=True):
    """Why something took so long: steps from the effect down, and their root cause."""

    about: str
    steps: list[CauseStep]
    root: CauseStep


def took(seconds: float) -> str:
    """A duration, precise enough for comparison."""
    if 1.0 <= seconds < LONG_S:
        return f"{seconds:.1f} s"
    return format_duration(seconds)


def moment(time_s: float, *, tenths: bool = False) -> str:
    """A time of a run, to the second at least; `tenths`: to a tenth of it."""
    if time_s < 60.0:
        return f"{time_s:.1f} s".replace(".0 s", " s")
    minutes, seconds = divmod(round(time_s, 1 if tenths else None), 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [(hours, "h"), (minutes, "min"), (round(seconds, 1), "s")]
    return " ".join(f"{count:g} {unit}" for count, unit in parts if count)


def some_of(names: list[str], noun: str) -> str:
    """The first of some names, and how many more there are: `main.3 and 2 more needs`."""
    more = len(names) - 1
    return f"{names[0]} and {count(more, f'more {noun}')}" if more else names[0]


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

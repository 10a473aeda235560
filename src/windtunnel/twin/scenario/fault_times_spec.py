"""When a fault of `faults:` happens, for how long, and to which servers."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.settings.fields import Duration, Name, Number, Whole
from windtunnel.settings.limits import LONGEST_RUN, MOST_REPLICAS, MOST_REQUESTS
from windtunnel.settings.section import Section
from windtunnel.twin.faults.plan import SelectPlan, What

Moment = Annotated[float, Duration("0s", LONGEST_RUN)]
Length = Annotated[float, Duration("0s", LONGEST_RUN, above=True)]
MetricName = Literal["queue", "in_flight", "ready", "kv_use", "arrivals", "inside"]
AMOUNT = Number(0, MOST_REQUESTS)


class SelectSpec(Section):
    """Servers that a fault befalls, of those that are there then."""

    pool: Annotated[str, Name()] | None = Field(
        default=None, description="Only servers of this pool; left out: of all pools."
    )
    server: Annotated[int, Whole(0, MOST_REPLICAS - 1)] | None = Field(
        default=None,
        description="The one with this number in the pool, which must be named; left out: they "
        "are drawn. A server that starts in the place of another has a number of its own.",
    )
    count: Annotated[int | str, Whole(1, MOST_REPLICAS, word="all")] = Field(
        default=1, description="How many are drawn, or `all`; fewer if there are fewer."
    )

    def plan(self) -> SelectPlan:
        count = None if isinstance(self.count, str) else self.count
        return SelectPlan(self.pool, self.server, count)


class EverySpec(Section):
    """Times that are drawn: gaps between beginnings are exponential."""

    mean: Length = Field(description="The mean gap.")
    from_: Moment = Field(
        default=0.0, alias="from", description="Counts from here on: the first is a gap later."
    )
    until: Length | None = Field(
        default=None, description="None begins after this; left out: the end of the run."
    )
    most: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None, description="How many there may be; left out: any number."
    )


class WhenSpec(Section):
    """A condition on the run as it is, which is looked at every `interval`."""

    metric: MetricName = Field(
        description="`queue`, requests that wait at servers; `in_flight`, requests that were sent "
        "to servers; `ready`, servers that are ready; `kv_use`, the share of KV blocks in use, "
        "mean of the ready servers; `arrivals` a second, since the last look; `inside`, requests "
        "that have arrived and not ended.",
    )
    pool: Annotated[str, Name()] | None = Field(
        default=None,
        description="Of this pool; left out: of all. Not for `arrivals` and `inside`.",
    )
    above: Annotated[float, AMOUNT] | None = Field(
        default=None, description="It must be above this; this or `below`."
    )
    below: Annotated[float, AMOUNT] | None = Field(
        default=None, description="It must be below this; this or `above`."
    )
    for_: Moment = Field(
        default=0.0, alias="for", description="So long without a break; 0s: at one look."
    )
    interval: Length = Field(
        default=1.0, description="How often it is looked at; a look never keeps a run alive."
    )
    most: Annotated[int, Whole(1, MOST_REQUESTS)] = Field(
        default=1,
        description="How often the fault may begin; again only when the condition did not hold "
        "in between.",
    )


class FaultSpec(Section):
    """Something that goes wrong: when it does, and for how long."""

    name: Annotated[str, Name()] | None = Field(
        default=None,
        description="Names it in results, and its random stream; left out: its place in the list.",
    )
    at: Moment | None = Field(
        default=None, description="Once, at this time. One of `at`, `every` and `when`."
    )
    every: EverySpec | None = Field(default=None, description="At random times.")
    when: WhenSpec | None = Field(default=None, description="When a condition holds.")

    @property
    def length_s(self) -> float | None:
        """How long it lasts; None: to the end of the run, or it has no length."""
        return None

    @property
    def selected(self) -> SelectSpec | None:
        """Whom it befalls; None: a kind that befalls no server."""
        return None

    def what(self) -> What:
        """What it does, as a plan."""
        raise NotImplementedError


class LastingSpec(FaultSpec):
    """A fault that has a length."""

    for_: Length | None = Field(
        default=None, alias="for", description="How long it lasts; left out: to the end of the run."
    )

    @property
    def length_s(self) -> float | None:
        return self.for_

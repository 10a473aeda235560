"""What a person writes under `plan:`: which deployments to try, and what counts as good enough."""

from typing import Annotated

from pydantic import Field

from windtunnel.routing.settings import RouterSettings
from windtunnel.settings.fields import Flag, Name, Number, Text, Whole
from windtunnel.settings.limits import (
    HIGHEST_PRICE,
    MOST_CHOICES,
    MOST_REPLICAS,
    MOST_SEQUENCES,
    MOST_TENSOR_PARALLEL,
    MOST_TOKENS,
)
from windtunnel.settings.section import Section
from windtunnel.twin.scenario.scaling_spec import ScalingSpec

ATTAINED = 0.95
CONFIDENCE = 0.95

Switch = Annotated[bool, Flag()]
Below = Annotated[float, Number(0, 1, above=True)]
Count = Annotated[int, Whole(1, MOST_REPLICAS)]
AcceleratorName = Annotated[str, Text("the name of an accelerator, such as h200")]


class CountSpec(Section):
    """A range of numbers of servers."""

    min: Count = Field(default=1, description="The fewest that are tried.")
    max: Count = Field(description="The most that are tried.")


class PrefillDecodeSpec(Section):
    """Prompts on some servers, answers on others: how many of each."""

    prefill: CountSpec = Field(description="Servers that compute prompts.")
    decode: CountSpec = Field(description="Servers that write answers.")


class EngineChoicesSpec(Section):
    """Settings of the engine that are tried; those left out stay as the pool has them."""

    max_num_seqs: list[Annotated[int, Whole(1, MOST_SEQUENCES)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Most requests in one batch.",
    )
    max_num_batched_tokens: list[Annotated[int, Whole(1, MOST_TOKENS)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Most tokens in one step.",
    )
    memory_utilization: list[Below] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Part of the accelerator's memory that the server may take.",
    )


class PlanningSpec(Section):
    """What `windtunnel plan` chooses from. A simulation checks the section, and does without it.

    Every combination is a candidate. What is left out stays as the scenario has it, but for the
    number of servers, and but for accelerators and tensor_parallel where the step times follow
    from them.
    """

    slo: list[Annotated[str, Name()]] | None = Field(
        default=None,
        min_length=1,
        description="The classes of service whose targets must be kept. Left out: every class "
        "that has targets and requests.",
    )
    attained: Below = Field(
        default=ATTAINED,
        description="The part of the requests of each of these classes that must keep all "
        "targets of its class.",
    )
    confidence: Annotated[float, Number(0.6, 0.9999)] = Field(
        default=CONFIDENCE,
        description="How sure it must be, over all traffic that other seeds might bring.",
    )
    accelerators: list[AcceleratorName] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="What servers may run on. Left out: everything in the catalog.",
    )
    prices: dict[AcceleratorName, Annotated[float, Number(0, HIGHEST_PRICE)]] = Field(
        default_factory=dict,
        description="Dollars for an hour of one accelerator, by its name; one that is left out "
        "has the catalog's example.",
    )
    tensor_parallel: list[Annotated[int, Whole(1, MOST_TENSOR_PARALLEL)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Accelerators that one server spreads the model over. Left out: 1, 2, 4, 8.",
    )
    engine: EngineChoicesSpec = Field(
        default_factory=EngineChoicesSpec,
        description="Settings of the engine; left out: as the pool has them.",
    )
    together: Switch = Field(
        default=True,
        description="Whether servers that compute prompts and write answers are candidates.",
    )
    replicas: CountSpec | None = Field(
        default=None,
        description="How many of those. Left out: from the fewest that could carry the load to "
        "eight times as many.",
    )
    prefill_decode: PrefillDecodeSpec | None = Field(
        default=None,
        description="Servers with one role each, as further candidates. Left out: none, but for a "
        "scenario that has such pools.",
    )
    routers: list[RouterSettings] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Routers, each as under `serving.router`. Left out: the scenario's.",
    )
    fixed: Switch = Field(
        default=True,
        description="Whether a number of servers that never changes is a candidate.",
    )
    autoscalers: list[ScalingSpec] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Autoscalers, each as under `scaling`; they begin with the fewest servers that "
        "could carry the load. Left out: the scenario's own, if it has one.",
    )

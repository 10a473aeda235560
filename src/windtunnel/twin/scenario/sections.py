"""The sections of a scenario file."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from windtunnel.settings.fields import Duration, ModelName, Name, Whole, later
from windtunnel.settings.limits import LARGEST_SEED, LONGEST_RUN, MOST_FAULTS, MOST_SOURCES
from windtunnel.settings.section import Added, Section
from windtunnel.twin.infrastructure.settings import GangsSettings
from windtunnel.twin.settings import MeasureSettings, ProgressSettings, ServingSettings
from windtunnel.workload.settings.sources import SloClass, WorkloadEntry

if TYPE_CHECKING:
    from windtunnel.fleet.settings import FleetSettings
    from windtunnel.scaling.build import ScalingSection
    from windtunnel.search.settings import PlanSettings
    from windtunnel.twin.faults.kinds import AnyFault
else:  # importing all of them makes a start a tenth slower
    AnyFault = later("windtunnel.twin.faults.kinds", "AnyFault")
    FleetSettings = later("windtunnel.fleet.settings", "FleetSettings")
    PlanSettings = later("windtunnel.search.settings", "PlanSettings")
    ScalingSection = later("windtunnel.scaling.build", "ScalingSection")


class Scenario(Section):
    """Traffic, servers and targets."""

    name: Annotated[str, Name()] | None = Field(
        default=None,
        description="Names the run and its folder. Default: the file's, without extension.",
    )
    seed: Annotated[int, Whole(0, LARGEST_SEED)] = Field(default=0, description="Random seed.")
    duration_s: Annotated[float, Duration("0s", LONGEST_RUN, above=True)] | None = Field(
        default=None,
        description="When traffic and run end. Default: with the last request.",
    )
    model: ModelName | None = Field(
        default=None,
        description="The default model. Needed unless step times are `linear` and `kv_blocks` is "
        "set.",
    )
    workload: list[WorkloadEntry] = Field(
        min_length=1,
        max_length=MOST_SOURCES,
        description="The traffic: sources and traces.",
    )
    measure: Annotated[MeasureSettings, Added()] = Field(
        default_factory=MeasureSettings,
        description="Measure only requests that arrive in this window.",
    )
    slo: dict[Annotated[str, Name()], SloClass] = Field(
        default_factory=dict,
        description="Classes of service, built-in or your own, by name.",
    )
    serving: ServingSettings = Field(description="Servers, router and gateway.")
    scaling: ScalingSection | None = Field(
        default=None,
        description="The autoscaler, by `policy`. Default: pools keep their `replicas`.",
    )
    gangs: GangsSettings | None = Field(
        default=None,
        description="Gangs of pods, as manifests. Default: a replica is one pod.",
    )
    fleet: FleetSettings | None = Field(
        default=None,
        description="The machines of servers. Default: unlimited, without provisioning time.",
    )
    faults: list[AnyFault] = Field(
        default_factory=list,
        max_length=MOST_FAULTS,
        description="Faults to inject, by `kind`.",
    )
    progress: Annotated[ProgressSettings, Added()] = Field(
        default_factory=ProgressSettings,
        description="When a run without progress ends.",
    )
    plan: PlanSettings | None = Field(
        default=None,
        description="What `windtunnel plan` chooses from.",
    )

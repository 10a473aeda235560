"""What a person writes in a scenario file, as a whole."""

from typing import Annotated

from pydantic import Field

from windtunnel.fleet.settings import FleetSettings
from windtunnel.scaling.build import ScalingSection
from windtunnel.search.settings import PlanSettings
from windtunnel.settings.fields import Duration, ModelName, Name, Whole
from windtunnel.settings.limits import LARGEST_SEED, LONGEST_RUN, MOST_SOURCES
from windtunnel.settings.section import Added, Section
from windtunnel.twin.faults.kinds import Faults
from windtunnel.twin.infrastructure.settings import GangsSettings
from windtunnel.twin.settings import MeasureSettings, ProgressSettings, ServingSettings
from windtunnel.workload.settings.sources import SloClass, WorkloadEntry


class Scenario(Section):
    """A scenario: what arrives, what serves it, and what counts as good."""

    name: Annotated[str, Name()] | None = Field(
        default=None,
        description="Names the run and its folder; left out: the file's name without its ending.",
    )
    seed: Annotated[int, Whole(0, LARGEST_SEED)] = Field(
        default=0, description="Decides every random draw: same scenario, same seed, same result."
    )
    duration_s: Annotated[float, Duration("0s", LONGEST_RUN, above=True)] | None = Field(
        default=None,
        description="Traffic stops and the run ends here; "
        "left out: the run ends when every request has ended.",
    )
    model: ModelName | None = Field(
        default=None,
        description="The model that is served, as far as pools and workloads name none of their "
        "own: a catalog name, or the path of a Hugging Face "
        "config.json. "
        "A path (it ends in .json, or starts with '.' or '/') counts from the scenario's folder. "
        "Needed by every step time but `linear`, and for `kv_blocks: auto`.",
    )
    workload: list[WorkloadEntry] = Field(
        min_length=1,
        max_length=MOST_SOURCES,
        description="What arrives: any number of sources and traces.",
    )
    measure: Annotated[MeasureSettings, Added()] = Field(
        default_factory=MeasureSettings,
        description="Which requests figures are of, by the time of their arrival: a run may begin "
        "with empty servers and end while requests are still inside.",
    )
    slo: dict[Annotated[str, Name()], SloClass] = Field(
        default_factory=dict,
        description="Classes of service by name: targets for the built-in ones, "
        "and classes of your own.",
    )
    serving: ServingSettings = Field(description="What serves it.")
    scaling: ScalingSection | None = Field(
        default=None,
        description="An autoscaler that changes the number of servers; `policy` chooses how it "
        "decides. Left out: every pool keeps its `replicas`.",
    )
    gangs: GangsSettings | None = Field(
        default=None,
        description="What starts, lives and dies together, as manifests. Left out: a replica is "
        "a pod.",
    )
    fleet: FleetSettings | None = Field(
        default=None,
        description="The machines that servers are on. Left out: machines without end, and none "
        "to wait for.",
    )
    faults: Faults = Field(
        default_factory=list,
        description="What goes wrong, and when; `kind` chooses what. Left out: nothing.",
    )
    progress: Annotated[ProgressSettings, Added()] = Field(
        default_factory=ProgressSettings,
        description="How often things may repeat without progress before a run is ended.",
    )
    plan: PlanSettings | None = Field(
        default=None,
        description="What `windtunnel plan` chooses from, and what is good enough. A simulation "
        "checks it and does without it. Left out: what the scenario itself suggests.",
    )

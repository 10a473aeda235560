"""Settings of `gangs:`: manifests, priorities, and how long pods take."""

from typing import Annotated

from pydantic import Field

from windtunnel.settings.fields import Text, Whole
from windtunnel.settings.section import Section
from windtunnel.twin.kubernetes.times import PodTimes

MOST_FILES = 100
HIGHEST_PRIORITY = 1_000_000

Priority = Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)]


class GangsSettings(Section):
    """What starts, lives and dies together: PodCliqueSets as they are written for a cluster."""

    manifests: list[Annotated[str, Text("the path of a file of manifests")]] = Field(
        min_length=1,
        max_length=MOST_FILES,
        description="Files of manifests; a path counts from the scenario's folder. A pool names "
        "with `clique` what its replicas are.",
    )
    priorities: dict[Annotated[str, Text("the name of a priority class")], Priority] = Field(
        default_factory=dict,
        description="The values of the priority classes that manifests name; others count 0.",
    )
    times: PodTimes = Field(
        default_factory=PodTimes,
        description="How long pods take for what they do. `serving.startup`, where it is written, "
        "is the time of `readiness`.",
    )

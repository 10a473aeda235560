"""The settings of `gangs:`, manifests, priorities and pod durations; and the parsed manifests."""

from typing import Annotated

import msgspec
from pydantic import Field

from windtunnel.settings.fields import Text, Whole
from windtunnel.settings.section import Section
from windtunnel.twin.kubernetes.times import PodTimes

MAIN = "main"
"""The cluster of pools that do not name one."""
MOST_FILES = 100
HIGHEST_PRIORITY = 1_000_000

Priority = Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)]


class GangsSettings(Section):
    """Gangs: PodCliqueSets as manifests."""

    manifests: list[Annotated[str, Text("the path of a file of manifests")]] = Field(
        min_length=1,
        max_length=MOST_FILES,
        description="Files of manifests. A pool's `clique` says which part it is.",
    )
    priorities: dict[Annotated[str, Text("the name of a priority class")], Priority] = Field(
        default_factory=dict,
        description="Values of the manifests' priority classes; 0 for others.",
    )
    times: PodTimes = Field(
        default_factory=PodTimes,
        description="Durations of pod operations. `serving.startup`, if given, replaces "
        "`readiness`.",
    )


QUICK = PodTimes(image_pull=0.0, startup=0.0, readiness=0.0, ending=0.0)
"""Pod durations without `gangs`: a server takes the time of `serving.startup` and no other."""


class BackingObject(msgspec.Struct, frozen=True):
    """The object of a manifest whose replicas are the replicas of a pool."""

    pool: str
    set_name: str
    kind: str
    """PodClique, PodCliqueScalingGroup or PodCliqueSet."""
    name: str
    """The role of a clique, the short name of a group, or a set's own name."""


class GangManifests(msgspec.Struct, frozen=True):
    """The content of the `gangs.manifests` files."""

    files: tuple[tuple[str, str], ...] = ()
    """The path and text of each file."""
    backings: tuple[BackingObject, ...] = ()
    """The backing objects; a pool without one has a pod per replica."""

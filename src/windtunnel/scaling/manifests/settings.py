"""The `scaling` section of a scenario that runs autoscaling manifests unchanged."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from windtunnel.core.errors import InputError, nearest
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.metrics import metric
from windtunnel.scaling.policies.keda.cron import begin_of
from windtunnel.scaling.policies.keda.policy import BEGINS, FIRST_DAY, Begins
from windtunnel.scaling.settings import Period, ScaledPool, ScalerTiming, refusals
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Name, Text
from windtunnel.settings.section import Added, Context

if TYPE_CHECKING:
    from windtunnel.scaling.manifests.load import ReadManifests

MOST_FILES = 100


class ManifestSettings(ScalerTiming):
    """Autoscalers as manifests.

    Kinds: Kthena's AutoscalingPolicy and AutoscalingPolicyBinding, HorizontalPodAutoscaler, KEDA's
    ScaledObject, HTTPScaledObject and InterceptorRoute, AIBrix' PodAutoscaler, llm-d's
    VariantAutoscaling, Knative's Service. Pools that no manifest targets keep their size.
    """

    manifests: list[Annotated[str, Text("the path of a file of manifests")]] = Field(
        min_length=1,
        max_length=MOST_FILES,
        description="Files of manifests.",
    )
    targets: dict[str, Annotated[str, Name()]] = Field(
        default_factory=dict,
        description="Maps `TARGET` or `TARGET/ROLE` of a manifest to a pool, if names differ.",
    )
    metrics: Annotated[dict[str, Annotated[str, Text("a metric")]], Added()] = Field(
        default_factory=dict,
        description="Maps metrics, resources (`cpu`), KEDA triggers or names in queries to known "
        "metrics.",
    )
    begins: Annotated[Begins, Added()] = Field(default=FIRST_DAY, description=BEGINS)
    interval_s: Period = Field(
        default=15.0,
        description="Time between decisions. Default: that of the manifests' controllers (Kthena, "
        "HPA, KEDA and WVA 15s, AIBrix 10s, Knative 2s).",
    )

    def read_files(self, pools: Sequence[ScaledPool], folder: Path) -> "ReadManifests":
        """Reads the policies of the manifests; raises an error for faults in the files."""
        # The manifest kinds are a hundred classes, which take 0.15 s to create.
        from windtunnel.scaling.manifests.load import read_manifests

        named = ScenarioNames([pool.name for pool in pools], self.targets, self.metrics)
        read = read_manifests([folder / path for path in self.manifests], named)
        mine = {"wake": self.wake, "begins": self.begins}
        assignments = []
        for one in read.assignments:
            own = {key: mine[key] for key in mine if key in type(one.policy).model_fields}
            assignments.append(one._replace(policy=one.policy.model_copy(update=own)))
        return read._replace(assignments=assignments)

    def faults_of_files(self, folder: Path) -> list[InputError]:
        """What is wrong with each file by itself, whatever pools there are."""
        from windtunnel.scaling.manifests.load import faults_of_files

        return faults_of_files([folder / path for path in self.manifests])

    def check(self, where: Context) -> Iterator[Fault]:
        """Yields faults, such as pools that do not exist."""
        yield from super().check(where)
        yield from refusals(where, "begins", begin_of, self.begins)
        names = [pool.name for pool in where.root.serving.pools]
        for target, pool in self.targets.items():
            if pool not in names:
                what = f"there is no pool {pool!r}"
                yield where.fault(("targets", target), what, ", ".join(names), nearest(pool, names))
        for name, ours in self.metrics.items():
            yield from refusals(where, ("metrics", name), metric, ours)

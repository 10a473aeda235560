"""A checked scenario: its sections, and the content of the files that they name."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from windtunnel.admission.gateway.settings import GatewaySettings
from windtunnel.routing.settings import RouterSettings
from windtunnel.settings.section import plain_data
from windtunnel.twin.infrastructure.settings import QUICK, GangManifests
from windtunnel.twin.kubernetes.times import NORMAL, PodDelay, PodTimes
from windtunnel.twin.results.recorder import MeasurementWindow
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.settings import PoolSettings, ServingSettings
from windtunnel.workload.settings.sources import SloClass, SourceSettings, WorkloadEntry, models_of

if TYPE_CHECKING:
    from windtunnel.scaling.build import ScalingSetup
    from windtunnel.twin.faults.kind import InjectedFault

SECTION_NAMES: Final = {"slo": "slos", "gangs": "infrastructure", "plan": "planning"}
"""Sections that have a different name in the data of a plan."""


class ScenarioPlan(msgspec.Struct, frozen=True):
    """A checked scenario with every default filled in."""

    sections: Scenario
    """The file's sections, with resolved paths, a name, a model for every workload entry and pool,
    and a priority for every class of service."""
    sha256: str
    """Digest of all values of the file and the overrides, whatever the file's name."""
    folder: Path
    """The folder of the file, to which its paths are relative."""
    scaling: "ScalingSetup | None" = None
    """None when the scenario has no autoscaler."""
    manifests: GangManifests = GangManifests()
    router_place: str | None = None
    """Where the file names a custom policy, for errors during a run; None for a built-in one."""
    notes: tuple[str, ...] = ()
    """Notes about settings that have no effect, one sentence each."""
    overrides: tuple[str, ...] = ()
    """The overrides as `PATH=VALUE`; the seed is not among them."""

    def __repr__(self) -> str:
        pools = ", ".join(pool.name for pool in self.sections.serving.pools)
        sources = ", ".join(entry.name or "trace" for entry in self.workload)
        return f"<scenario {self.name}, seed {self.seed}: workload {sources}; pools {pools}>"

    @property
    def name(self) -> str:
        assert self.sections.name is not None
        return self.sections.name

    @property
    def seed(self) -> int:
        return self.sections.seed

    @property
    def duration_s(self) -> float | None:
        """None when the run ends with its last request."""
        return self.sections.duration_s

    @property
    def window(self) -> MeasurementWindow | None:
        """None when all requests are measured."""
        measure = self.sections.measure
        if measure.from_s == 0.0 and measure.to_s is None:
            return None
        return MeasurementWindow(measure.from_s, math.inf if measure.to_s is None else measure.to_s)

    @property
    def model(self) -> str | None:
        return self.sections.model

    @property
    def workload(self) -> Sequence[WorkloadEntry]:
        return self.sections.workload

    @property
    def slos(self) -> dict[str, SloClass]:
        """Every class that requests may have, built-in and the file's own."""
        return self.sections.slo

    @property
    def serving(self) -> ServingSettings:
        return self.sections.serving

    @property
    def faults(self) -> "Sequence[InjectedFault]":
        return self.sections.faults

    @property
    def pools(self) -> Sequence[PoolSettings]:
        return self.serving.pools

    @property
    def router(self) -> RouterSettings:
        return self.serving.router

    @property
    def gateway(self) -> GatewaySettings:
        return self.serving.admission

    def data(self) -> dict[str, Any]:
        """Every setting in force, with units in the keys; independent of the file's location."""
        values: dict[str, Any] = dict(self.sections)
        values |= {"scaling": self.scaling, "gangs": self._infrastructure()}
        del values["fleet"]
        named = {SECTION_NAMES.get(name, name): value for name, value in values.items()}
        data: dict[str, Any] = msgspec.to_builtins(
            {**named, "sha256": self.sha256}, enc_hook=plain_data
        )
        return data

    def _infrastructure(self) -> dict[str, Any] | None:
        """The settings of `gangs` and `fleet` in force."""
        if not self.on_machines:
            return None
        times = self.pod_times.model_dump(mode="json", exclude_none=True)
        return {
            "files": self.manifests.files,
            "backings": self.manifests.backings,
            "priorities": self.priority_classes,
            "pool_priorities": self.pool_priorities,
            "times": times | self.pod_times.delays(self.pod_load),
            "fleet": self.sections.fleet,
        }

    def changed(self, **sections: Any) -> "ScenarioPlan":
        """A copy with other values of some sections, unchecked."""
        assert sections.keys() <= Scenario.model_fields.keys(), sections.keys()
        return msgspec.structs.replace(self, sections=self.sections.model_copy(update=sections))

    def with_pools(self, pools: Sequence[PoolSettings]) -> "ScenarioPlan":
        return self.changed(serving=self.serving.model_copy(update={"pools": list(pools)}))

    @property
    def on_machines(self) -> bool:
        """Whether servers are pods on machines; otherwise they start and stop by themselves."""
        return self.sections.fleet is not None or self.sections.gangs is not None

    @property
    def priority_classes(self) -> dict[str, int]:
        """The values of the priority classes of pods."""
        return {} if self.sections.gangs is None else self.sections.gangs.priorities

    @property
    def pool_priorities(self) -> dict[str, int]:
        """The priorities of pools that have one."""
        return {pool.name: pool.priority for pool in self.pools if pool.priority is not None}

    @property
    def pod_times(self) -> PodTimes:
        return QUICK if self.sections.gangs is None else self.sections.gangs.times

    @property
    def pod_load(self) -> PodDelay | None:
        """How long a pod loads, if not for the `readiness` of the pod times."""
        load = None if self.serving.startup is None else self.serving.startup.load
        return None if load is None else PodDelay(load.mean_s, NORMAL, load.stddev_s)

    @property
    def priorities(self) -> dict[str, int]:
        """The priority of every class of service."""
        return {name: slo.priority or 0 for name, slo in self.slos.items()}

    @property
    def models(self) -> tuple[str | None, ...]:
        """The served models, in the order of the pools."""
        return tuple(dict.fromkeys(pool.model for pool in self.pools))

    @property
    def model_names(self) -> tuple[str, ...]:
        """Display names of the models; a model without a name is named after the scenario."""
        return tuple(model or self.name for model in self.models)

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters of servers, in the order of the pools."""
        return tuple(dict.fromkeys(pool.cluster for pool in self.pools))

    @property
    def sources(self) -> tuple[SourceSettings, ...]:
        """The synthetic sources of the workload."""
        return tuple(entry for entry in self.workload if isinstance(entry, SourceSettings))

    @property
    def adapter_slots(self) -> tuple[bool, ...]:
        """For each workload entry, whether every server that may serve it has LoRA slots."""
        return tuple(
            all(pool.engine.lora is not None for pool in self.pools if pool.model in models)
            for models in map(models_of, self.workload)
        )

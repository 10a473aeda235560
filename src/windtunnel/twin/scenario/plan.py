"""What a scenario comes to: frozen values, every default filled in, that the simulation runs on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.admission.gateway.settings import GatewaySettings
from windtunnel.routing.settings import RouterSettings
from windtunnel.scaling.build import ScalingSetup
from windtunnel.search.settings import PlanSettings
from windtunnel.settings.section import plain_data
from windtunnel.twin.faults.kind import InjectedFault
from windtunnel.twin.infrastructure.plan import InfrastructurePlan
from windtunnel.twin.settings import PoolSettings, ServingSettings
from windtunnel.workload.settings.sources import SloClass, SourceSettings, WorkloadEntry, models_of


class ScenarioPlan(msgspec.Struct, frozen=True):
    """A whole scenario."""

    name: str
    seed: int
    duration_s: float | None
    """None: the run ends when every request has ended."""
    model: str | None
    workload: Sequence[WorkloadEntry]
    """Every entry with its model."""
    slos: dict[str, SloClass]
    """Every class that requests may have, built-in and the file's own; each has a priority."""
    serving: ServingSettings
    """Every pool with its model and, where its step times bring some, their engine options."""
    sha256: str
    """Digest of everything the file and the overrides say, whatever the file is called."""
    folder: Path
    """Where the file is: paths in it count from there."""
    scaling: ScalingSetup | None = None
    """None: the servers are those that a run begins with."""
    infrastructure: InfrastructurePlan | None = None
    """None: servers stand on nothing."""
    faults: tuple[InjectedFault, ...] = ()
    planning: PlanSettings | None = None
    """What `windtunnel plan` chooses from; a run does without it."""

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
        """Every setting in force, units in the keys; where the file is does not count."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=plain_data)
        del values["folder"]
        if self.infrastructure is not None:
            infrastructure = values["infrastructure"]
            del infrastructure["load"]
            delays = self.infrastructure.times.delays(self.infrastructure.load)
            times = self.infrastructure.times.model_dump(mode="json", exclude_none=True)
            infrastructure["times"] = times | msgspec.to_builtins(delays)
        return values

    def with_pools(self, pools: Sequence[PoolSettings]) -> "ScenarioPlan":
        serving = self.serving.model_copy(update={"pools": list(pools)})
        return msgspec.structs.replace(self, serving=serving)

    @property
    def priorities(self) -> dict[str, int]:
        """Of every class of service."""
        return {name: slo.priority or 0 for name, slo in self.slos.items()}

    @property
    def models(self) -> tuple[str | None, ...]:
        """What is served, in the order of the pools."""
        return tuple(dict.fromkeys(pool.model for pool in self.pools))

    @property
    def model_names(self) -> tuple[str, ...]:
        """The same as people know them; a model without a name is called after the scenario."""
        return tuple(model or self.name for model in self.models)

    @property
    def clusters(self) -> tuple[str, ...]:
        """Where servers are, in the order of the pools."""
        return tuple(dict.fromkeys(pool.cluster for pool in self.pools))

    @property
    def sources(self) -> tuple[SourceSettings, ...]:
        """The synthetic ones."""
        return tuple(entry for entry in self.workload if isinstance(entry, SourceSettings))

    @property
    def adapter_slots(self) -> tuple[bool, ...]:
        """By entry of the workload: whether every server that may serve it has LoRA slots."""
        return tuple(
            all(pool.engine.lora is not None for pool in self.pools if pool.model in models)
            for models in map(models_of, self.workload)
        )

"""The policies that a scenario may choose, and the scaler built from its `scaling` section."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, get_args

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.scaling.manifests.fields import Assignment
from windtunnel.scaling.manifests.settings import ManifestSettings
from windtunnel.scaling.policies.aibrix import AibrixSettings
from windtunnel.scaling.policies.dynamo import DynamoSettings
from windtunnel.scaling.policies.foresight import ForesightSettings
from windtunnel.scaling.policies.hpa import HpaSettings
from windtunnel.scaling.policies.keda.policy import KedaSettings
from windtunnel.scaling.policies.knative import KnativeSettings
from windtunnel.scaling.policies.kthena.policy import (
    KthenaDisaggregatedSettings,
    KthenaHeterogeneousSettings,
    KthenaHomogeneousSettings,
)
from windtunnel.scaling.policies.predictive.analyzer import PredictiveSettings
from windtunnel.scaling.policies.saturation.policy import (
    BlisSettings,
    KvSaturationSettings,
    WvaSettings,
)
from windtunnel.scaling.policies.spare_capacity import SpareCapacitySettings
from windtunnel.scaling.policy import ModelPolicy, PolicyByPool
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.settings import (
    PolicySettings,
    PoolBounds,
    ScaledPool,
    ScalerTiming,
    nobody_serves,
)
from windtunnel.settings.fields import by_one_key, chosen_by, variant

POLICIES: tuple[type[PolicySettings], ...] = (
    PredictiveSettings,
    KvSaturationSettings,
    WvaSettings,
    SpareCapacitySettings,
    BlisSettings,
    KthenaHomogeneousSettings,
    KthenaHeterogeneousSettings,
    KthenaDisaggregatedSettings,
    HpaSettings,
    KedaSettings,
    KnativeSettings,
    AibrixSettings,
    DynamoSettings,
    ForesightSettings,
)
"""The policies to choose from with `scaling.policy`; each class has the word that selects it."""


NOT_LIVE: Final = {
    "foresight": "cannot run on a cluster: its schedule of the future counts from the start of a "
    "simulation"
}
"""Why policies are for simulations only."""


def word_of(policy: type[PolicySettings]) -> str:
    """The word that selects a policy."""
    word: str = get_args(policy.model_fields["policy"].annotation)[0]
    return word


LIVE_POLICIES: Final = tuple(one for one in POLICIES if word_of(one) not in NOT_LIVE)
"""The policies that can run on a cluster."""


if TYPE_CHECKING:
    PolicySection = PolicySettings
    LivePolicySection = PolicySettings
    ScalingSection = ManifestSettings | PolicySettings
else:
    PolicySection = Annotated[
        reduce(or_, [Annotated[one, variant(word_of(one))] for one in POLICIES]),
        chosen_by("policy", *map(word_of, POLICIES)),
    ]
    LivePolicySection = Annotated[
        reduce(or_, [Annotated[one, variant(word_of(one))] for one in LIVE_POLICIES]),
        chosen_by("policy", *map(word_of, LIVE_POLICIES), refused=NOT_LIVE),
    ]
    ScalingSection = Annotated[
        Annotated[ManifestSettings, variant("manifests")]
        | Annotated[PolicySection, variant("policy")],
        by_one_key("policy", "manifests"),
    ]


class ScalingSetup(msgspec.Struct, frozen=True):
    """The `scaling` section of a scenario, resolved with its pools and its manifests."""

    timing: ScalerTiming
    """The section; without an interval of its own it has that of the manifests."""
    policies: tuple[Assignment, ...]
    """One without a source scales all pools; among several, pools without a policy keep their size.
    """
    bounds: dict[str, PoolBounds]
    """By pool; every pool has an entry."""
    accelerators: dict[str, int] | None = None
    """Accelerators for all pools, by kind; a kind that is not listed is unlimited."""
    remarks: tuple[str, ...] = ()
    """Notes about what was written but is not used."""

    def notes(self) -> list[str]:
        """Notes about what is allowed but may surprise, shown once per run."""
        notes = list(self.remarks)
        for source, policy in self.policies:
            key, window_s = policy.window_down()
            if source:  # manifests have their own name for it
                key = f"the window for fewer replicas of {source}"
            note = f"{key} is 0s: servers are removed at the first tick that allows it"
            if window_s == 0 and note not in notes:
                notes.append(note)
        return notes


def setup_of(section: ScalingSection, pools: Sequence[ScaledPool], folder: Path) -> ScalingSetup:
    """Resolves a section without faults; manifests are read from `folder`."""
    if isinstance(section, PolicySettings):
        bounds = {pool.name: section.bounds_of(pool.name) for pool in pools}
        accelerators = section.accelerators or None
        return ScalingSetup(section, (Assignment("", section),), bounds, accelerators)
    read = section.read_files(pools, folder)
    bounds = {pool.name: PoolBounds(min=pool.replicas, max=pool.replicas) for pool in pools}
    for assignment in read.assignments:
        bounds |= assignment.policy.pools
    does = nobody_serves(pools, bounds)
    if does:
        hint = "give one of them a maximum of at least 1"
        raise InputError(does, where="scaling.manifests", hint=hint)
    timing = section
    if not section.written("interval_s"):
        interval_s = min(assignment.policy.interval_s for assignment in read.assignments)
        timing = section.model_copy(update={"interval_s": interval_s})
    return ScalingSetup(timing, tuple(read.assignments), bounds, remarks=tuple(read.notes))


def build_scaler(setup: ScalingSetup, models: Sequence[str]) -> Scaler:
    """Builds a scaler before its first tick, with one policy shared by all models."""
    return Scaler(dict.fromkeys(models, _policy(setup)), setup.timing.oldest_s)


def _policy(setup: ScalingSetup) -> ModelPolicy:
    if [one.source for one in setup.policies] == [""]:
        return setup.policies[0].policy.build()
    return PolicyByPool(
        {source: policy.build(list(policy.pools)) for source, policy in setup.policies}
    )

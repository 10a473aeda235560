"""Sections of scaling as a scenario has them, beside pools that are written here."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from windtunnel.scaling.build import PolicySection, ScalingSetup, setup_of
from windtunnel.scaling.manifests.settings import ManifestSettings
from windtunnel.scaling.settings import PolicySettings
from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.section import Context, faults_of

SECTION: TypeAdapter[PolicySettings] = TypeAdapter(PolicySection)


class ServingPool(NamedTuple):
    """A pool of a scenario, as far as scaling asks."""

    name: str
    replicas: int = 1
    role: str = "both"
    accelerator: str | None = None
    gpus: int = 1
    model: str | None = None


def section(**written: Any) -> PolicySettings:
    return SECTION.validate_python(written, by_alias=True, by_name=False)


def setup(pools: Sequence[ServingPool], /, **written: Any) -> ScalingSetup:
    return setup_of(section(**written), pools, Path())


def faults_beside(
    pools: Sequence[ServingPool], scaling: PolicySettings | ManifestSettings
) -> list[Fault]:
    root = SimpleNamespace(serving=SimpleNamespace(pools=pools), model=None)
    return list(faults_of(scaling, Context(root, Path(), ("scaling",))))


def told(pools: Sequence[ServingPool], /, **written: Any) -> list[tuple[str, str]]:
    """Place and sentence of each fault."""
    found = faults_beside(pools, section(**written))
    return [(dotted(fault.path), fault.what) for fault in found]

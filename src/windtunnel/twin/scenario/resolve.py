"""Turns a checked scenario into the plan that the simulation runs on."""

import hashlib
import json
import re
from pathlib import Path

from windtunnel.settings.fields import LONGEST_NAME
from windtunnel.settings.section import digest_data, located
from windtunnel.twin.infrastructure.settings import GangManifests
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.workload.settings.sources import BUILT_IN_PRIORITIES, SloClass, priority_of
from windtunnel.workload.traces.reading import at_its_rate


def resolve(spec: Scenario, file: Path) -> ScenarioPlan:
    """Resolves a scenario without faults; its paths are relative to the file's folder."""
    folder = file.parent
    slos = _slos(spec)
    written, spec = spec, located(spec, folder)
    scaling, manifests = spec.scaling, GangManifests()
    if spec.gangs is not None:
        from windtunnel.twin.scenario.infrastructure import gang_manifests

        manifests = gang_manifests(spec, file)
    setup = None
    if scaling is not None:
        from windtunnel.scaling.build import setup_of

        setup = setup_of(scaling, spec.serving.pools, folder)
    pools = [pool.with_defaults_of(spec.model) for pool in spec.serving.pools]
    serving = spec.serving.model_copy(update={"pools": pools, "disaggregation": spec.serving.split})
    workload = [
        at_its_rate(entry.model_copy(update={"model": entry.model or spec.model}))
        for entry in spec.workload
    ]
    filled = {
        "name": spec.name or _name_of(file),
        "workload": workload,
        "slo": slos,
        "serving": serving,
    }
    return ScenarioPlan(
        sections=spec.model_copy(update=filled),
        sha256=_digest(written, slos, folder),
        folder=folder,
        scaling=setup,
        manifests=manifests,
    )


def _digest(spec: Scenario, slos: dict[str, SloClass], folder: Path) -> str:
    """The digest of the values in force, independent of how they were written or set.

    The choices of `plan` are excluded: no run depends on them. The bytes of manifests are included:
    they matter as much as the scenario.
    """
    values = digest_data(spec)
    del values["plan"]
    for section in ("scaling", "gangs"):
        named = getattr(getattr(spec, section), "manifests", ())
        if named:
            values[section]["manifests"] = [
                [path, hashlib.sha256((folder / path).read_bytes()).hexdigest()] for path in named
            ]
    values["slo"] = {
        name: [slo.priority, slo.ttft_s, slo.tpot_s, slo.e2e_s] for name, slo in slos.items()
    }
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _name_of(file: Path) -> str:
    """The file's name without its extension, as a valid scenario name."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).lstrip("._-")
    return word[:LONGEST_NAME] or "scenario"


def _slos(spec: Scenario) -> dict[str, SloClass]:
    slos = {}
    for name in sorted({*BUILT_IN_PRIORITIES, *spec.slo}):
        slo = spec.slo.get(name, SloClass())
        slos[name] = slo.model_copy(update={"priority": priority_of(name, slo)})
    return slos

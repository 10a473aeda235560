"""Several models and clusters: which each pool and workload means, and what is wrong with that."""

from collections.abc import Iterator

from windtunnel.core.errors import nearest
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.workload_spec import ReplaySpec, WorkloadEntry
from windtunnel.twin.settings import PoolSettings


def asked_by(entry: WorkloadEntry, spec: Scenario) -> list[str | None]:
    """The models that requests of an entry may be for; None: the one without a name."""
    asked = [entry.model or spec.model]
    if isinstance(entry, ReplaySpec):
        asked += (entry.trace.models or {}).values()
    return list(dict.fromkeys(asked))


def pools_for(entry: WorkloadEntry, spec: Scenario) -> list[tuple[int, PoolSettings]]:
    """The pools that serve requests of an entry, each with its number."""
    asked = asked_by(entry, spec)
    pools = enumerate(spec.serving.pools)
    return [(number, pool) for number, pool in pools if (pool.model or spec.model) in asked]


def model_faults(spec: Scenario) -> Iterator[Fault]:
    served = list(dict.fromkeys(pool.model or spec.model for pool in spec.serving.pools))
    for index, entry in enumerate(spec.workload):
        path: KeyPath = ("workload", index)
        yield from _unserved((*path, "model"), entry.model or spec.model, served)
        if isinstance(entry, ReplaySpec):
            for name, model in (entry.trace.models or {}).items():
                yield from _unserved((*path, "trace", "models", name), model, served)
    if spec.model is not None and _nobody_means_it(spec):
        what = "every pool and every entry of the workload has a model of its own"
        yield Fault(("model",), what, hint="leave it out")


def _unserved(path: KeyPath, model: str | None, served: list[str | None]) -> Iterator[Fault]:
    if model in served:
        return
    names = [name for name in served if name is not None]
    because: tuple[KeyPath, ...] = (("serving", "pools"), ("model",))
    if model is None:
        what = "missing, and every pool has a model of its own"
        yield Fault(path, what, ", ".join(names), because_of=because)
    else:
        what = f"no pool serves {model!r}"
        allowed = ", ".join(names) or "none: no pool has a model"
        yield Fault(path, what, allowed, nearest(model, names), because)


def _nobody_means_it(spec: Scenario) -> bool:
    return all(pool.model is not None for pool in spec.serving.pools) and all(
        entry.model is not None for entry in spec.workload
    )

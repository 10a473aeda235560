"""LoRA adapters: what the sections mean, and what is wrong with them."""

from collections.abc import Iterator

from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault, dotted
from windtunnel.twin.scenario.lora_spec import AdaptersSpec
from windtunnel.twin.scenario.models import pools_for
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.workload_spec import ReplaySpec, SourceSpec


def adapters_plan(adapters: AdaptersSpec | None) -> tuple[tuple[str, float], ...]:
    """Names and weights, however they were written."""
    if adapters is None:
        return ()
    if adapters.weights is not None:
        return tuple(adapters.weights.items())
    assert adapters.count is not None
    skew = adapters.skew or 0.0
    return tuple((f"adapter-{number}", (number + 1.0) ** -skew) for number in range(adapters.count))


def lora_faults(spec: Scenario) -> Iterator[Fault]:
    pools = spec.serving.pools
    askers: list[list[KeyPath]] = [[] for _ in pools]  # by pool: who asks its servers for some
    traces: set[int] = set()  # pools that a trace may ask, which is known when it is read
    slotted: set[int] = set()  # and where another pool for the same requests has slots
    for index, source in enumerate(spec.workload):
        asked_pools = pools_for(source, spec)
        if isinstance(source, SourceSpec) and source.adapters is not None:
            path = ("workload", index, "adapters")
            for number, _ in asked_pools:
                askers[number].append(path)
            yield from _adapters_faults(path, source.adapters)
        elif isinstance(source, ReplaySpec):
            traces.update(number for number, _ in asked_pools)
            if any(pool.engine.lora is not None for _, pool in asked_pools):
                slotted.update(number for number, _ in asked_pools)
    for index, pool in enumerate(pools):
        section = ("serving", "pools", index, "engine", "lora")
        asking = askers[index]
        if pool.engine.lora is not None:
            if not asking and index not in traces:
                what = "no source asks for adapters, so that it would change nothing"
                yield Fault(section, what, hint="give a source of the workload `adapters`")
        elif asking or index in slotted:
            who = dotted(asking[0]) if asking else "a trace perhaps"
            what = f"missing, but {who} asks for adapters"
            hint = "every pool of its model must have slots for them"
            yield Fault(section, what, hint=hint, because_of=tuple(asking))


def _adapters_faults(path: KeyPath, adapters: AdaptersSpec) -> Iterator[Fault]:
    if (adapters.weights is None) == (adapters.count is None):
        given = adapters.weights is not None
        what = "both weights and count are given" if given else "there is neither weights nor count"
        yield Fault(path, what, "either weights or count")
    if adapters.weights is not None and not adapters.weights:
        yield Fault((*path, "weights"), "there is no adapter", "at least one")
    if adapters.skew is not None and adapters.count is None:
        what = "weights say how often each is asked for"
        yield Fault((*path, "skew"), what, "only with count")

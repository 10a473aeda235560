"""Planning: what the section `plan` means, and what is wrong with it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from windtunnel.core.errors import InputError, nearest
from windtunnel.models.accelerators import ACCELERATORS, resolve_accelerator
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.twin.scenario.plan import CountsPlan, PlanningPlan
from windtunnel.twin.scenario.planning_spec import CountSpec, PlanningSpec
from windtunnel.twin.scenario.scaler_spec import BoundsSpec, ScalerSpec
from windtunnel.twin.scenario.scaling import scaling_faults
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.serving_spec import LinearStepTime, PoolSpec, TableStepTime
from windtunnel.twin.scenario.workload_rules import BUILT_IN_PRIORITIES
from windtunnel.twin.scenario.workload_spec import SloSpec

SECTION: KeyPath = ("plan",)
NOBODYS = "leave it out"


def planning_plan(spec: PlanningSpec | None) -> PlanningPlan | None:
    """The plan of a section without faults."""
    if spec is None:
        return None
    engine = spec.engine
    split = spec.prefill_decode
    return PlanningPlan(
        slo=None if spec.slo is None else tuple(spec.slo),
        attained=spec.attained,
        confidence=spec.confidence,
        accelerators=_several(spec.accelerators),
        prices={resolve_accelerator(name).name: price for name, price in spec.prices.items()},
        tensor_parallel=_several(spec.tensor_parallel),
        max_num_seqs=_several(engine.max_num_seqs),
        max_num_batched_tokens=_several(engine.max_num_batched_tokens),
        memory_utilization=_several(engine.memory_utilization),
        together=spec.together,
        replicas=_counts(spec.replicas),
        prefill=None if split is None else _counts(split.prefill),
        decode=None if split is None else _counts(split.decode),
        routers=_written(spec.routers),
        fixed=spec.fixed,
        autoscalers=_written(spec.autoscalers),
    )


def _several(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _counts(spec: CountSpec | None) -> CountsPlan | None:
    return None if spec is None else CountsPlan(spec.min, spec.max)


def _written(sections: Sequence[BaseModel] | None) -> tuple[str, ...] | None:
    """Sections as somebody could write them into a scenario."""
    if sections is None:
        return None
    return tuple(
        json.dumps(section.model_dump(mode="json", by_alias=True, exclude_unset=True))
        for section in sections
    )


def choice_of(data: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Accelerators and prices of the section as it is written, before anything is checked."""
    section = data.get("plan")
    if not isinstance(section, dict):
        return None, {}
    prices = section.get("prices")
    chosen = section.get("accelerators")
    own = list(chosen) if isinstance(chosen, list) else chosen
    return own, dict(prices) if isinstance(prices, dict) else {}


def drop_unused_prices(
    data: dict[str, Any], written: tuple[Any, dict[str, Any]], sets: Sequence[str]
) -> None:
    """Takes out prices of the file that nobody asks for once an override has changed the choice.

    A price that fitted nothing in the file, or that an override gives, stays, and is a fault.
    """
    (was, listed), (chosen, prices) = written, choice_of(data)
    paths = [text.partition("=")[0].strip() for text in sets]
    if chosen == was or not isinstance(chosen, list) or {"plan", "plan.prices"} & {*paths}:
        return
    before, after = _named(was), _named(chosen)
    for name in prices:
        known = _named([name])[0]
        fitted = name in listed and known in (before or ACCELERATORS)
        if fitted and known not in after and f"plan.prices.{name}" not in paths:
            del data["plan"]["prices"][name]


def _named(names: Any) -> list[Any]:
    """Accelerators by the names of the catalog; what it does not know as it is."""
    found = []
    for name in names if isinstance(names, list) else ():
        try:
            found.append(resolve_accelerator(name).name if isinstance(name, str) else name)
        except InputError:
            found.append(name)
    return found


def planning_faults(scenario: Scenario) -> Iterator[Fault]:
    """Names of nobody, ranges that contradict each other, and a choice between nothing."""
    spec, serving = scenario.plan, scenario.serving
    if spec is None:
        return
    yield from _class_faults(spec, scenario.slo)
    yield from _hardware_faults(spec, serving.pools)
    yield from _range_faults(spec)
    yield from _repeated(spec)
    yield from _autoscaler_faults(spec, serving.pools)


def _class_faults(spec: PlanningSpec, slos: dict[str, SloSpec]) -> Iterator[Fault]:
    known = [*BUILT_IN_PRIORITIES, *(name for name in slos if name not in BUILT_IN_PRIORITIES)]
    for index, name in enumerate(spec.slo or ()):
        path = (*SECTION, "slo", index)
        slo = slos.get(name, SloSpec())
        if name not in known:
            what = f"{name!r} is not a class of service"
            yield Fault(path, what, ", ".join(known), nearest(name, known))
        elif slo.ttft is slo.tpot is slo.e2e is None:
            what = f"{name!r} has no targets, so nothing could miss them"
            yield Fault(path, what, hint=f"give it some under slo.{name}")


def _hardware_faults(spec: PlanningSpec, pools: Sequence[PoolSpec]) -> Iterator[Fault]:
    unknown = []
    for key, names in (("accelerators", spec.accelerators or ()), ("prices", tuple(spec.prices))):
        for index, name in enumerate(names):
            try:
                resolve_accelerator(name)
            except InputError as error:
                path = (*SECTION, key, index if key == "accelerators" else name)
                unknown.append(Fault(path, error.what, error.allowed, error.hint))
    yield from unknown
    if unknown:
        return
    listed = spec.accelerators or ()
    chosen = [resolve_accelerator(name).name for name in listed]
    for name in spec.prices:
        if chosen and resolve_accelerator(name).name not in chosen:
            path = (*SECTION, "prices", name)
            yield Fault(path, "it is none of the accelerators to try", ", ".join(listed))
    step = pools[0].step_time
    for key in ("accelerators", "tensor_parallel"):
        if getattr(spec, key) is None or not isinstance(step, LinearStepTime | TableStepTime):
            continue
        what = f"the step time {step.model!r} of the pool would be the same for all of them"
        hint = "leave it out, or give the pool a step time that follows from its accelerator"
        yield Fault((*SECTION, key), what, hint=hint)


def _range_faults(spec: PlanningSpec) -> Iterator[Fault]:
    split = spec.prefill_decode
    for path, counts in (
        (("replicas",), spec.replicas),
        (("prefill_decode", "prefill"), split.prefill if split else None),
        (("prefill_decode", "decode"), split.decode if split else None),
    ):
        if counts is not None and counts.min > counts.max:
            what = f"{counts.min} is more than max, which is {counts.max}"
            here = (*SECTION, *path)
            yield Fault((*here, "min"), what, because_of=((*here, "max"),))
    if spec.replicas is not None and not spec.together:
        what = "`together` is false, so there are no servers that it could count"
        yield Fault((*SECTION, "replicas"), what, hint=NOBODYS)
    if not spec.together and split is None:
        what = "neither servers that do both nor a prefill_decode: there is nothing to try"
        yield Fault((*SECTION, "together"), what)
    if not spec.fixed and spec.autoscalers is None:
        what = "neither a fixed number of servers nor autoscalers: there is nothing to try"
        yield Fault((*SECTION, "fixed"), what)
    seqs, budgets = spec.engine.max_num_seqs, spec.engine.max_num_batched_tokens
    if seqs and budgets and min(seqs) > max(budgets):
        what = f"the largest is {max(budgets)}, and the smallest max_num_seqs is {min(seqs)}"
        hint = "each running request needs a token of every step"
        yield Fault((*SECTION, "engine", "max_num_batched_tokens"), what, hint=hint)


def _repeated(spec: PlanningSpec) -> Iterator[Fault]:
    """A value that is there twice would be tried twice."""
    named = [resolve_accelerator(n).name for n in spec.accelerators or () if _is_known(n)]
    for path, values in (
        (("slo",), spec.slo),
        (("accelerators",), named),
        (("tensor_parallel",), spec.tensor_parallel),
        (("engine", "max_num_seqs"), spec.engine.max_num_seqs),
        (("engine", "max_num_batched_tokens"), spec.engine.max_num_batched_tokens),
        (("engine", "memory_utilization"), spec.engine.memory_utilization),
        (("routers",), _written(spec.routers)),
        (("autoscalers",), _written(spec.autoscalers)),
    ):
        seen: list[Any] = list(values or ())
        twice = next((index for index, one in enumerate(seen) if one in seen[:index]), None)
        if twice is not None:
            yield Fault((*SECTION, *path, twice), "this is there already")


def _is_known(name: str) -> bool:
    try:
        resolve_accelerator(name)
    except InputError:
        return False
    return True


def _autoscaler_faults(spec: PlanningSpec, pools: Sequence[PoolSpec]) -> Iterator[Fault]:
    for index, scaling in enumerate(spec.autoscalers or ()):
        bounds = scaling.pools if isinstance(scaling, ScalerSpec) else {}
        within = [_within(pool, bounds.get(pool.name, BoundsSpec())) for pool in pools]
        for fault in scaling_faults(scaling, within):
            if fault.path[0] != "scaling":
                continue
            path = (*SECTION, "autoscalers", index, *fault.path[1:])
            yield fault._replace(path=path, because_of=())


def _within(pool: PoolSpec, bounds: BoundsSpec) -> PoolSpec:
    """As an autoscaler would find it: a candidate begins within its bounds."""
    replicas = min(max(pool.replicas, bounds.min), max(bounds.max, bounds.min))
    return pool.model_copy(update={"replicas": replicas})

"""The rules that tie several values together, checked after defaults are filled in."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.section import Context, faults_of
from windtunnel.twin.scenario.disaggregation import disaggregation_faults, encode_faults
from windtunnel.twin.scenario.gateway import gateway_faults
from windtunnel.twin.scenario.ground import ground_faults
from windtunnel.twin.scenario.lora import lora_faults
from windtunnel.twin.scenario.models import model_faults
from windtunnel.twin.scenario.offload import offload_faults
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.serving_spec import LinearStepTime, PoolSpec
from windtunnel.twin.scenario.workload_rules import BUILT_IN_PRIORITIES, workload_faults


def rule_faults(spec: Scenario, folder: Path) -> list[Fault]:
    """Everything that is wrong although each value is right by itself."""
    where = Context(spec, folder)
    return [*faults_of(spec, where), *_all_faults(spec, where)]


def _all_faults(spec: Scenario, where: Context) -> Iterator[Fault]:
    yield from workload_faults(spec)
    yield from model_faults(spec)
    yield from _repeated_names(("serving", "pools"), [pool.name for pool in spec.serving.pools])
    for name, slo in spec.slo.items():
        if slo.priority is None and name not in BUILT_IN_PRIORITIES:
            what = f"missing, and {name!r} is not a built-in class that has one"
            yield Fault(("slo", name, "priority"), what, "a whole number, higher goes first")
    servers = sum(pool.replicas for pool in spec.serving.pools)
    if servers > MOST_REPLICAS:
        what = f"{servers} replicas in all"
        yield Fault(("serving", "pools"), what, f"up to {MOST_REPLICAS} in all pools together")
    yield from _scaling_faults(spec)
    yield from ground_faults(spec)
    names = [fault.name_at(place) for place, fault in enumerate(spec.faults)]
    yield from _repeated_names(("faults",), names)
    yield from disaggregation_faults(spec)
    yield from encode_faults(spec)
    yield from lora_faults(spec)
    yield from offload_faults(spec)
    yield from gateway_faults(spec, _priorities(spec), where)
    for index, pool in enumerate(spec.serving.pools):
        path = ("serving", "pools", index)
        yield from _engine_faults((*path, "engine"), pool)
        yield from _hardware_faults(path, pool, spec)


def _scaling_faults(spec: Scenario) -> Iterator[Fault]:
    """Of what only scaling makes use of, where there is none."""
    serving = spec.serving
    if serving.retries is not None and not (spec.faults or spec.gangs or spec.fleet):
        what = "no server is lost: the scenario has no `faults`"
        yield Fault(("serving", "retries"), what, hint="add `faults`, or leave it out")
    if spec.scaling is not None:
        return
    stands = spec.fleet is not None or spec.gangs is not None
    if serving.drain is not None and not stands:
        what = "no server is taken away: the scenario has no `scaling`"
        yield Fault(("serving", "drain"), what, hint="add `scaling`, or leave it out")
    if serving.startup is not None and not stands and not spec.faults:
        what = "no server comes or goes: the scenario has no `scaling` and no `faults`"
        yield Fault(("serving", "startup"), what, hint="add one of them, or leave it out")
    for index, pool in enumerate(serving.pools):
        if not pool.replicas:
            what = "0 servers, and nothing adds any: the scenario has no `scaling`"
            path = ("serving", "pools", index, "replicas")
            yield Fault(path, what, hint="give at least 1, or add `scaling`")


def _priorities(spec: Scenario) -> dict[str, int]:
    """Of every class that has one, built-in and the file's own."""
    own = {name: slo.priority for name, slo in spec.slo.items() if slo.priority is not None}
    return {**BUILT_IN_PRIORITIES, **own}


def _repeated_names(path: KeyPath, names: Sequence[str]) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            taken = dotted((*path, first[name]))
            yield Fault((*path, index, "name"), f"{name!r} is already the name of {taken}")
        first.setdefault(name, index)


def _engine_faults(path: KeyPath, pool: PoolSpec) -> Iterator[Fault]:
    engine = pool.engine
    budget = engine.max_num_batched_tokens
    if budget < engine.max_num_seqs:
        what = f"{budget} is less than max_num_seqs, which is {engine.max_num_seqs}"
        hint = "each running request needs a token of every step"
        because = _beside(path, "max_num_seqs")
        yield Fault((*path, "max_num_batched_tokens"), what, hint=hint, because_of=because)
    longest = engine.max_model_len
    if not engine.chunked_prefill and longest is not None and longest > budget:
        what = f"{longest} is more than max_num_batched_tokens, which is {budget}"
        hint = "without chunked_prefill a longer prompt would wait for ever"
        because = _beside(path, "max_num_batched_tokens", "chunked_prefill")
        yield Fault((*path, "max_model_len"), what, hint=hint, because_of=because)


def _hardware_faults(path: KeyPath, pool: PoolSpec, spec: Scenario) -> Iterator[Fault]:
    step = pool.step_time
    if not isinstance(step, LinearStepTime):
        reason = f"the step time {step.model!r}"
        hint = "the step time 'linear' needs none"
    elif pool.engine.kv_blocks == "auto":
        reason = "kv_blocks: auto"
        hint = "or set engine.kv_blocks to a number"
    else:
        reason = hint = ""
    because = (
        *_beside(path, "step_time", "accelerator"),
        *_beside((*path, "step_time"), "model"),
        *_beside((*path, "engine"), "kv_blocks"),
        ("model",),
    )
    if reason and pool.accelerator is None:
        what = f"missing, but {reason} needs one"
        yield Fault((*path, "accelerator"), what, hint=hint, because_of=because)
    if reason and pool.model is None and spec.model is None:
        what = f"missing, but {reason} of {dotted(path)} needs one"
        yield Fault(("model",), what, hint=hint, because_of=because)
    if (
        isinstance(step, LinearStepTime)
        and step.fixed == 0
        and (step.per_prefill_token == 0 or step.per_decode == 0)
    ):
        what = "a step may take no time at all"
        allowed = "a fixed above 0s, or both per_prefill_token and per_decode above 0s"
        costs = ("model", "fixed", "per_prefill_token", "per_decode")
        because = _beside((*path, "step_time"), *costs)
        yield Fault((*path, "step_time"), what, allowed, because_of=because)


def _beside(path: KeyPath, *keys: str) -> tuple[KeyPath, ...]:
    return tuple((*path, key) for key in keys)

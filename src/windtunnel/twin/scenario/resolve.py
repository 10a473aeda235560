"""Turns a checked scenario into the plan that the simulation runs on."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from windtunnel.scaling.build import setup_of
from windtunnel.settings.fields import LONGEST_NAME
from windtunnel.twin.scenario.disaggregation import encode_plan, split_plan
from windtunnel.twin.scenario.ground import ground_plan
from windtunnel.twin.scenario.lora import lora_plan
from windtunnel.twin.scenario.models import pools_for
from windtunnel.twin.scenario.offload import offload_plan
from windtunnel.twin.scenario.plan import (
    EnginePlan,
    OverheadsPlan,
    PoolPlan,
    ScenarioPlan,
    SloPlan,
    StartupPlan,
    StepTimePlan,
)
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.serving_spec import (
    BlisTrainedPhysicsStepTime,
    EngineSpec,
    LinearStepTime,
    PhysicsStepTime,
    PoolSpec,
    RetriesSpec,
    ServingSpec,
    StepTime,
    TableStepTime,
)
from windtunnel.twin.scenario.workload import entry_plan, path_or_name
from windtunnel.twin.scenario.workload_rules import BUILT_IN_PRIORITIES
from windtunnel.twin.scenario.workload_spec import SloSpec
from windtunnel.workload.plan import Entry


def resolve(spec: Scenario, file: Path) -> ScenarioPlan:
    """The plan for a scenario without faults; paths in it count from the file's folder."""
    slos = _slos(spec)
    retries = spec.serving.retries or RetriesSpec()
    scaling = spec.scaling
    return ScenarioPlan(
        name=spec.name or _name_of(file),
        seed=spec.seed,
        duration_s=spec.duration,
        model=path_or_name(spec.model, file),
        workload=_workload(spec, slos, file),
        slos=slos,
        pools=tuple(_pool(pool, spec, file) for pool in spec.serving.pools),
        router=spec.serving.router,
        gateway=spec.serving.admission,
        split=split_plan(spec.serving),
        encode=encode_plan(spec.serving),
        sha256=_digest(spec, slos, file.parent),
        folder=file.parent,
        startup=_startup(spec.serving),
        drain=spec.serving.drain.policy if spec.serving.drain is not None else "wait",
        scaling=None if scaling is None else setup_of(scaling, spec.serving.pools, file.parent),
        ground=ground_plan(spec, file),
        retry_attempts=retries.attempts,
        retry_backoff_s=retries.backoff,
        faults=tuple(spec.faults),
        planning=spec.plan,
    )


def _startup(serving: ServingSpec) -> StartupPlan:
    if serving.startup is None:
        return StartupPlan()
    return StartupPlan(serving.startup.load.mean, serving.startup.load.stddev)


def _digest(spec: Scenario, slos: dict[str, SloPlan], folder: Path) -> str:
    """Of the values in force, so that it is the same however they were written or set.

    What a plan would choose from is no part of it: no run depends on that. Manifests decide as
    much as the scenario does: their bytes are.
    """
    values = spec.model_dump(mode="json", by_alias=True, exclude={"plan"})
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
    """A file's name without its ending, made to fit where a scenario's name goes."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).lstrip("._-")
    return word[:LONGEST_NAME] or "scenario"


def _slos(spec: Scenario) -> dict[str, SloPlan]:
    slos = {}
    for name in sorted({*BUILT_IN_PRIORITIES, *spec.slo}):
        slo = spec.slo.get(name, SloSpec())
        priority = BUILT_IN_PRIORITIES[name] if slo.priority is None else slo.priority
        slos[name] = SloPlan(name, priority, slo.ttft, slo.tpot, slo.e2e)
    return slos


def _workload(spec: Scenario, slos: Mapping[str, SloPlan], file: Path) -> tuple[Entry, ...]:
    """Each entry asks for a model, and for adapters where all servers of that have slots."""
    entries: list[Entry] = []
    for entry in spec.workload:
        slots = all(pool.engine.lora is not None for _, pool in pools_for(entry, spec))
        entries.append(entry_plan(entry, slos, file, model=spec.model, slots=slots))
    return tuple(entries)


def _pool(pool: PoolSpec, spec: Scenario, file: Path) -> PoolPlan:
    overheads = pool.overheads
    cluster = spec.serving.clusters.get(pool.cluster)
    network_s = cluster.latency if cluster is not None else 0.0
    return PoolPlan(
        name=pool.name,
        role=pool.role,
        replicas=pool.replicas,
        accelerator=pool.accelerator,
        tensor_parallel=pool.tensor_parallel,
        expert_parallel=pool.expert_parallel,
        price_per_hour=pool.price_per_hour,
        engine=_engine(pool.engine, pool.step_time),
        step_time=_step_time(pool.step_time, file),
        overheads=OverheadsPlan(
            overheads.queueing, overheads.per_token, overheads.completion, network_s
        ),
        model=path_or_name(pool.model or spec.model, file),
        cluster=pool.cluster,
    )


# What BLIS's engine does otherwise than vLLM's, as far as nobody says so in the file.
_BLIS_HABITS: dict[str, object] = {
    "max_num_batched_tokens": 2048,
    "async_scheduling": False,
    "reserve_full_prompt": False,
    "unhashed_blocks_first": False,
    "null_block": False,
    "store_last_token": True,
    "compute_whole_hits": False,
    "over_length": "refuse",
    "preemption": "restart",
    "last_step_blocks": False,
}
_BETWEEN_STEPS = ("preemption", "last_step_blocks", "compute_whole_hits", "store_last_token")
"""Of these, the ones that only steps which follow each other can have."""


def _with_habits(engine: EngineSpec, step: StepTime) -> EngineSpec:
    """The engine with the defaults that belong to its step times; what is written stands."""
    if not isinstance(step, BlisTrainedPhysicsStepTime):
        return engine
    habits = {
        name: habit for name, habit in _BLIS_HABITS.items() if name not in engine.model_fields_set
    }
    if "async_scheduling" in engine.model_fields_set and engine.async_scheduling:
        for name in _BETWEEN_STEPS:
            habits.pop(name, None)
    if engine.offload:  # whoever waits for a tier neither starts nor is answered at once
        habits.pop("last_step_blocks", None)
        habits.pop("compute_whole_hits", None)
    return engine.model_copy(update=habits)


def _engine(spec: EngineSpec, step: StepTime) -> EnginePlan:
    engine = _with_habits(spec, step)
    return EnginePlan(
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        block_size=engine.block_size,
        memory_utilization=engine.memory_utilization,
        prefix_caching=engine.prefix_caching,
        chunked_prefill=engine.chunked_prefill,
        long_prefill_threshold=engine.long_prefill_threshold,
        max_model_len=engine.max_model_len,
        scheduling=engine.scheduling,
        async_scheduling=engine.async_scheduling,
        kv_blocks=None if engine.kv_blocks == "auto" else engine.kv_blocks,
        host_overhead_s=engine.host_overhead,
        reserve_full_prompt=engine.reserve_full_prompt,
        unhashed_blocks_first=engine.unhashed_blocks_first,
        lora=lora_plan(engine.lora),
        offload=offload_plan(engine),
        null_block=engine.null_block,
        preemption=engine.preemption,
        over_length=engine.over_length,
        last_step_blocks=engine.last_step_blocks,
        store_last_token=engine.store_last_token,
        compute_whole_hits=engine.compute_whole_hits,
    )


def _step_time(step: StepTime, file: Path) -> StepTimePlan:
    parameters: dict[str, float | str | tuple[float, ...]] = {}
    if isinstance(step, LinearStepTime):
        parameters["fixed_s"] = step.fixed
        parameters["per_prefill_token_s"] = step.per_prefill_token
        parameters["per_decode_s"] = step.per_decode
        parameters["per_context_token_s"] = step.per_context_token
    elif isinstance(step, TableStepTime):
        parameters["path"] = str(file.parent / step.path)
        parameters["per_step_s"] = step.per_step
    elif isinstance(step, PhysicsStepTime):
        profile = path_or_name(step.profile, file)
        if profile is not None:
            parameters["profile"] = profile
    elif isinstance(step, BlisTrainedPhysicsStepTime):
        for name, numbers in (("alpha", step.alpha), ("beta", step.beta)):
            if numbers is not None:
                parameters[name] = tuple(numbers)
    return StepTimePlan(step.model, parameters)

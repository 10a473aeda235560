"""The settings of serving: pools of servers, and everything around them."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Literal

import msgspec
from pydantic import Field, model_validator

from windtunnel.admission.gateway.settings import AlwaysSettings, GatewaySettings
from windtunnel.core.errors import InputError, nearest
from windtunnel.engine.settings import EngineSettings
from windtunnel.models.capacity import aligned_block_size
from windtunnel.models.catalog.accelerators import is_accelerator, resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.releases import host_times
from windtunnel.models.settings import (
    BlisTrainedPhysicsStepTime,
    LinearStepTime,
    PhysicsStepTime,
    StepTime,
)
from windtunnel.routing.settings import RouterSettings, SplitSettings
from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.fields import (
    Bandwidth,
    Duration,
    Flag,
    ModelName,
    Name,
    Number,
    Size,
    Text,
    Whole,
)
from windtunnel.settings.limits import (
    HIGHEST_PRICE,
    LONGEST_RUN,
    LONGEST_STEP_COST,
    LONGEST_TARGET,
    MOST_ATTEMPTS,
    MOST_POOLS,
    MOST_REPLICAS,
    MOST_ROUNDS,
    MOST_TENSOR_PARALLEL,
    USUAL_RECYCLES,
)
from windtunnel.settings.section import Added, Context, Section
from windtunnel.twin.infrastructure.settings import MAIN
from windtunnel.workload.settings.sources import SourceSettings

Cost = Annotated[float, Duration("0s", LONGEST_STEP_COST)]
Switch = Annotated[bool, Flag()]

PREFILLS = ("prefill", "both")
DECODES = ("decode", "both")


class RackSettings(Section):
    """Racks of servers; transfers between two racks share the uplinks of both."""

    servers: Annotated[int, Whole(1, MOST_REPLICAS)] = Field(description="Servers per rack.")
    uplink_bytes_per_s: Annotated[float, Bandwidth("1kB/s", "1PB/s")] = Field(
        description="Bandwidth from a rack to all others, and back."
    )


class TransferSettings(Section):
    """KV transfer from prefill to decode servers."""

    bandwidth_bytes_per_s: Annotated[float, Bandwidth("1kB/s", "1PB/s")] = Field(
        default=25e9,
        description="Of a server's NIC in each direction, shared by its transfers.",
    )
    rack: Annotated[RackSettings | None, Added()] = Field(
        default=None, description="Racks with shared uplinks. Default: only NICs limit transfers."
    )
    fabric_bytes_per_s: Annotated[Annotated[float, Bandwidth("1kB/s", "1PB/s")] | None, Added()] = (
        Field(
            default=None,
            description="Bandwidth for all transfers of a cluster. Default: no limit.",
        )
    )
    latency_s: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        default=50e-6, description="From the end of the prefill to the first byte."
    )
    contention: Annotated[bool, Flag()] = Field(
        default=True,
        description="Whether transfers share bandwidth; if not, each has a whole NIC.",
    )
    layerwise: Annotated[bool, Flag(), Added()] = Field(
        default=False,
        description="Whether KV moves layer by layer during the prefill; at least the last layer "
        "follows.",
    )
    bytes_per_token: Annotated[float, Size("1B", "1GB")] | None = Field(
        default=None, description="KV bytes per token. Default: the model's."
    )


class DisaggregationSettings(SplitSettings):
    """Prefill and decode on different servers."""

    transfer: TransferSettings = Field(
        default_factory=TransferSettings, description="The KV transfer."
    )


class EncodeSettings(Section):
    """Encoders that process images and sound before their request is routed."""

    servers: Annotated[int, Whole(1, MOST_REPLICAS)] = Field(
        default=1,
        description="Encoders, each for one request at a time, first come first served.",
    )
    fixed_s: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        default=0.005, description="Time per request with media."
    )
    per_token_s: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        default=20e-6, description="Additional time per media token."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        """Notes encoders that no request needs; a trace may have media in any row."""
        sources = [entry for entry in where.root.workload if isinstance(entry, SourceSettings)]
        if len(sources) == len(where.root.workload) and not any(one.media for one in sources):
            what = "no source has media, so that there is nothing to encode"
            yield where.note((), what, "give a source `media`, or leave it out")


class OverheadSettings(Section):
    """Time around a request outside the accelerator."""

    queueing_s: Cost = Field(
        default=0.0,
        description="From arrival at a server to its queue. Default with `physics`: 0.8ms per "
        "layer, 15ms to 70ms.",
    )
    per_prompt_token_s: Annotated[Cost, Added()] = Field(
        default=0.0,
        description="The same per prompt token (tokenisation). Default with `physics`: 2us.",
    )
    per_token_s: Cost = Field(
        default=0.0,
        description="From the end of a step to the client, for every token.",
    )
    completion_s: Cost = Field(
        default=0.0, description="From the last token to the end of the request."
    )


class PoolSettings(Section):
    """Interchangeable servers."""

    name: Annotated[str, Name()] = Field(description="Its name in results.")
    model: ModelName | None = Field(
        default=None,
        description="Its model. Default: the scenario's.",
    )
    cluster: Annotated[str, Name()] = Field(
        default=MAIN,
        description="Where its servers are.",
    )
    role: Literal["both", "prefill", "decode"] = Field(
        default="both",
        description="`prefill` computes prompts, `decode` generates from KV computed elsewhere, "
        "`both` does either.",
    )
    replicas: Annotated[int, Whole(0, MOST_REPLICAS)] = Field(
        default=1,
        description="Number of servers; with `scaling`, at first.",
    )
    accelerator: Annotated[str, Text("the name of an accelerator, such as h200")] | None = Field(
        default=None,
        description="Needed unless step times are `linear` and `kv_blocks` is set.",
    )
    tensor_parallel: Annotated[int, Whole(1, MOST_TENSOR_PARALLEL)] = Field(
        default=1, description="Tensor-parallel degree."
    )
    clique: (
        Annotated[str, Text("a clique, a scaling group or a set of the manifests, or SET/NAME")]
        | None
    ) = Field(
        default=None,
        description="With `gangs`: a replica is a pod of this clique, or a replica of this "
        "scaling group or set.",
    )
    priority: Annotated[int, Whole(-1_000_000, 1_000_000)] | None = Field(
        default=None,
        description="Priority for machines of `fleet`; higher preempts lower. Default: the set's "
        "priority class, or 0.",
    )
    expert_parallel: Switch = Field(
        default=False,
        description="Whether accelerators hold whole experts instead of parts of each.",
    )
    data_parallel: Annotated[int, Whole(1, MOST_TENSOR_PARALLEL), Added()] = Field(
        default=1,
        description="vLLM's data_parallel_size: ranks that share experts and step together. "
        "`engine` limits are per rank.",
    )
    pipeline_parallel: Annotated[int, Whole(1, MOST_TENSOR_PARALLEL), Added()] = Field(
        default=1,
        description="vLLM's pipeline_parallel_size: stages of layers, on their own accelerators.",
    )
    all2all_backend: Annotated[
        Literal["allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency"], Added()
    ] = Field(
        default="allgather_reducescatter",
        description="vLLM's all-to-all backend.",
    )
    price_per_hour: Annotated[float, Number(0, HIGHEST_PRICE)] | None = Field(
        default=None,
        description="Dollars per accelerator-hour. Default: the catalog's example, or 0.",
    )
    engine: EngineSettings = Field(
        default_factory=EngineSettings, description="The inference engine."
    )
    step_time: StepTime = Field(
        default_factory=lambda: PhysicsStepTime(model="physics"),
        description="Step times, by `model`. Default: physics.",
    )
    overheads: OverheadSettings = Field(
        default_factory=OverheadSettings,
        description="Host time around a request. Default with `physics`: that of published "
        "servers.",
    )

    @property
    def gpus(self) -> int:
        """Accelerators of one server."""
        return self.tensor_parallel * self.data_parallel * self.pipeline_parallel

    def check(self, where: Context) -> Iterator[Fault]:
        yield from self._hardware_faults(where)
        yield from self._parallel_faults(where)

    def _parallel_faults(self, where: Context) -> Iterator[Fault]:
        """Reports combinations that are not modelled, or that vLLM does not support."""
        step = self.step_time.model
        if self.data_parallel > 1 and step in ("roofline", "table", "blis-trained-physics"):
            what = f"{self.data_parallel}, but the step time {step!r} knows of one rank"
            yield where.fault(
                "data_parallel", what, "1, or physics or linear", beside=("step_time",)
            )
        if self.pipeline_parallel > 1 and step in ("table", "blis-trained-physics"):
            what = f"{self.pipeline_parallel}, but the step time {step!r} knows of one stage"
            allowed = "1, or physics, roofline or linear"
            yield where.fault("pipeline_parallel", what, allowed, beside=("step_time",))
        if self.pipeline_parallel > 1 and self.engine.speculative is not None:
            what = f"{self.pipeline_parallel}, but engine.speculative drafts at the end of a step"
            hint = "drafts in a pipeline are not modelled"
            yield where.fault("pipeline_parallel", what, "1 with drafts", hint, beside=("engine",))
        if self.data_parallel > 1 and self.engine.lora is not None:
            what = f"{self.data_parallel}, but engine.lora has slots for one rank"
            hint = "adapters on data-parallel ranks are not modelled"
            yield where.fault("data_parallel", what, "1 with lora", hint, beside=("engine",))
        if self.gpus > self.tensor_parallel and not self.engine.chunked_prefill:
            key = "data_parallel" if self.data_parallel > 1 else "pipeline_parallel"
            what = "a prompt that is computed whole, but engine.chunked_prefill is false"
            yield where.fault(key, what, "chunked_prefill: true", beside=("engine",))
        apart = self.data_parallel > 1 and self.expert_parallel and self.tensor_parallel == 1
        if self.all2all_backend != "allgather_reducescatter" and not apart:
            what = f"{self.all2all_backend!r} carries tokens between data-parallel ranks"
            allowed = "data_parallel above 1, tensor_parallel 1 and expert_parallel: true"
            degrees = ("data_parallel", "expert_parallel", "tensor_parallel")
            yield where.fault("all2all_backend", what, allowed, beside=degrees)

    def _hardware_faults(self, where: Context) -> Iterator[Fault]:
        """Reports a missing model or accelerator where step times or memory are computed from
        them."""
        if not isinstance(self.step_time, LinearStepTime):
            reason = f"the step time {self.step_time.model!r}"
            hint = "the step time 'linear' needs none"
        elif self.engine.kv_blocks == "auto":
            reason = "kv_blocks: auto"
            hint = "or set engine.kv_blocks to a number"
        else:
            return
        path = where.path
        because = (
            (*path, "step_time"),
            (*path, "accelerator"),
            (*path, "step_time", "model"),
            (*path, "engine", "kv_blocks"),
            ("model",),
        )
        if self.accelerator is None:
            what = f"missing, but {reason} needs one"
            yield where.fault("accelerator", what, hint=hint, because_of=because)
        if self.model is None and where.root.model is None:
            what = f"missing, but {reason} of {dotted(path)} needs one"
            yield Fault(("model",), what, hint=hint, because_of=because)

    def with_defaults_of(self, model: str | None) -> "PoolSettings":
        """The pool with its defaults filled in: the scenario's model, the engine's defaults."""
        engine = self.engine.with_method()
        if isinstance(self.step_time, BlisTrainedPhysicsStepTime):
            engine = engine.model_copy(update=_blis_options(engine))
        elif (model or self.model) and self.accelerator and is_accelerator(self.accelerator):
            with suppress(InputError):  # reported with the other faults of the engine
                engine = engine.on(resolve_accelerator(self.accelerator))
        model = self.model or model
        engine = self._with_blocks_for(model, engine)
        update = {"model": model, "engine": engine, "overheads": self._overheads_of(model)}
        return self.model_copy(update=update)

    def _with_blocks_for(self, model: str | None, engine: EngineSettings) -> EngineSettings:
        """The engine with blocks large enough for a state, as vLLM has for recurrent layers."""
        if model is None:
            return engine
        drafts = 0 if engine.speculative is None else engine.speculative.num_speculative_tokens
        try:
            shape = resolve_model(model)
            if engine.kv_cache_dtype == "fp8":
                shape = msgspec.structs.replace(shape, kv_bytes=1.0)
            size = aligned_block_size(
                shape.per_gpu(self.tensor_parallel), engine.block_size, drafts
            )
        except InputError:  # reported with the other faults of the model
            return engine
        return (
            engine if size == engine.block_size else engine.model_copy(update={"block_size": size})
        )

    def _overheads_of(self, model: str | None) -> OverheadSettings:
        """The overheads, with the host time of published servers where steps are those of real
        kernels."""
        if model is None or not isinstance(self.step_time, PhysicsStepTime):
            return self.overheads
        try:
            times = host_times(resolve_model(model), self.engine.version)
        except InputError:  # reported with the other faults of the model or the engine
            return self.overheads
        return self.overheads.with_defaults(msgspec.structs.asdict(times))

    @property
    def has_assumed_overheads(self) -> bool:
        """Whether host time is assumed from other servers instead of set by the scenario."""
        own = self.overheads
        return own.queueing_s > 0.0 and not own.written("queueing_s")


_BLIS_OPTIONS: dict[str, object] = {
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
"""Options of BLIS's engine that differ from vLLM's, unless the file sets them."""
_BETWEEN_STEPS = ("preemption", "last_step_blocks", "compute_whole_hits", "store_last_token")
"""Those of them that require steps to follow each other."""


def _blis_options(engine: EngineSettings) -> dict[str, object]:
    options = {name: value for name, value in _BLIS_OPTIONS.items() if not engine.written(name)}
    if engine.written("async_scheduling") and engine.async_scheduling:
        for name in _BETWEEN_STEPS:
            options.pop(name, None)
    if engine.offload:  # a request that waits for a tier neither starts nor ends at once
        options.pop("last_step_blocks", None)
        options.pop("compute_whole_hits", None)
    return options


class ClusterSettings(Section):
    """A cluster of servers, at a network distance."""

    latency_s: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        description="One-way latency from router to servers; paid in both directions."
    )


class LoadTime(Section):
    """A random time for each server: normally distributed, and never below 0."""

    mean_s: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        description="Mean; about 1m for an 8B model from a local disk."
    )
    stddev_s: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        default=0.0, description="Standard deviation."
    )


class StartupSettings(Section):
    """Start-up of a new server, which costs money."""

    load: LoadTime = Field(description="Time to load the model: normal, at least 0.")


class DrainSettings(Section):
    """What a removed server does with its requests."""

    policy: Literal["wait", "redirect", "immediate"] = Field(
        default="wait",
        description="`wait`: finish all requests; `redirect`: return unstarted ones to the "
        "router; `immediate`: return all, to start over.",
    )


class RetrySettings(Section):
    """Retries of requests whose server is lost or answers 429."""

    attempts: Annotated[int, Whole(0, MOST_ATTEMPTS)] = Field(
        default=1,
        description="Most restarts on another server; then it is dropped, or rejected after a 429.",
    )
    backoff_s: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        default=1.0,
        description="Wait after a 429; doubles each time, at most an hour.",
    )


Rounds = Annotated[int, Whole(1, MOST_ROUNDS)]


class MeasureSettings(Section):
    """The window that latencies, SLO attainment and throughput cover."""

    from_s: Annotated[float, Duration("0s", LONGEST_RUN)] = Field(
        default=0.0, description="Start of the window."
    )
    to_s: Annotated[float, Duration("0s", LONGEST_RUN, above=True)] | None = Field(
        default=None,
        description="End of the window. Default: the end of the run.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        duration_s = getattr(where.root, "duration_s", None)
        if self.to_s is not None and self.to_s <= self.from_s:
            yield where.fault("to", "nothing is measured", f"over {self.from_s:g} s, as `from`")
        elif duration_s is not None and self.from_s >= duration_s:
            what = "nothing is measured: the run ends before"
            yield where.fault("from", what, f"under {duration_s:g} s, as `duration`")


class ProgressSettings(Section):
    """How often something may repeat while no request finishes; beyond that, the run ends and names
    the loop."""

    restarts: Rounds = Field(
        default=1_000,
        description="Restarts of one request, because its server drains or is lost.",
    )
    preemptions: Rounds = Field(default=1_000_000, description="Preemptions by one server.")
    resizes: Rounds = Field(
        default=10_000, description="Size changes of one pool by its autoscaler."
    )
    losses: Rounds = Field(default=1_000, description="Servers lost by one pool.")
    recycles: Rounds = Field(
        default=USUAL_RECYCLES,
        description="Terminations of one gang.",
    )
    reclaims: Rounds = Field(
        default=1_000,
        description="Failures or reclaims of a machine.",
    )
    idle: Rounds = Field(
        default=100_000,
        description="Control-plane events in a row; a tenth of that while nothing is under way.",
    )
    instant: Rounds = Field(
        default=1_000,
        description="Events at one instant, per server and request in the system.",
    )
    events: Rounds = Field(
        default=1_000_000,
        description="Events while no request arrives, finishes or gets further, per request in the "
        "system.",
    )


class ServingSettings(Section):
    """Servers, with the gateway and router in front of them."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, data: object) -> object:
        """Treats null as absent, so that `--set` can remove any of these sections."""
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None or key not in ("router", "admission", "clusters")
        }

    pools: list[PoolSettings] = Field(
        min_length=1, max_length=MOST_POOLS, description="The servers."
    )
    clusters: dict[Annotated[str, Name()], ClusterSettings] = Field(
        default_factory=dict,
        description="Network distance of clusters; 0 for others.",
    )
    router: RouterSettings = Field(
        default_factory=RouterSettings,
        description="How a server is chosen. Default: round-robin.",
    )
    admission: GatewaySettings = Field(
        default_factory=lambda: AlwaysSettings(policy="always"),
        description="Admission at the gateway, by `policy`. Default: all requests, at once.",
    )
    disaggregation: DisaggregationSettings | None = Field(
        default=None,
        description="Prefill/decode disaggregation, for pools with these roles.",
    )
    encode: EncodeSettings | None = Field(
        default=None,
        description="Encoders for images and sound. Default: media only add prompt tokens.",
    )
    startup: StartupSettings | None = Field(
        default=None,
        description="Start-up of added and replaced servers. Default: ready at once.",
    )
    drain: DrainSettings | None = Field(
        default=None,
        description="What removed servers do. Default: `wait`.",
    )
    retries: RetrySettings | None = Field(
        default=None,
        description="Retries of requests whose server is lost or answers 429.",
    )

    @property
    def load_time(self) -> LoadTime:
        """How long a new server loads."""
        return LoadTime(mean_s=0.0) if self.startup is None else self.startup.load

    @property
    def drain_policy(self) -> str:
        return DrainSettings().policy if self.drain is None else self.drain.policy

    @property
    def retry_limits(self) -> RetrySettings:
        return self.retries or RetrySettings()

    @property
    def split(self) -> DisaggregationSettings | None:
        """How prompts are computed on other servers; None when every pool has the role `both`."""
        if all(pool.role == "both" for pool in self.pools):
            return None
        return self.disaggregation or DisaggregationSettings()

    def network_s(self, pool: PoolSettings) -> float:
        """The network latency between router and a pool's servers; it also applies on the way
        back."""
        cluster = self.clusters.get(pool.cluster)
        return cluster.latency_s if cluster is not None else 0.0

    def check(self, where: Context) -> Iterator[Fault]:
        yield from where.repeated("pools", [pool.name for pool in self.pools])
        servers = sum(pool.replicas for pool in self.pools)
        if servers > MOST_REPLICAS:
            allowed = f"up to {MOST_REPLICAS} in all pools together"
            yield where.fault("pools", f"{servers} replicas in all", allowed)
        names = list(dict.fromkeys(pool.cluster for pool in self.pools))
        for name in self.clusters:
            if name not in names:
                allowed = ", ".join(names)
                hint = nearest(name, names)
                yield where.fault(("clusters", name), "no pool is in it", allowed, hint)
        yield from self._unused(where)
        yield from self._split_faults(where)

    def _unused(self, where: Context) -> Iterator[Fault]:
        """Notes settings for starting, draining or lost servers where there are none."""
        scenario = where.root
        on_machines = scenario.fleet is not None or scenario.gangs is not None
        if self.retries is not None and not (scenario.faults or on_machines):
            what = "no server is lost: the scenario has no `faults`"
            yield where.note("retries", what, "add `faults`, or leave it out")
        if scenario.scaling is not None:
            return
        if self.drain is not None and not on_machines:
            what = "no server is taken away: the scenario has no `scaling`"
            yield where.note("drain", what, "add `scaling`, or leave it out")
        if self.startup is not None and not on_machines and not scenario.faults:
            what = "no server comes or goes: the scenario has no `scaling` and no `faults`"
            yield where.note("startup", what, "add one of them, or leave it out")
        for index, pool in enumerate(self.pools):
            if not pool.replicas:
                what = "0 servers, and nothing adds any: the scenario has no `scaling`"
                hint = "give at least 1, or add `scaling`"
                yield where.fault(("pools", index, "replicas"), what, hint=hint)

    def _split_faults(self, where: Context) -> Iterator[Fault]:
        split, model = self.disaggregation, where.root.model
        if self.split is None:
            if split is not None:
                what = "every pool has the role 'both', so that nothing is split"
                hint = "give pools the roles 'prefill' and 'decode'"
                yield where.note("disaggregation", what, hint)
            return
        alone = list(self._alone(where))
        yield from alone
        if alone:
            return  # nothing would be transferred
        named = all(pool.model or model for pool in self.pools if pool.role != "both")
        if not named and split is not None and split.transfer.layerwise:
            what = "the scenario has no model that says how many layers there are"
            yield where.fault(("disaggregation", "transfer", "layerwise"), what, "only with models")
        if not named and (split is None or split.transfer.bytes_per_token is None):
            what = "missing, and the scenario has no model that says how large the KV of a token is"
            key = ("disaggregation", "transfer", "bytes_per_token")
            yield where.fault(key, what, "a size, such as 128KiB")

    def _alone(self, where: Context) -> Iterator[Fault]:
        """Reports pools that do one half of the work when no pool does the other half for their
        requests."""

        def requests(pool: PoolSettings) -> tuple[str | None, str]:
            return pool.model or where.root.model, pool.cluster

        models, clusters = (set(part) for part in zip(*map(requests, self.pools), strict=True))
        for index, pool in enumerate(self.pools):
            if pool.role == "both":
                continue
            partner = DECODES if pool.role == "prefill" else PREFILLS
            beside = [other.role for other in self.pools if requests(other) == requests(pool)]
            if any(role in partner for role in beside):
                continue
            which = " for its model" * (len(models) > 1) + " in its cluster" * (len(clusters) > 1)
            what = f"'{pool.role}', but no pool{which} has the role '{partner[0]}' or 'both'"
            yield where.fault(("pools", index, "role"), what)

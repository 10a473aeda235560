"""What a scenario comes to: frozen values, every default filled in, that the simulation runs on."""

from pathlib import Path

import msgspec

from windtunnel.admission.gateway.settings import GatewaySettings
from windtunnel.routing.settings import RouterSettings
from windtunnel.scaling.build import ScalingSetup
from windtunnel.search.settings import PlanSettings
from windtunnel.twin.faults.kind import InjectedFault
from windtunnel.twin.scenario.ground_plan import MAIN, GroundPlan
from windtunnel.workload.plan import Entry, Source


class SloPlan(msgspec.Struct, frozen=True):
    """A class of service: who goes first, and the times a request must keep (None: no target)."""

    name: str
    priority: int
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None


class LoraPlan(msgspec.Struct, frozen=True):
    """LoRA adapters on a server."""

    slots: int
    load_s: float
    step_cost: float
    memory_bytes: float
    """Of one slot, on each accelerator."""


class TierPlan(msgspec.Struct, frozen=True):
    """A place for cached KV below the accelerator."""

    name: str
    size_bytes: float
    bytes_per_s: float
    latency_s: float


class OffloadPlan(msgspec.Struct, frozen=True):
    """Where cached KV goes that the accelerator has no room for."""

    tiers: tuple[TierPlan, ...]
    """From fast to slow."""
    bytes_per_token: float | None
    """KV bytes of one token; None: what the model needs."""


class EnginePlan(msgspec.Struct, frozen=True):
    """The limits and the habits of one inference server."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    memory_utilization: float
    prefix_caching: bool
    chunked_prefill: bool
    long_prefill_threshold: int
    """Most prompt tokens of one request in one step; 0: no such limit."""
    max_model_len: int | None
    """None: what the model allows."""
    scheduling: str
    async_scheduling: bool
    kv_blocks: int | None
    """None: as many as the accelerator's memory holds beside the model's weights."""
    host_overhead_s: float
    reserve_full_prompt: bool
    unhashed_blocks_first: bool
    lora: LoraPlan | None
    offload: OffloadPlan | None
    null_block: bool
    preemption: str
    over_length: str
    last_step_blocks: bool
    store_last_token: bool
    compute_whole_hits: bool


class OverheadsPlan(msgspec.Struct, frozen=True):
    """Time that passes outside the accelerator, around a request."""

    queueing_s: float
    per_token_s: float
    completion_s: float
    network_s: float = 0.0
    """From the router to the server, and again from there to the client."""


class StepTimePlan(msgspec.Struct, frozen=True):
    """Which model says how long a step takes, and the parameters it was given."""

    model: str
    parameters: dict[str, float | str | tuple[float, ...]]


class PoolPlan(msgspec.Struct, frozen=True):
    """Servers that can stand in for each other."""

    name: str
    role: str
    replicas: int
    accelerator: str | None
    tensor_parallel: int
    expert_parallel: bool
    price_per_hour: float | None
    """Dollars for one accelerator; None: the catalog's example."""
    engine: EnginePlan
    step_time: StepTimePlan
    overheads: OverheadsPlan
    cluster: str = MAIN
    """Where its servers are."""
    model: str | None = None
    """What its servers serve; None: a model without a name."""


class SplitPlan(msgspec.Struct, frozen=True):
    """How prompts are computed on other servers than answers."""

    decider: str
    threshold: int
    bytes_per_s: float
    latency_s: float
    contention: bool
    bytes_per_token: float | None
    """KV bytes of one token; None: what the model needs."""


class EncodePlan(msgspec.Struct, frozen=True):
    """Encoders for images and sound."""

    servers: int
    fixed_s: float
    per_token_s: float


class StartupPlan(msgspec.Struct, frozen=True):
    """How long a new server loads before it is ready: normal, never below 0."""

    mean_s: float = 0.0
    stddev_s: float = 0.0


class ScenarioPlan(msgspec.Struct, frozen=True):
    """A whole scenario."""

    name: str
    seed: int
    duration_s: float | None
    """None: the run ends when every request has ended."""
    model: str | None
    workload: tuple[Entry, ...]
    slos: dict[str, SloPlan]
    """Every class that requests may have, built-in and the file's own, by name."""
    pools: tuple[PoolPlan, ...]
    router: RouterSettings
    gateway: GatewaySettings
    split: SplitPlan | None
    encode: EncodePlan | None
    sha256: str
    """Digest of everything the file and the overrides say, whatever the file is called."""
    folder: Path
    """Where the file is: paths in it count from there."""
    startup: StartupPlan = StartupPlan()
    drain: str = "wait"
    """What a server that is to go does with its requests: wait, redirect or immediate."""
    retry_attempts: int = 1
    """How often a request begins anew whose server is lost, or answers 429."""
    retry_backoff_s: float = 1.0
    """How long the latter waits the first time; then twice as long every time."""
    scaling: ScalingSetup | None = None
    """None: the servers are those that a run begins with."""
    ground: GroundPlan | None = None
    """None: servers stand on nothing."""
    faults: tuple[InjectedFault, ...] = ()
    planning: PlanSettings | None = None
    """What `windtunnel plan` chooses from; a run does without it."""

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
    def sources(self) -> tuple[Source, ...]:
        """The synthetic ones."""
        return tuple(entry for entry in self.workload if isinstance(entry, Source))

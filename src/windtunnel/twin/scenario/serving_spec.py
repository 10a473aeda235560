"""What a person writes under `serving:`; engine defaults are those of vLLM, or of BLIS."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from windtunnel.admission.gateway.settings import AlwaysSettings, GatewaySettings
from windtunnel.routing.settings import RouterSettings
from windtunnel.settings.fields import (
    Duration,
    Flag,
    Name,
    Number,
    Size,
    Text,
    Whole,
    chosen_by,
    variant,
)
from windtunnel.settings.limits import (
    HIGHEST_PRICE,
    LARGEST_BLOCK,
    LONGEST_STEP_COST,
    LONGEST_TARGET,
    MOST_ATTEMPTS,
    MOST_BLOCKS,
    MOST_POOLS,
    MOST_REPLICAS,
    MOST_SEQUENCES,
    MOST_TENSOR_PARALLEL,
    MOST_TOKENS,
)
from windtunnel.settings.section import Section
from windtunnel.twin.scenario.disaggregation_spec import DisaggregationSpec, EncodeSpec
from windtunnel.twin.scenario.ground_plan import MAIN
from windtunnel.twin.scenario.lora_spec import LoraSpec
from windtunnel.twin.scenario.model_spec import ModelName
from windtunnel.twin.scenario.offload_spec import TierSpec

Cost = Annotated[float, Duration("0s", LONGEST_STEP_COST)]
Switch = Annotated[bool, Flag()]


class EngineSpec(Section):
    """The limits and the habits of one inference server."""

    max_num_seqs: Annotated[int, Whole(1, MOST_SEQUENCES)] = Field(
        default=256,
        description="Most requests in one batch. 256 suits any accelerator; "
        "vLLM takes 1024 where there are 70 GiB or more.",
    )
    max_num_batched_tokens: Annotated[int, Whole(1, MOST_TOKENS)] = Field(
        default=8192,
        description="Most tokens in one step. More finishes prompts sooner "
        "and makes running requests wait longer.",
    )
    block_size: Annotated[int, Whole(1, LARGEST_BLOCK)] = Field(
        default=16, description="Tokens in one block of the KV cache."
    )
    memory_utilization: Annotated[float, Number(0, 1, above=True)] = Field(
        default=0.9,
        description="Part of the accelerator's memory that the server may take; "
        "the rest is for what it cannot foresee.",
    )
    prefix_caching: Switch = Field(
        default=True, description="Whether blocks of finished prompts are kept and found again."
    )
    chunked_prefill: Switch = Field(
        default=True,
        description="Whether a prompt may be split over steps. "
        "Without it, a prompt waits until it fits whole.",
    )
    long_prefill_threshold: Annotated[int, Whole(0, MOST_TOKENS)] = Field(
        default=0,
        description="Most prompt tokens of one request in one step, "
        "so that long prompts leave room; 0: no such limit.",
    )
    max_model_len: Annotated[int, Whole(2, MOST_TOKENS)] | None = Field(
        default=None,
        description="Most tokens of one request, prompt and output; left out: the model's own.",
    )
    scheduling: Literal["fcfs", "priority", "shortest-prompt"] = Field(
        default="fcfs",
        description="Who is first in line: the first to come, the highest priority, "
        "or the shortest prompt.",
    )
    preemption: Literal["recompute", "restart"] = Field(
        default="recompute",
        description="What happens to a request that must give its blocks back: it is computed "
        "again and keeps its tokens, or it starts over, first token and all. "
        "`restart` needs async_scheduling: false.",
    )
    over_length: Literal["cut", "refuse"] = Field(
        default="cut",
        description="What happens to a request whose prompt and answer pass max_model_len: "
        "the answer is cut short there, or the request is dropped.",
    )
    async_scheduling: Switch = Field(
        default=True,
        description="Whether the next step is planned while one runs: hides host_overhead, "
        "and a request that arrives during a step joins the one after the next.",
    )
    kv_blocks: Annotated[int | Literal["auto"], Whole(2, MOST_BLOCKS, word="auto")] = Field(
        default="auto",
        description="Blocks of the KV cache. `auto`: what memory holds beside the weights.",
    )
    null_block: Switch = Field(
        default=True,
        description="Whether one of the blocks is never handed out, as in vLLM.",
    )
    host_overhead: Cost = Field(
        default=0.0,
        description="Time the host needs to plan one step; 0s because it is usually hidden.",
    )
    reserve_full_prompt: Switch = Field(
        default=True,
        description="Whether a request is admitted only when its whole prompt fits now, "
        "not just its first chunk.",
    )
    unhashed_blocks_first: Switch = Field(
        default=True,
        description="Whether freed blocks that no prefix can use again are the first to be taken.",
    )
    compute_whole_hits: Switch = Field(
        default=True,
        description="Whether a prompt of full blocks that are all cached computes its last block "
        "again. If not, it is answered at once and without holding those blocks; "
        "needs async_scheduling: false.",
    )
    store_last_token: Switch = Field(
        default=False,
        description="Whether the last token of an answer, which nothing follows, "
        "takes a place in the KV cache before the request lets go of it; "
        "needs async_scheduling: false.",
    )
    last_step_blocks: Switch = Field(
        default=True,
        description="Whether a step in which every request ends must be over before a newcomer's "
        "starts. If not, the two overlap; needs async_scheduling: false.",
    )
    lora: LoraSpec | None = Field(
        default=None,
        description="Slots for LoRA adapters, for workloads that ask for some; left out: none.",
    )
    offload: list[TierSpec] | None = Field(
        default=None,
        min_length=1,
        max_length=3,
        description="Slower tiers, from fast to slow, that keep cached blocks which the "
        "accelerator evicts, and give them back; left out: they are lost.",
    )
    kv_bytes_per_token: Annotated[float, Size("1B", "1GB")] | None = Field(
        default=None,
        description="KV of one token, for `offload`. Left out: what the model needs.",
    )


class PhysicsStepTime(Section):
    """From the model's shape, the accelerator's peaks and a measured profile of efficiencies."""

    model: Literal["physics"]
    profile: Annotated[str, Text("the name of a profile, or the path of its JSON file")] | None = (
        Field(
            default=None,
            description="Which measured profile; left out: the one for the pool's accelerator. "
            "A path (it ends in .json, or starts with '.' or '/') "
            "counts from the scenario's folder.",
        )
    )


class RooflineStepTime(Section):
    """The larger of compute time and memory time at the accelerator's peaks, and nothing else."""

    model: Literal["roofline"]


class LinearStepTime(Section):
    """A fixed cost plus a cost per unit of work, as you measured them; needs no accelerator."""

    model: Literal["linear"]
    fixed: Cost = Field(default=0.0, description="Time of every step.")
    per_prefill_token: Cost = Field(default=0.0, description="Time per prompt token computed.")
    per_decode: Cost = Field(default=0.0, description="Time per request that generates a token.")
    per_context_token: Cost = Field(
        default=0.0, description="Time per token that generating requests have in the cache."
    )


class TableStepTime(Section):
    """Step times measured on a grid, and interpolated."""

    model: Literal["table"]
    path: Annotated[str, Text("the path of a table of step times")] = Field(
        description="A folder of kernel tables, or a file of whole steps as `windtunnel profile` "
        "writes them; a relative path counts from the scenario's folder."
    )
    per_step: Cost = Field(
        default=0.0,
        description="Time of every step that the measurements do not show; "
        "`windtunnel calibrate --replay` finds it.",
    )


Coefficient = Annotated[float, Number(0, 1e12)]


class BlisTrainedPhysicsStepTime(Section):
    """The formula and coefficients of BLIS, to compare with it; `engine` gets its defaults too."""

    model: Literal["blis-trained-physics"]
    alpha: list[Coefficient] | None = Field(
        default=None,
        min_length=3,
        max_length=3,
        description="Three overheads in microseconds: queueing, completion, per token; "
        "left out: the published ones.",
    )
    beta: list[Coefficient] | None = Field(
        default=None,
        min_length=11,
        max_length=11,
        description="Eleven coefficients of the step's terms; left out: the published ones.",
    )


StepTime = Annotated[
    Annotated[PhysicsStepTime, variant("physics")]
    | Annotated[RooflineStepTime, variant("roofline")]
    | Annotated[LinearStepTime, variant("linear")]
    | Annotated[TableStepTime, variant("table")]
    | Annotated[BlisTrainedPhysicsStepTime, variant("blis-trained-physics")],
    chosen_by("model", "physics", "roofline", "linear", "table", "blis-trained-physics"),
]


class OverheadsSpec(Section):
    """Time that passes outside the accelerator, around a request."""

    queueing: Cost = Field(default=0.0, description="From arrival at a server to its queue.")
    per_token: Cost = Field(default=0.0, description="From a token's end of step to the client.")
    completion: Cost = Field(
        default=0.0, description="From the last token to the end of the request."
    )


class PoolSpec(Section):
    """Servers that can stand in for each other."""

    name: Annotated[str, Name()] = Field(description="Its name in results.")
    model: ModelName | None = Field(
        default=None,
        description="The model that its servers serve; left out: the scenario's. "
        "A request goes to servers of its own model alone.",
    )
    cluster: Annotated[str, Name()] = Field(
        default=MAIN,
        description="Where its servers are. One router chooses among all clusters; a prompt that "
        "is computed apart is computed in the cluster where it is answered.",
    )
    role: Literal["both", "prefill", "decode"] = Field(
        default="both",
        description="What its servers do: `prefill` computes prompts, `decode` writes answers from "
        "KV that was computed elsewhere, `both` does either.",
    )
    replicas: Annotated[int, Whole(0, MOST_REPLICAS)] = Field(
        default=1,
        description="How many servers. Under `scaling`, how many there are when the run begins; "
        "0 is allowed there alone.",
    )
    accelerator: Annotated[str, Text("the name of an accelerator, such as h200")] | None = Field(
        default=None,
        description="What they run on, a catalog name. "
        "Needed by every step time but `linear`, and for `kv_blocks: auto`.",
    )
    tensor_parallel: Annotated[int, Whole(1, MOST_TENSOR_PARALLEL)] = Field(
        default=1, description="Accelerators that one server spreads the model over."
    )
    clique: (
        Annotated[str, Text("a clique, a scaling group or a set of the manifests, or SET/NAME")]
        | None
    ) = Field(
        default=None,
        description="What its replicas are, under `gangs`: pods of a clique, replicas of a scaling "
        "group, or replicas of a whole set.",
    )
    priority: Annotated[int, Whole(-1_000_000, 1_000_000)] | None = Field(
        default=None,
        description="Who gets machines of `fleet` first: a higher one takes them from a lower "
        "one. Left out: 0, or what the priority class of its set says.",
    )
    expert_parallel: Switch = Field(
        default=False,
        description="Whether each of them holds whole experts of a mixture model, and tokens "
        "travel to their experts, instead of a part of every expert.",
    )
    price_per_hour: Annotated[float, Number(0, HIGHEST_PRICE)] | None = Field(
        default=None,
        description="Dollars for an hour of one accelerator; left out: the catalog's example. "
        "A pool with neither costs nothing.",
    )
    engine: EngineSpec = Field(
        default_factory=EngineSpec, description="The inference server; left out: every default."
    )
    step_time: StepTime = Field(
        default_factory=lambda: PhysicsStepTime(model="physics"),
        description="How long a step takes; `model` chooses how that is known. Left out: physics.",
    )
    overheads: OverheadsSpec = Field(
        default_factory=OverheadsSpec, description="Time around a request; left out: none."
    )


class ClusterSpec(Section):
    """A place with servers, at some distance."""

    latency: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        description="Time on the network from the router to its servers, and again from there to "
        "the client."
    )


class LoadSpec(Section):
    """A time that is drawn for every server: normal, and never below 0."""

    mean: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        description="Its mean: of a model of some 8B parameters from a local disk, a minute or so."
    )
    stddev: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        default=0.0, description="Its standard deviation; 0s: always the mean."
    )


class StartupSpec(Section):
    """What a new server does before it is ready. It is paid for from the beginning of it."""

    load: LoadSpec = Field(description="How long it loads the model.")


class DrainSpec(Section):
    """What a server that is to go does with the requests that it has."""

    policy: Literal["wait", "redirect", "immediate"] = Field(
        default="wait",
        description="`wait` finishes all of them; `redirect` sends those back to the router that "
        "it has not begun with; `immediate` sends all of them back, and they begin anew.",
    )


class RetriesSpec(Section):
    """What becomes of requests whose server is lost with them, or answers 429."""

    attempts: Annotated[int, Whole(0, MOST_ATTEMPTS)] = Field(
        default=1,
        description="How often a request begins anew, with its prompt, on another server; after "
        "that it is dropped, or rejected if its server answered 429. 0: never. Its timeout keeps "
        "running.",
    )
    backoff: Annotated[float, Duration("0s", LONGEST_TARGET)] = Field(
        default=1.0,
        description="How long a request waits whose server answered 429 before it is sent again; "
        "twice as long every time, an hour at most.",
    )


class ServingSpec(Section):
    """The servers, and what stands before them."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, data: object) -> object:
        """As in sections that may be absent, so that `--set` can take any of them out."""
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None or key not in ("router", "admission", "clusters")
        }

    pools: list[PoolSpec] = Field(
        min_length=1, max_length=MOST_POOLS, description="Groups of equal servers."
    )
    clusters: dict[Annotated[str, Name()], ClusterSpec] = Field(
        default_factory=dict,
        description="How far clusters are away, by name; one that is left out is next door.",
    )
    router: RouterSettings = Field(
        default_factory=RouterSettings,
        description="How a server is chosen; left out: each in turn.",
    )
    admission: GatewaySettings = Field(
        default_factory=lambda: AlwaysSettings(policy="always"),
        description="Who is let in, and when; `policy` chooses how. Left out: everyone, at once.",
    )
    disaggregation: DisaggregationSpec | None = Field(
        default=None,
        description="How prompts are computed apart from answers. Left out, and there are pools "
        "with the roles `prefill` and `decode`: every default of this section.",
    )
    encode: EncodeSpec | None = Field(
        default=None,
        description="Encoders for images and sound; left out, media are only more prompt tokens.",
    )
    startup: StartupSpec | None = Field(
        default=None,
        description="What servers do before they are ready that `scaling` adds, or that start in "
        "the place of lost ones; left out: they are ready at once. Those that a run begins with "
        "are ready.",
    )
    drain: DrainSpec | None = Field(
        default=None,
        description="What servers do that `scaling` takes away; left out: `wait`.",
    )
    retries: RetriesSpec | None = Field(
        default=None,
        description="What becomes of requests whose server is lost; left out: each begins anew "
        "once.",
    )

"""Settings of a router: the keys of `serving.router`, and the rules between them."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, field_serializer
from pydantic_core.core_schema import FieldSerializationInfo

from windtunnel.core.errors import nearest
from windtunnel.routing.build import (
    ALIASES,
    BY_CACHE,
    DEFAULT_SCORERS,
    POLICIES,
    SCORERS,
    reads_signals,
)
from windtunnel.routing.custom import is_custom
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import (
    Duration,
    Leaf,
    Number,
    Share,
    Text,
    Whole,
    chosen_by,
    is_not,
    variant,
)
from windtunnel.settings.limits import (
    LARGEST_WEIGHT,
    LONGEST_STALENESS,
    MOST_REPLICAS,
    MOST_SEQUENCES,
    MOST_TOKENS,
    MOST_VIRTUAL_NODES,
)
from windtunnel.settings.section import Added, Context, Section

DEFAULT_THRESHOLD = 16
"""Uncached prompt tokens up to which a decode server computes the prompt itself."""


class ScorerName(Leaf):
    """The name of a scorer."""

    allowed = ", ".join((*SCORERS, *ALIASES))
    schema = {"enum": [*SCORERS, *ALIASES]}  # noqa: RUF012 - a constant that no instance changes

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"))
        if value not in SCORERS and value not in ALIASES:
            hint = nearest(value, (*SCORERS, *ALIASES)) if len(value) < 100 else None
            self.fail(is_not(value, "a scorer"), hint)
        return value


class PolicyName(Text):
    """The name of a policy, or of a class."""

    def __init__(self) -> None:
        super().__init__(f"{', '.join(POLICIES)}, or a class of your own as package.module:Class")

    def check(self, value: object) -> str:
        name = super().check(value)
        if name not in POLICIES and not is_custom(name):
            self.fail(f"{name!r} is not a policy", nearest(name, POLICIES))
        return name


class ActiveRequestsFilterSettings(Section):
    """Keeps servers with few requests in flight."""

    kind: Literal["active-requests"]
    max: Annotated[int, Whole(0, MOST_SEQUENCES)] = Field(description="Most requests in flight.")


class QueueDepthFilterSettings(Section):
    """Keeps servers with short queues, as last observed."""

    kind: Literal["queue-depth"]
    max: Annotated[int, Whole(0, MOST_SEQUENCES)] = Field(description="Most queued requests.")


class KvUtilizationFilterSettings(Section):
    """Keeps servers with free KV cache, as last observed."""

    kind: Literal["kv-utilization"]
    max: Annotated[float, Share()] = Field(description="Largest share of KV blocks in use.")


class LoraFilterSettings(Section):
    """Keeps servers with the request's adapter."""

    kind: Literal["lora-affinity"]


class PrefixCacheFilterSettings(Section):
    """Keeps servers with most of the prompt cached, unless they are much busier."""

    kind: Literal["prefix-cache"]
    share: Annotated[float, Share(above=True)] = Field(
        default=0.8, description="Share of the prompt that must be cached."
    )
    penalty_s: Annotated[float, Duration("0s", LONGEST_STALENESS)] = Field(
        default=18.0,
        description="How much longer a request may wait there, by prompt tokens in flight over "
        "prefill_tokens_per_s.",
    )
    prefill_tokens_per_s: Annotated[float, Number(1, 1e9)] = Field(
        default=15928.0,
        description="Prompt tokens per second of a server; the default is llm-d's.",
    )


FilterSettings = Annotated[
    Annotated[ActiveRequestsFilterSettings, variant("active-requests")]
    | Annotated[QueueDepthFilterSettings, variant("queue-depth")]
    | Annotated[KvUtilizationFilterSettings, variant("kv-utilization")]
    | Annotated[LoraFilterSettings, variant("lora-affinity")]
    | Annotated[PrefixCacheFilterSettings, variant("prefix-cache")],
    chosen_by(
        "kind", "active-requests", "queue-depth", "kv-utilization", "lora-affinity", "prefix-cache"
    ),
]


class SplitSettings(Section):
    """Which requests have their prompt computed on a server other than the decode server."""

    decider: Literal["always", "never", "prefix-threshold"] = Field(
        default="always",
        description="Which requests are split; `prefix-threshold`: with more than `threshold` "
        "prompt tokens not cached at the decode server.",
    )
    threshold: Annotated[int, Whole(0, MOST_TOKENS)] | None = Field(
        default=None, description="Tokens, for `prefix-threshold`. Default: 16."
    )

    @property
    def prefix_threshold(self) -> int:
        return DEFAULT_THRESHOLD if self.threshold is None else self.threshold

    def check(self, where: Context) -> Iterator[Fault]:
        if self.threshold is not None and self.decider != "prefix-threshold":
            what = f"the decider is {self.decider!r}, which has no use for it"
            yield where.note("threshold", what, "set decider: prefix-threshold, or leave it out")


class RouterSettings(Section):
    """Which server a request goes to."""

    policy: Annotated[str, PolicyName()] = Field(
        default="round-robin",
        description="How a server is chosen.",
    )
    scorers: dict[
        Annotated[str, ScorerName()], Annotated[float, Number(0, LARGEST_WEIGHT, above=True)]
    ] = Field(
        default_factory=lambda: dict(DEFAULT_SCORERS),
        description="With `weighted`: scorers and their weights. Default: prefix-cache 2, "
        "queue-depth 1, kv-utilization 1.",
    )
    filters: Annotated[list[FilterSettings], Added()] = Field(
        default_factory=list,
        max_length=20,
        description="With `weighted`: filters, applied in order.",
    )
    picker: Annotated[Literal["max-score", "weighted-random", "random"], Added()] = Field(
        default="max-score",
        description="With `weighted`: the highest score, random by score, or any that passed the "
        "filters.",
    )
    staleness_s: Annotated[float, Duration("0s", LONGEST_STALENESS)] = Field(
        default=0.05,
        description="How old probed load may be. For `weighted`, your own classes, and admission "
        "by load.",
    )
    cache_delay_s: Annotated[float, Duration("0s", LONGEST_STALENESS)] = Field(
        default=0.05,
        description="How old the index of cached prefixes may be.",
    )
    counterfactual: Annotated[int, Whole(0, MOST_REPLICAS)] = Field(
        default=0,
        description="Score this many other servers per request on fresh signals, to report regret.",
    )
    virtual_nodes: Annotated[int, Whole(1, MOST_VIRTUAL_NODES)] = Field(
        default=100,
        description="With `consistent-hash`: virtual nodes per server.",
    )
    load_factor: Annotated[float, Number(1, 100)] = Field(
        default=1.25,
        description="With `consistent-hash`: how many times the mean load a server may have.",
    )

    @field_serializer(
        "scorers", "staleness_s", "cache_delay_s", "virtual_nodes", "load_factor", when_used="json"
    )
    def _as_written(self, value: object, field: FieldSerializationInfo) -> object:
        """Serializes options of some policies as null unless written, to keep digests stable."""
        return value if self.written(field.field_name) else None

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the scorers by their main names."""
        return {ALIASES.get(name, name): weight for name, weight in self.scorers.items()}

    @property
    def reads_caches(self) -> bool:
        """Whether a scorer or a filter reads the index of cached prefixes."""
        filters = (one.kind == "prefix-cache" for one in self.filters)
        return any(name in BY_CACHE for name in self.weights) or any(filters)

    def check(self, where: Context) -> Iterator[Fault]:
        """Reports every option that the chosen policy does not use."""
        # The age of signals also matters to a gateway that reads them.
        usable = self._usable(watched=where.root.serving.admission.reads_signals)
        if not self.scorers:
            yield where.fault("scorers", "there is no scorer", "at least one")
        for alias, name in ALIASES.items():
            if alias in self.scorers and name in self.scorers:
                what = f"it is an alias of {name!r}, which is also listed"
                yield where.fault(("scorers", alias), what)
        for name, (used, needs) in usable.items():
            if self.written(name) and not used:
                key = type(self).model_fields[name].alias or name
                what = f"{self.policy} has no use for it"
                yield where.note(key, what, f"only with {needs}")

    def _usable(self, *, watched: bool) -> dict[str, tuple[bool, str]]:
        """For each option, whether it has an effect, and with which settings it has one."""
        own = self.policy not in POLICIES
        weighted = self.policy == "weighted"
        ring = (self.policy == "consistent-hash", "policy: consistent-hash")
        return {
            "scorers": (weighted, "policy: weighted"),
            "filters": (weighted, "policy: weighted"),
            "picker": (weighted, "policy: weighted"),
            "staleness_s": (
                own or watched or (weighted and self._reads_signals()),
                "policy: weighted with a scorer that looks at servers, such as queue-depth, a "
                "class of your own, or an admission that looks at servers",
            ),
            "cache_delay_s": (
                own or (weighted and self.reads_caches),
                f"policy: weighted with {' or '.join(BY_CACHE)}, or a class of your own",
            ),
            "virtual_nodes": ring,
            "load_factor": ring,
        }

    def _reads_signals(self) -> bool:
        reading = ("queue-depth", "kv-utilization", "lora-affinity")
        by_filter = any(one.kind in reading for one in self.filters)
        return by_filter or any(map(reads_signals, self.weights))

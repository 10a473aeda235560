"""Settings that every autoscaler shares: timing, bounds of pools, and limits on changes.

A policy is a subclass of `PolicySettings`, in one file with its constructor (`parts`), and a row in
the table of `build.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.units import format_duration
from windtunnel.scaling.limiters import (
    Limiter,
    MatchedRolesLimiter,
    RateLimiter,
    SustainedLimiter,
    ZeroAfterLimiter,
)
from windtunnel.scaling.optimizers import CostOrdered, Optimizer
from windtunnel.scaling.policy import Policy, PolicyParts
from windtunnel.settings.document import KeyPath
from windtunnel.settings.drawing import Dice, Values, draw_section
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Flag, Name, Number, Text, Whole
from windtunnel.settings.limits import (
    LONGEST_RUN,
    LONGEST_STALENESS,
    LONGEST_TARGET,
    MOST_REPLICAS,
    MOST_TENSOR_PARALLEL,
)
from windtunnel.settings.section import Context, Section

Switch = Annotated[bool, Flag()]
Delay = Annotated[float, Duration("0s", LONGEST_STALENESS)]
Window = Annotated[float, Duration("0s", LONGEST_TARGET)]
Period = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]
Replicas = Annotated[int, Whole(0, MOST_REPLICAS)]
Step = Annotated[int, Whole(1, MOST_REPLICAS)]
AcceleratorCount = Annotated[int, Whole(0, MOST_REPLICAS * MOST_TENSOR_PARALLEL)]
PoolName = Annotated[str, Name()]
Cost = Annotated[float, Number(0, 10**9)]


class ScaledPool(Protocol):
    """The properties of a pool that the rules of this section need."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def replicas(self) -> int: ...
    @property
    def accelerator(self) -> str | None: ...
    @property
    def gpus(self) -> int: ...
    @property
    def model(self) -> str | None: ...


class ActuationDelay(Section):
    """The delay from a decision until the cluster acts on it: normal, never below 0."""

    mean_s: Delay = Field(default=0.0, description="Mean.")
    stddev_s: Delay = Field(default=0.0, description="Standard deviation.")


class PoolBounds(Section):
    """The smallest and largest size of a pool."""

    min: Replicas = Field(
        default=1,
        description="Fewest replicas; 0 allows scaling to zero.",
    )
    max: Replicas = Field(default=MOST_REPLICAS, description="Most replicas.")


class OptimizerSettings(Section):
    """Which pool grows first, and which shrinks first, among several of the same role."""

    order: Literal["price-per-capacity", "price"] = Field(
        default="price-per-capacity",
        description="The cheapest grows first, the most expensive shrinks first.",
    )
    engine: Literal["greedy", "unlimited"] = Field(
        default="greedy",
        description="`greedy`: only free accelerators, else the next pool; `unlimited`: any "
        "number.",
    )


class Stabilization(Section):
    """How long a direction must be recommended, tick after tick, before it is followed."""

    up_s: Window = Field(default=0.0, description="For more replicas.")
    down_s: Window = Field(default=300.0, description="For fewer replicas; 5m as in Kubernetes.")


class RateSettings(Section):
    """How fast a pool, or the pools of a role together, may change."""

    up: Step | None = Field(
        default=None, description="Most replicas added per period. Default: any number."
    )
    down: Step | None = Field(
        default=None, description="Most replicas removed per period. Default: any number."
    )
    period_s: Period = Field(default=60.0, description="The period.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.up is None and self.down is None:
            what = "neither up nor down is limited"
            yield where.fault((), what, hint="give one of them, or leave it out")


class PolicyKey(Section):
    """The key that selects a policy."""

    policy: str = Field(description="Chooses this.")


class ScalerTiming(Section):
    """When an autoscaler decides, and how late it observes and acts."""

    interval_s: Period = Field(
        default=15.0, description="Time between decisions; 15s as in Kubernetes."
    )
    scrape_delay_s: Delay = Field(default=0.0, description="Age of metrics at a decision.")
    freshness_s: Period | None = Field(
        default=None,
        description="Metrics older than this are ignored. Default: the scrape delay plus three "
        "intervals.",
    )
    actuation_delay: ActuationDelay = Field(
        default_factory=ActuationDelay,
        description="From a decision until the cluster acts: normal, at least 0.",
    )
    wake: Switch = Field(
        default=True,
        description="Whether waiting requests start a replica of an empty pool, and the last "
        "stays while there is work.",
    )

    @property
    def oldest_s(self) -> float:
        """The age up to which a snapshot is accepted."""
        if self.freshness_s is None:
            return self.scrape_delay_s + 3 * self.interval_s
        return self.freshness_s

    def check(self, where: Context) -> Iterator[Fault]:
        if self.freshness_s is not None and self.freshness_s < self.scrape_delay_s:
            delay = format_duration(self.scrape_delay_s)
            what = f"less than scrape_delay, which is {delay}: nothing would ever be believed"
            yield where.fault("freshness", what, beside=("scrape_delay",))


class PolicySettings(ScalerTiming, PolicyKey):
    """Settings of every policy: timing, bounds, and limits on changes."""

    patience: ClassVar[Stabilization | None] = None
    """The default of `stabilization`; None: the policy has windows of its own."""
    unused: ClassVar[dict[str, str]] = {}
    """Keys of this class that the policy does not use, with a hint for each."""

    pools: dict[PoolName, PoolBounds] = Field(
        default_factory=dict,
        description="Bounds by pool. Others have at least one replica and no maximum.",
    )
    accelerators: dict[Annotated[str, Text("the accelerator of a pool")], AcceleratorCount] = Field(
        default_factory=dict,
        description="Accelerators of all pools by name; others are unlimited.",
    )
    optimizer: OptimizerSettings | None = Field(
        default=None, description="Which pool grows and shrinks. Default: the policy's choice."
    )
    stabilization: Stabilization | None = Field(
        default=None,
        description="How long a direction must be recommended. Default: the policy's value.",
    )
    rate: RateSettings | None = Field(
        default=None,
        description="Limits on how fast a pool or role may change.",
    )
    zero_after_s: Annotated[float, Duration("0s", LONGEST_RUN)] | None = Field(
        default=None,
        description="With `min: 0`: idle time before the last replica is removed.",
    )
    matched_roles: Switch = Field(
        default=False,
        description="Whether prefill and decode grow in proportion when one is limited.",
    )

    def parts(self) -> PolicyParts:
        """The analyzers, the optimizer and the limiters of the policy itself, without memory."""
        raise NotImplementedError

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        """Yields the faults in the policy's own options, given the names of the pools."""
        return iter(())

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        """Draws the policy's own options for a scenario of the fuzzer, given the names of pools.

        By the declaration of each; a policy whose options are required, or depend on each other,
        draws them itself.
        """
        own = [name for name in cls.model_fields if name not in PolicySettings.model_fields]
        return draw_section(dice, cls, own)

    @property
    def windows(self) -> Stabilization | None:
        """How long a direction must be recommended; None: the policy has windows of its own."""
        return self.stabilization or self.patience

    def window_down(self) -> tuple[str, float | None]:
        """The key of the window before it shrinks, and its length; None: it has none."""
        windows = self.windows
        return "stabilization.down", None if windows is None else windows.down_s

    def build(self, only: list[str] | None = None) -> Policy:
        """Builds the policy before its first tick; `only`: the pools that it decides."""
        own = self.parts()
        limiters: list[Limiter] = list(own.limiters)
        windows = self.windows
        if windows is not None:
            limiters.append(SustainedLimiter(windows.up_s, windows.down_s))
        if self.matched_roles and not any(isinstance(one, MatchedRolesLimiter) for one in limiters):
            limiters.append(MatchedRolesLimiter())
        if self.rate is not None:
            limiters.append(RateLimiter(self.rate.up, self.rate.down, self.rate.period_s))
        if self.zero_after_s is not None:
            limiters.append(ZeroAfterLimiter(self.zero_after_s))
        parts = PolicyParts(own.analyzers, self._optimizer(own), limiters, grouping=own.grouping)
        return Policy(self.policy, parts, wake=self.wake, only=only)

    def bounds_of(self, pool: str) -> PoolBounds:
        return self.pools.get(pool, PoolBounds())

    def _optimizer(self, own: PolicyParts) -> Optimizer:
        if self.optimizer is None:
            return own.optimizer
        return CostOrdered(order=self.optimizer.order, engine=self.optimizer.engine)

    def check(self, where: Context) -> Iterator[Fault]:
        """Yields faults: unknown names, contradictory values, and options without effect."""
        yield from super().check(where)
        pools: Sequence[ScaledPool] = where.root.serving.pools
        starts = {pool.name: pool.replicas for pool in pools}
        if where.path[:1] != ("scaling",):  # a candidate of a plan begins within its bounds
            starts = {name: self._within(name, size) for name, size in starts.items()}
        by_model: dict[str | None, list[ScaledPool]] = {}
        for pool in pools:
            by_model.setdefault(pool.model or where.root.model, []).append(pool)
        yield from self._bound_faults(where, pools, starts)
        for alike in by_model.values():
            yield from self._nobody_serves(where, alike)
        yield from self._accelerator_faults(where, pools, starts)
        yield from self._useless(where, list(by_model.values()))
        own = list(self.faults(where, list(starts)))
        yield from own
        if self.accelerators and not own and not self._minds_accelerators():
            what = f"{self.policy} grows whether accelerators are free or not"
            hint = "set optimizer: {engine: greedy}, or leave it out"
            yield where.note("accelerators", what, self.unused.get("optimizer", hint))

    def _minds_accelerators(self) -> bool:
        """Whether it grows only onto free accelerators."""
        try:
            optimizer = self._optimizer(self.parts())
        except InputError:  # an unknown metric, which is reported elsewhere
            return True
        return isinstance(optimizer, CostOrdered) and optimizer.greedy

    def _within(self, pool: str, size: int) -> int:
        bounds = self.bounds_of(pool)
        return min(max(size, bounds.min), max(bounds.max, bounds.min))

    def _bound_faults(
        self, where: Context, pools: Sequence[ScaledPool], starts: dict[str, int]
    ) -> Iterator[Fault]:
        yield from unknown_pools(where, "pools", self.pools, list(starts))
        for name, bounds in self.pools.items():
            if bounds.min > bounds.max:
                what = f"{bounds.min} is more than max, which is {bounds.max}"
                because = ((*where.path, "pools", name, "max"),)
                yield where.fault(("pools", name, "min"), what, because_of=because)
        for index, pool in enumerate(pools):
            bounds, size = self.bounds_of(pool.name), starts[pool.name]
            if bounds.min <= bounds.max and not bounds.min <= size <= bounds.max:
                what = f"{size} is outside the bounds of its scaling"
                allowed = f"from {bounds.min} to {bounds.max}"
                path = ("serving", "pools", index, "replicas")
                because = ((*where.path, "pools", pool.name),)
                yield Fault(path, what, allowed, because_of=because)

    def _nobody_serves(self, where: Context, pools: Sequence[ScaledPool]) -> Iterator[Fault]:
        bounds = {pool.name: self.bounds_of(pool.name) for pool in pools}
        what = nobody_serves(pools, bounds)
        if what:
            empty = next(name for name, own in bounds.items() if not own.max)
            hint = "give one of them a max of at least 1"
            yield where.fault(("pools", empty, "max"), what, hint=hint)

    def _accelerator_faults(
        self, where: Context, pools: Sequence[ScaledPool], starts: dict[str, int]
    ) -> Iterator[Fault]:
        used: dict[str, int] = {}
        for pool in pools:
            if pool.accelerator is not None:
                taken = used.get(pool.accelerator, 0)
                used[pool.accelerator] = taken + starts[pool.name] * pool.gpus
        for kind, there in self.accelerators.items():
            path = ("accelerators", kind)
            if kind not in used:
                names = ", ".join(used) or "none: no pool has an accelerator"
                what = "no pool has this accelerator"
                yield where.fault(path, what, names, nearest(kind, list(used)))
            elif there < used[kind]:
                what = f"{there} are fewer than the pools have at the start, which is {used[kind]}"
                yield where.fault(path, what, because_of=(("serving", "pools"),))

    def _useless(self, where: Context, by_model: Sequence[Sequence[ScaledPool]]) -> Iterator[Fault]:
        """Yields notes about settings without effect."""
        smallest = min(self.bounds_of(pool.name).min for alike in by_model for pool in alike)
        if self.zero_after_s is not None and smallest > 0:
            what = "no pool may go to zero"
            hint = "set min: 0 for one under scaling.pools, or leave it out"
            yield where.note("zero_after", what, hint)
        if self.matched_roles and all(len({one.role for one in alike}) == 1 for alike in by_model):
            yield where.note("matched_roles", "all pools have the same role", "leave it out")
        for key, hint in self.unused.items():
            if getattr(self, key) is not None:
                yield where.note(key, f"{self.policy} does not use it", hint)


def nobody_serves(pools: Sequence[ScaledPool], bounds: dict[str, PoolBounds]) -> str:
    """The fault if no request could ever be served; empty if there is none."""
    for role, does in (("prefill", "computes prompts"), ("decode", "writes answers")):
        able = [pool.name for pool in pools if pool.role in ("both", role)]
        if able and not any(bounds[name].max for name in able):
            return f"no pool that {does} may have a server: nothing would ever be served"
    return ""


def unknown_pools(
    where: Context, key: str, named: Iterable[str], pools: Sequence[str]
) -> Iterator[Fault]:
    """Yields a fault for each name under a key that is not a pool."""
    for name in named:
        if name not in pools:
            allowed, hint = ", ".join(pools), nearest(name, pools)
            yield where.fault((key, name), "there is no such pool", allowed, hint)


def refusals(
    where: Context, key: str | KeyPath, call: Callable[..., object], *arguments: object
) -> Iterator[Fault]:
    """Yields a fault at a key if a call fails, such as for a metric that is not measured."""
    try:
        call(*arguments)
    except InputError as error:
        yield where.fault(key, error.what, error.allowed, error.hint)

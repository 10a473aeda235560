"""All deployments that a plan may choose from, each with bounds that no run can beat."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.routing.settings import RouterSettings
from windtunnel.search.plan.candidates.bounds import EngineBounds, Ruled, fewest_servers, ruled_out
from windtunnel.search.plan.candidates.choices import Choices, PlanBudget, Section, template_of
from windtunnel.search.plan.candidates.demand import ClassDemand
from windtunnel.search.plan.goal import Goal
from windtunnel.search.point import Origin, Settings
from windtunnel.search.settings import CountRange
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import limits_of, overheads_of, price_of, shape_of, step_time_of
from windtunnel.twin.settings import PoolSettings

MOST_CANDIDATES = 50_000
MOST_LANES = 5_000
AS_MANY = 8
"""Default limit on servers to try, as a multiple of the fewest that bounds allow."""
TOGETHER, SPLIT = "together", "prefill-decode"
SPLIT_ROLES = ("prefill", "decode")

DOES_NOT_FIT = "does-not-fit"
TOO_SLOW = "too-little-throughput"
OVER_BUDGET = "over-budget"


class Frame(NamedTuple):
    """A scenario with one shape, router and autoscaler, and its servers not yet chosen."""

    shape: str
    model: str | None
    """The chosen variant; None if there is only one."""
    router: str
    scaling: str | None
    settings: Settings
    plan: ScenarioPlan | None
    sentence: str


class Hardware(NamedTuple):
    """The hardware of every server of a kind, and the limits of its engine."""

    accelerator: str | None
    tensor_parallel: int
    max_num_seqs: int
    max_num_batched_tokens: int
    memory_utilization: float


OF_ENGINE = Hardware._fields[2:]


class ServerKind(msgspec.Struct, frozen=True):
    """A deployment except for its number of servers."""

    number: int
    frame: Frame
    hardware: Hardware
    settings: Settings
    sentence: str = ""
    plan: ScenarioPlan | None = None
    """None: it cannot be built; `sentence` says why."""
    prices: tuple[float, ...] = ()
    """Dollars per hour for one server of each pool; empty if no price is known."""
    accelerators: tuple[int, ...] = ()
    """Accelerators of one server of each pool."""
    ruled: Ruled | None = None
    fewest: int = 1
    """The fewest servers in all that have enough time for the work."""
    fewest_decode: int = 1

    @property
    def scales(self) -> bool:
        return self.frame.scaling is not None


class Candidate(NamedTuple):
    """A deployment: a kind, and the number of servers in each of its pools."""

    number: int
    kind: ServerKind
    servers: tuple[int, ...]
    over: str = ""
    """Why it exceeds the budget; empty if it does not."""

    @property
    def total(self) -> int:
        return sum(self.servers)

    @property
    def possible(self) -> bool:
        """Whether neither a bound nor the budget rules it out."""
        return self.carries and not self.over

    @property
    def carries(self) -> bool:
        """Whether no bound rules it out; an autoscaled deployment may grow beyond its first
        servers."""
        kind = self.kind
        if kind.plan is None or kind.ruled is not None:
            return False
        enough = self.total >= kind.fewest and self.servers[-1] >= kind.fewest_decode
        return kind.scales or enough

    def settings(self) -> Settings:
        """The settings that turn the scenario into this deployment."""
        kind = self.kind
        counts: list[tuple[str, Any]] = []
        pools = next((value for path, value in kind.settings if path == "serving.pools"), None)
        if isinstance(pools, list):
            whole = [
                {**pool, "replicas": count} if isinstance(pool, dict) else pool
                for pool, count in zip(pools, self.servers, strict=True)
            ]
            rest = [pair for pair in kind.settings if pair[0] != "serving.pools"]
            return (("serving.pools", whole), *rest)
        counts += [
            (f"serving.pools.{index}.replicas", count) for index, count in enumerate(self.servers)
        ]
        return (*counts, *kind.settings)

    def plan(self) -> ScenarioPlan:
        """The scenario with these servers."""
        whole = self.kind.plan
        assert whole is not None
        pools = tuple(
            pool.model_copy(update={"replicas": count})
            for pool, count in zip(whole.pools, self.servers, strict=True)
        )
        return whole.with_pools(pools)


def frames_of(origin: Origin, base: ScenarioPlan, choices: Choices) -> Iterator[Frame]:
    """Every combination of the choices that do not concern the servers themselves."""
    data = origin.data()
    shapes = [TOGETHER] * choices.together + [SPLIT] * (choices.prefill is not None)
    combined = itertools.product(shapes, choices.models, choices.routers, choices.scalers)
    for shape, model, router, scaler in combined:
        settings = [
            *_model_settings(base, model),
            *_shape_settings(base, data, shape, scaler),
            *_router_settings(router),
            *_scaling_settings(base, data, scaler),
        ]
        policy = base.router.policy
        if router is not None:
            policy = str(router.get("policy", RouterSettings.model_fields["policy"].default))
        scaling = _scaling_name(data, scaler)
        try:
            plan = origin.plan(tuple(settings), option="plan")
            plan = plan.changed(plan=None)
            yield Frame(shape, model, policy, scaling, tuple(settings), plan, "")
        except InputError as error:
            yield Frame(shape, model, policy, scaling, tuple(settings), None, str(error))


def _model_settings(base: ScenarioPlan, model: str | None) -> Iterator[tuple[str, Any]]:
    if model is None:
        return
    yield "model", model
    for index, pool in enumerate(base.pools):
        if pool.model not in (None, base.model):
            yield f"serving.pools.{index}.model", model


def _scaling_name(data: dict[str, Any], scaler: Section | None) -> str | None:
    if scaler is None:
        return None
    written = scaler or data["scaling"]  # an empty one is the scenario's own
    return str(written.get("policy", "manifests"))


def _shape_settings(
    base: ScenarioPlan, data: dict[str, Any], shape: str, scaler: Section | None
) -> Iterator[tuple[str, Any]]:
    have = SPLIT if len(base.pools) == 2 else TOGETHER
    if shape == have:
        for index, pool in enumerate(base.pools):
            yield f"serving.pools.{index}.replicas", _begin(scaler, pool.name, pool.replicas)
        return
    pools = data["serving"]["pools"]
    own = pools[[pool.name for pool in base.pools].index(template_of(base).name)]
    names = (("main", "both"),) if shape == TOGETHER else ((name, name) for name in SPLIT_ROLES)
    yield (
        "serving.pools",
        [
            {**own, "name": name, "role": role, "replicas": _begin(scaler, name, 1)}
            for name, role in names
        ],
    )
    if shape == TOGETHER and "disaggregation" in data["serving"]:
        yield "serving.disaggregation", None


def _begin(scaler: Section | None, pool: str, replicas: int) -> int:
    """A placeholder within the bounds of the autoscaler; the real number is chosen later."""
    bounds = (scaler or {}).get("pools", {}).get(pool, {})
    least = bounds.get("min", 1)
    return int(min(max(replicas, least), max(least, bounds.get("max", MOST_REPLICAS))))


def _router_settings(router: Section | None) -> Iterator[tuple[str, Any]]:
    if router is not None:
        yield "serving.router", router


def _scaling_settings(
    base: ScenarioPlan, data: dict[str, Any], scaler: Section | None
) -> Iterator[tuple[str, Any]]:
    if scaler is None and base.scaling is not None:
        yield "scaling", None
        for name in ("startup", "drain"):
            if name in data["serving"]:
                yield f"serving.{name}", None
    elif scaler:
        yield "scaling", scaler


Chosen = tuple[Any, ...]
"""The fields of `Hardware`; None: as in the pool."""


def kinds_of(
    origin: Origin,
    base: ScenarioPlan,
    choices: Choices,
    demands: Sequence[ClassDemand],
    goal: Goal,
) -> list[ServerKind]:
    """Every combination of choices, with its bounds."""
    frames = list(frames_of(origin, base, choices))
    hardware = [
        values
        for values in itertools.product(
            choices.accelerators,
            choices.tensor_parallel,
            choices.max_num_seqs,
            choices.max_num_batched_tokens,
            choices.memory_utilization,
        )
        if values[2] is None or values[3] is None or values[2] <= values[3]
    ]
    if len(frames) * len(hardware) > MOST_LANES:
        what = f"these are {len(frames) * len(hardware)} kinds of deployment"
        allowed = f"up to {MOST_LANES}"
        raise InputError(what, where="plan", allowed=allowed, hint="vary fewer settings at once")
    bounds = _Bounds(demands, goal, base)
    kinds: list[ServerKind] = []
    for frame, own in itertools.product(frames, hardware):
        kinds.append(_kind(len(kinds), frame, own, base, choices, bounds))
    return kinds


def _kind(
    number: int,
    frame: Frame,
    own: Chosen,
    base: ScenarioPlan,
    choices: Choices,
    bounds: "_Bounds",
) -> ServerKind:
    shown = _with(template_of(base), own, choices.prices)
    engine = (getattr(shown.engine, name) for name in OF_ENGINE)
    hardware = Hardware(_name_of(shown.accelerator), shown.tensor_parallel, *engine)
    kind = ServerKind(number, frame, hardware, frame.settings, frame.sentence)
    if frame.plan is None:  # of its pools, one or two, only the template is known
        price = price_of(shown)
        prices = () if price is None else (price * shown.gpus,) * 2
        return msgspec.structs.replace(kind, prices=prices, accelerators=(shown.gpus,) * 2)
    pools = [_with(pool, own, choices.prices) for pool in frame.plan.pools]
    changes = [_changes(old, new) for old, new in zip(frame.plan.pools, pools, strict=True)]
    asked = [price_of(pool) for pool in pools]
    each = tuple((price or 0.0) * pool.gpus for price, pool in zip(asked, pools, strict=True))
    kind = msgspec.structs.replace(
        kind,
        settings=_merged(frame.settings, changes),
        prices=each if None not in asked else (),
        accelerators=tuple(pool.gpus for pool in pools),
    )
    try:
        found = bounds.of(pools)
    except InputError as error:
        return msgspec.structs.replace(kind, sentence=error.what)
    ruled, fewest, decode = found
    plan = frame.plan.with_pools(pools)
    return msgspec.structs.replace(
        kind, plan=plan, ruled=ruled, fewest=fewest, fewest_decode=decode
    )


def _with(pool: PoolSettings, own: Chosen, prices: dict[str, float]) -> PoolSettings:
    """The pool on this hardware; KV blocks sized for other hardware are recomputed."""
    accelerator, degree, *options = own
    name, engine = _name_of(pool.accelerator), pool.engine
    wanted, degree = accelerator or name, degree or pool.tensor_parallel
    price = pool.price_per_hour if wanted == name else None
    changed = {key: value for key, value in zip(OF_ENGINE, options, strict=True) if value}
    if wanted != name or degree != pool.tensor_parallel:
        changed["kv_blocks"] = "auto"
    return pool.model_copy(
        update={
            "accelerator": pool.accelerator if wanted == name else wanted,
            "tensor_parallel": degree,
            "price_per_hour": price if wanted is None else prices.get(wanted, price),
            "engine": engine.model_copy(update=changed),
        }
    ).with_defaults_of(pool.model)


def _name_of(accelerator: str | None) -> str | None:
    """The name in the catalog."""
    return None if accelerator is None else resolve_accelerator(accelerator).name


def _changes(old: PoolSettings, pool: PoolSettings) -> dict[str, Any]:
    """The settings in which two pools differ."""
    own = ("accelerator", "tensor_parallel", "price_per_hour")
    values = [(name, getattr(pool, name), getattr(old, name)) for name in own]
    values += [
        (f"engine.{name}", getattr(pool.engine, name), getattr(old.engine, name))
        for name in (*OF_ENGINE, "kv_blocks")
        if pool.engine.written(name)  # otherwise it depends on the accelerator
    ]
    return {name: new for name, new, was in values if new != was}


def _merged(settings: Settings, changes: Sequence[dict[str, Any]]) -> Settings:
    """Merges the changes into the list of pools if that is set as a whole, else key by key."""
    merged: list[tuple[str, Any]] = []
    whole = False
    for path, value in settings:
        if path == "serving.pools" and isinstance(value, list):
            whole = True
            merged.append((path, [_put(p, c) for p, c in zip(value, changes, strict=True)]))
        elif not path.endswith(".replicas"):
            merged.append((path, value))
    if not whole:
        for index, own in enumerate(changes):
            merged += [(f"serving.pools.{index}.{key}", value) for key, value in own.items()]
    return tuple(merged)


def _put(pool: Any, changes: dict[str, Any]) -> Any:
    changed = {**pool, "engine": {**(pool.get("engine") or {})}}
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        (changed[section] if section else changed)[name] = value
    if not changed["engine"]:
        del changed["engine"]
    return changed


class _Bounds:
    """Bounds that no run can beat, computed once for all kinds with the same servers."""

    def __init__(
        self,
        demands: Sequence[ClassDemand],
        goal: Goal,
        base: ScenarioPlan,
    ) -> None:
        duration_s = base.duration_s
        self._serving = base.serving
        self._demands = demands
        self._goal = goal
        self._end_s = math.inf if duration_s is None else duration_s
        self._known: dict[tuple[str, ...], tuple[Ruled | None, int, int]] = {}

    def of(self, pools: Sequence[PoolSettings]) -> tuple[Ruled | None, int, int]:
        """Why none of these can attain the targets, if so; the fewest servers in all, and for
        decode."""
        key = tuple(pool.model_dump_json(exclude={"name", "replicas"}) for pool in pools)
        if key not in self._known:
            self._known[key] = self._of(pools)
        return self._known[key]

    def _of(self, pools: Sequence[PoolSettings]) -> tuple[Ruled | None, int, int]:
        if any(pool.engine.speculative for pool in pools):
            return None, len(pools), 1  # the number of tokens per step varies: no bounds
        engines = [self._engine(pool) for pool in pools]
        prefill, decode = engines[0], engines[-1]
        for demand in self._demands:
            ruled = ruled_out(prefill, decode, demand, self._goal.attained)
            if ruled is not None:
                return ruled, 1, 1
        fewest, writing = fewest_servers(decode, self._demands, self._goal.together, self._end_s)
        return None, max(len(pools), fewest), writing

    def _engine(self, pool: PoolSettings) -> EngineBounds:
        shape = shape_of(pool)
        model = step_time_of(pool, shape)
        overheads = overheads_of(pool, self._serving.network_s(pool))
        return EngineBounds(model, limits_of(pool, shape), overheads.queueing_s)


def candidates_of(
    kinds: Sequence[ServerKind], base: ScenarioPlan, choices: Choices
) -> list[Candidate]:
    """Every kind with every number of servers, in increasing order."""
    found: list[Candidate] = []
    for kind in kinds:
        for servers in _counts(kind, base, choices):
            over = _over(kind, servers, choices.budget)
            found.append(Candidate(len(found), kind, servers, over))
        if len(found) > MOST_CANDIDATES:
            what = f"these are more than {MOST_CANDIDATES} candidates"
            hint = "narrow a range under `plan`"
            raise InputError(what, where="plan", hint=hint)
    return found


def _over(kind: ServerKind, servers: tuple[int, ...], budget: PlanBudget) -> str:
    """Why a deployment exceeds the budget; empty if it does not."""
    plan, name, degree = kind.plan, kind.hardware.accelerator, kind.hardware.tensor_parallel
    count = sum(servers)
    if kind.scales and plan is not None and plan.scaling is not None:
        count = sum(plan.scaling.bounds[pool.name].max for pool in plan.pools)
    if budget.machine is not None and degree > budget.machine and degree % budget.machine:
        return f"a server of {degree} accelerators does not fill whole machines of {budget.machine}"
    taken = budget.accelerators(count, degree)
    there = budget.stock.get(name or "")
    if there is not None:
        usable = there if budget.machine is None else there - there % budget.machine
        if taken > usable:
            whole = "" if usable == there else f", {usable} of them in whole machines"
            return f"takes {taken} of {there} {name}{whole}"
    most = budget.dollars_per_hour
    if most is not None and kind.prices and not kind.scales:
        cost = taken * kind.prices[0] / degree
        if cost > most:
            return f"${cost:,.2f} an hour is more than ${most:,.2f}"
    return ""


def _counts(kind: ServerKind, base: ScenarioPlan, choices: Choices) -> list[tuple[int, ...]]:
    if kind.scales:
        return [_at_first(kind)]
    if kind.frame.shape == SPLIT:
        prefill, decode = choices.prefill, choices.decode
        assert prefill is not None
        assert decode is not None
        return list(itertools.product(_each(prefill), _each(decode)))
    if choices.replicas is not None:
        return [(count,) for count in _each(choices.replicas)]
    if kind.plan is None or kind.ruled is not None:
        return [(max(1, base.pools[0].replicas),)]
    # Where the load is unknown before a run, the scenario's own number is a hint.
    fewest = kind.fewest
    most = max(AS_MANY * fewest, 2 * sum(pool.replicas for pool in base.pools))
    return [(count,) for count in range(fewest, min(most, MOST_REPLICAS) + 1)]


def _each(counts: CountRange) -> range:
    return range(counts.min, counts.max + 1)


def _at_first(kind: ServerKind) -> tuple[int, ...]:
    """The initial servers of an autoscaled deployment: the fewest that bounds allow, within its
    limits."""
    plan = kind.plan
    if plan is None or plan.scaling is None:
        return (1,) if kind.frame.shape == TOGETHER else (1, 1)
    wanted = [kind.fewest] if len(plan.pools) == 1 else [1, kind.fewest_decode]
    counts = []
    for pool, count in zip(plan.pools, wanted, strict=True):
        bounds = plan.scaling.bounds[pool.name]
        counts.append(min(max(count, bounds.min), bounds.max))
    return tuple(counts)

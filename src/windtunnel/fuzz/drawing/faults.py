"""Draws `faults:` and `serving.retries:`: what goes wrong, when, and what becomes of requests."""

from collections.abc import Callable

from windtunnel.fuzz.drawing.dice import Dice, Section, Swarm
from windtunnel.fuzz.drawing.ground import Ground
from windtunnel.fuzz.drawing.serving import Pools

MOST_FAULTS = 4
METRICS = ("queue", "in_flight", "ready", "kv_use", "arrivals", "inside")
OF_MACHINES = ("machine-loss", "rack-loss", "zone-loss", "provider-outage", "quota-exhaustion")
OF_RUNS = ("arrivals", "inside")


class World:
    """What a fault can befall."""

    def __init__(self, pools: Pools, ground: Ground, lasts_s: float, *, scales: bool) -> None:
        self.pools = pools
        self.stands = ground.gangs is not None or ground.fleet is not None
        self.machines: list[Section] = ground.fleet["pools"] if ground.fleet is not None else []
        self.scales = scales
        self.lasts_s = lasts_s

    def knows(self, kind: str) -> bool:
        """Whether there is anybody whom such a fault can befall."""
        if kind == "clock-skew":
            return self.scales
        if kind == "spot-reclaim":
            return any(one["capacity"] == "spot" for one in self.machines)
        return bool(self.machines) or kind not in OF_MACHINES

    def span_s(self, dice: Dice) -> float:
        """A time that passes within the run."""
        return self.lasts_s * dice.span(0.01, 0.6)


def draw_faults(swarm: Swarm, world: World) -> list[Section]:
    if not swarm.has("faults"):
        return []
    dice = swarm.dice("faults")
    faults = []
    for number in range(dice.few(1, MOST_FAULTS)):
        one = swarm.dice(f"faults.{number}")
        kind = one.pick(*[kind for kind in KINDS if world.knows(kind)])
        faults.append({"kind": kind, **_time(one, world), **KINDS[kind](one, world)})
    return faults


def draw_retries(swarm: Swarm) -> Section | None:
    dice = swarm.dice("retries")
    return {"attempts": dice.few(0, 3)} if dice.chance(0.6) else None


def _time(dice: Dice, world: World) -> Section:
    """Once, at random times, or on a condition."""
    how = dice.pick("at", "at", "every", "when")
    if how == "at":
        return {"at": dice.pick(0.0, world.span_s(dice))}
    if how == "every":
        # Without an end, what crashes again and again may outlast every start.
        every: Section = {"mean": world.span_s(dice), "most": dice.few(1, 5)}
        if dice.chance(0.3):
            every["from"] = world.span_s(dice)
        return {"every": every}
    metric = dice.pick(*METRICS)
    when: Section = {"metric": metric, "interval": world.span_s(dice), "most": dice.few(1, 3)}
    when[dice.pick("above", "below")] = dice.pick(0.2, 1, 3)
    if metric not in OF_RUNS and dice.chance(0.4):
        when["pool"] = dice.pick(*world.pools.names)
    if dice.chance(0.3):
        when["for"] = world.span_s(dice)
    return {"when": when}


def _select(dice: Dice, world: World) -> Section:
    if dice.chance(0.3):
        return {}
    select: Section = {"count": dice.pick(1, 2, "all")}
    if dice.chance(0.5):
        select["pool"] = dice.pick(*world.pools.names)
    return {"select": select}


def _lasts(dice: Dice, world: World) -> Section:
    return {"for": world.span_s(dice)}


def _slow(dice: Dice, world: World) -> Section:
    lasts = _lasts(dice, world) if dice.chance(0.6) else {}
    return {"factor": dice.span(1.1, 20.0), **lasts, **_select(dice, world)}


def _loop(dice: Dice, world: World) -> Section:
    drawn = {**_lasts(dice, world), **_select(dice, world)}
    if not world.stands:
        first_s = world.span_s(dice)
        drawn["after"] = world.span_s(dice)
        drawn["backoff"] = {"first": first_s, "most": first_s * dice.pick(1, 4)}
    return drawn


def _partition(dice: Dice, world: World) -> Section:
    return {**_lasts(dice, world), **_select(dice, world)}


def _blackout(dice: Dice, world: World) -> Section:
    drawn = _lasts(dice, world)
    if dice.chance(0.5):
        readers = ("routers", "autoscaler") if world.scales else ("routers",)
        drawn["readers"] = dice.some(readers)
    return drawn


def _lag(dice: Dice, world: World) -> Section:
    return {**_blackout(dice, world), "by": world.span_s(dice)}


def _skew(dice: Dice, world: World) -> Section:
    return {**_lasts(dice, world), dice.pick("ahead", "behind"): world.span_s(dice)}


def _restart(dice: Dice, world: World) -> Section:
    controllers = ["autoscaler"] if world.scales else []
    controllers += ["gangs"] if world.stands else []
    controllers += ["fleet"] if world.machines else []
    if not controllers:
        return {"kind": "engine-crash", **_select(dice, world)}
    controller = dice.pick(*controllers)
    lasts = _lasts(dice, world) if controller == "autoscaler" and dice.chance(0.5) else {}
    return {"controller": controller, **lasts}


def _leak(dice: Dice, world: World) -> Section:
    return {**_lasts(dice, world), "rate": dice.span(0.1, 50.0), **_select(dice, world)}


def _storm(dice: Dice, world: World) -> Section:
    return {**_lasts(dice, world), "share": dice.span(0.05, 1.0), **_select(dice, world)}


def _machines(dice: Dice, world: World) -> Section:
    """Machines, or racks, by pool; spot ones are drawn of all."""
    select: Section = {"count": dice.pick(1, 2, "all")}
    if dice.chance(0.5):
        select["pool"] = dice.pick(*[one["name"] for one in world.machines])
    return {"select": select}


def _zones(dice: Dice, world: World) -> Section:
    return {"select": {"zone": dice.pick(*[one["zone"] for one in world.machines])}}


def _reclaim(dice: Dice, world: World) -> Section:
    return {"notice": world.span_s(dice), "select": {"count": dice.pick(1, "all")}}


def _quota(dice: Dice, world: World) -> Section:
    pool = dice.pick(*[one["name"] for one in world.machines])
    return {**_lasts(dice, world), **({"select": {"pool": pool}} if dice.chance(0.5) else {})}


KINDS: dict[str, Callable[[Dice, World], Section]] = {
    "slow-machine": _slow,
    "engine-crash": _select,
    "crash-loop": _loop,
    "router-partition": _partition,
    "metric-blackout": _blackout,
    "metric-lag": _lag,
    "clock-skew": _skew,
    "controller-restart": _restart,
    "kv-leak": _leak,
    "rate-limit-storm": _storm,
    "machine-loss": _machines,
    "rack-loss": _machines,
    "zone-loss": _zones,
    "spot-reclaim": _reclaim,
    "provider-outage": _lasts,
    "quota-exhaustion": _quota,
}
"""By kind: what it has beside its time."""

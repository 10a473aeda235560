"""Groups of replicas for tests of autoscalers."""

from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.optimizers import Allocation
from windtunnel.scaling.snapshot import Flow, Model, ReplicaCounts, ReplicaView, Variant


def group(
    values: list[float],
    *,
    starting: int = 0,
    queued: int = 0,
    target: int | None = None,
    minimum: int = 0,
) -> Group:
    """Replicas whose KV cache is used so much (a share, so that any number can be written)."""
    replicas = [
        ReplicaView(f"r{number}", kv_tokens_used=value, kv_tokens=1.0)
        for number, value in enumerate(values)
    ]
    variant = Variant(
        "v",
        replicas=replicas,
        counts=ReplicaCounts(
            starting=starting, target=len(values) + starting if target is None else target
        ),
        minimum=minimum,
    )
    model = Model("m", [variant], flow=Flow(15.0, arrived=150), queued=queued)
    return Group(model, "both", [variant], "m/both")


def context(now_s: float, current: int, *, queued: int = 0, minimum: int = 0) -> LimitContext:
    of = group([], target=current, queued=queued, minimum=minimum)
    return LimitContext(now_s, [of], [[]], [Allocation(of, current, up=[0], down=[0])], [False])


def limited(limiter: Limiter, now_s: float, current: int, wanted: int, *, queued: int = 0) -> int:
    """What a limiter makes of a recommendation, which it then remembers."""
    now = context(now_s, current, queued=queued)
    decided = limiter.limit([wanted], now)
    limiter.record([wanted], decided, now)
    return decided[0]

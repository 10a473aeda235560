"""Small fleets to try policies on."""

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    Snapshot,
    Variant,
)


def replicas(
    count: int, *, running: int = 0, waiting: int = 0, used: float = 0.0
) -> list[ReplicaView]:
    return [
        ReplicaView(
            f"r-{number}",
            running=running,
            waiting=waiting,
            kv_tokens_used=used,
            kv_tokens=100_000.0,
        )
        for number in range(count)
    ]


def variant(
    name: str = "v",
    ready: int = 1,
    *,
    role: str = "both",
    target: int | None = None,
    running: int = 0,
    waiting: int = 0,
    used: float = 0.0,
    minimum: int = 0,
    maximum: int = 100,
    price: float = 1.0,
    accelerator: str = "h100",
    accelerators: int = 1,
    starting: int = 0,
) -> Variant:
    return Variant(
        name,
        role=role,
        spec=ReplicaSpec(
            accelerator=accelerator,
            accelerators=accelerators,
            price_per_hour=price,
            kv_tokens=100_000.0,
        ),
        minimum=minimum,
        maximum=maximum,
        counts=ReplicaCounts(
            target=ready + starting if target is None else target, starting=starting
        ),
        replicas=replicas(ready, running=running, waiting=waiting, used=used),
    )


def fleet(
    *variants: Variant, queued: int = 0, free: dict[str, int] | None = None, taken_s: float = 0.0
) -> Snapshot:
    model = Model("m", list(variants), queued=queued, flow=Flow(15.0))
    return Snapshot(taken_s, [model], free)


class Wants(Analyzer):
    """Wants what it was told, for every group; None: it does not know."""

    def __init__(self, wanted: int | None, name: str = "wants") -> None:
        super().__init__(name)
        self.wanted = wanted

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        if self.wanted is None:
            return unknown(group, "Nobody answered.")
        return replicas_wanted(group, self.wanted, {"wanted": self.wanted}, "So it was told.")

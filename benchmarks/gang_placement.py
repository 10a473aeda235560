"""1,000 gangs of 8 on 10,000 nodes, each in one rack; more of them; and some that do not fit."""

from benchmarks.claim import Claim, least_cpu_s, report
from windtunnel.gangs.placement.placer import GangPlacer
from windtunnel.gangs.placement.requests import (
    GangRequest,
    GroupRequest,
    PackConstraint,
    PodShape,
    UnboundPod,
)
from windtunnel.gangs.placement.space import Space

NODES = 10_000
GANGS = 1_000
PODS = 8
RACK = 20
BLOCK = 500


def fleet() -> tuple[Space, PodShape]:
    space = Space()
    space.add_topology("fleet", ["block", "rack"])
    for number in range(NODES):
        labels = {"block": f"b{number // BLOCK}", "rack": f"r{number // RACK}"}
        space.add_node(f"n{number}", {"nvidia.com/gpu": 8, "cpu": 128}, labels)
    return space, space.shape({"nvidia.com/gpu": 4, "cpu": 16})


def gang(number: int, shape: PodShape, count: int = PODS) -> GangRequest:
    name = f"g{number}"
    pods = [UnboundPod(f"{name}-{pod}", shape) for pod in range(count)]
    return GangRequest(
        name, [GroupRequest(name, count, pods)], order=number, pack=PackConstraint("rack")
    )


def place_all() -> GangPlacer:
    space, shape = fleet()
    placer = GangPlacer(space)
    done = placer.plan([gang(number, shape) for number in range(GANGS)])
    assert len(done.bindings) == GANGS * PODS
    return placer


def main() -> None:
    report(
        Claim(
            f"{GANGS:,} gangs of {PODS} on {NODES:,} nodes, each in one rack",
            ours=least_cpu_s(place_all),
            baseline=2.0,
            most=1.0,
            unit="CPU s",
            against="the target",
        )
    )
    placer = place_all()
    shape = placer.space.shapes[0]
    more = [gang(GANGS + number, shape) for number in range(100)]
    report(
        Claim(
            "100 gangs more, one after the other",
            ours=least_cpu_s(lambda: [placer.plan([request]) for request in more], repeats=1),
            baseline=0.2,
            most=1.0,
            unit="CPU s",
            against="the target of 2 ms for each",
        )
    )
    waiting = [gang(2 * GANGS + number, shape, 2 * RACK + 1) for number in range(GANGS)]
    placer.plan(waiting)

    def look_again() -> None:
        """Tries every waiting gang again after something became free, with reasons."""
        placer.space.freed += 1
        assert len(placer.plan(waiting).verdicts) == GANGS

    report(
        Claim(
            f"a look at {GANGS:,} gangs that wait",
            ours=least_cpu_s(look_again),
            baseline=2.0,
            most=1.0,
            unit="CPU s",
            against="the target",
        )
    )


if __name__ == "__main__":
    main()

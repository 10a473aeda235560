"""The alternative for comparison: pods are placed one at a time, whether or not their gang fits.

A plain scheduler treats pods that way if it knows nothing of gangs. Two gangs that each get half of
their pods wait for each other forever.
"""

from collections.abc import Iterable
from typing import Final

from windtunnel.gangs.placement.placer import (
    Binding,
    GangKind,
    Pass,
    PlacementVerdict,
    VictimsBelow,
    no_victims,
)
from windtunnel.gangs.placement.requests import GangRequest, GroupRequest
from windtunnel.gangs.placement.search import Search
from windtunnel.gangs.placement.space import Space
from windtunnel.gangs.placement.why import why_not


class OneByOnePlacer:
    """Packs nothing, holds nothing, preempts nothing; higher priorities come first."""

    def __init__(self, space: Space) -> None:
        self.space: Final = space

    def plan_in_order(
        self,
        requests: Iterable[GangRequest],
        victims: VictimsBelow = no_victims,  # noqa: ARG002
    ) -> Pass:
        """Places each pod by itself, in turns, as pods of gangs that start together arrive."""
        done = Pass()
        waiting = [
            ((-gang.priority, turn, gang.order, gang.tie, gang.name), group, pod)
            for gang in requests
            for turn, (group, pod) in enumerate(
                (group, pod) for group in gang.groups for pod in group.pods
            )
        ]
        reported: list[str] = []
        for rank, group, pod in sorted(waiting, key=lambda entry: entry[0]):
            name = rank[-1]
            alone = GangRequest(name, [GroupRequest(group.name, 1, [pod])])
            search = Search(self.space, alone, {}, {}, {group.name: [pod]})
            found = search.run()
            if found is not None:
                node = found.taken[0].node.name
                done.bindings.append(Binding(name, group.name, pod.name, node))
            elif name not in reported:
                reported.append(name)
                waits, says = why_not(self.space, search)
                done.verdicts.append(PlacementVerdict(name, waits, f"{pod.name}: {says}"))
        return done

    def full(self, kind: GangKind) -> PlacementVerdict | None:  # noqa: ARG002
        """Never skips a gang: each pod is tried."""
        return None

    def gone(self, gang: str, family: str = "") -> None:
        """Does nothing: no gang is remembered here."""

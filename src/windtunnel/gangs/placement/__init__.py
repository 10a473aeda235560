"""Where gangs go: all-or-nothing placement on machines, and why a gang waits."""

from windtunnel.gangs.placement.asks import (
    GangAsk,
    GroupAsk,
    PackConstraint,
    PartAsk,
    PodAsk,
    PodShape,
    Requirement,
    Selector,
    Spread,
)
from windtunnel.gangs.placement.one_by_one import OneByOnePlacer
from windtunnel.gangs.placement.placer import (
    Binding,
    Eviction,
    GangPlacer,
    Member,
    Pass,
    PlacementVerdict,
    Victim,
)
from windtunnel.gangs.placement.space import NodeRoom, Space
from windtunnel.gangs.placement.why import Waiting

__all__ = [
    # The machines.
    "Space",
    "NodeRoom",
    # What is asked for.
    "GangAsk",
    "PartAsk",
    "GroupAsk",
    "PodAsk",
    "PodShape",
    "Selector",
    "Requirement",
    "PackConstraint",
    "Spread",
    # Who decides, and what comes of it.
    "GangPlacer",
    "OneByOnePlacer",
    "Pass",
    "Binding",
    "Eviction",
    "PlacementVerdict",
    "Waiting",
    # Who could make way.
    "Victim",
    "Member",
]

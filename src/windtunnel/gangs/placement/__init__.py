"""Where gangs go: all-or-nothing placement on machines, and why a gang waits."""

from windtunnel.gangs.placement.asks import (
    GangAsk,
    GroupAsk,
    Pack,
    PartAsk,
    PodAsk,
    Requirement,
    Selector,
    Shape,
    Spread,
)
from windtunnel.gangs.placement.one_by_one import OneByOnePlacer
from windtunnel.gangs.placement.placer import (
    Binding,
    Eviction,
    GangPlacer,
    Member,
    Pass,
    Verdict,
    Victim,
)
from windtunnel.gangs.placement.space import Node, Space
from windtunnel.gangs.placement.why import Waiting

__all__ = [
    # The machines.
    "Space",
    "Node",
    # What is asked for.
    "GangAsk",
    "PartAsk",
    "GroupAsk",
    "PodAsk",
    "Shape",
    "Selector",
    "Requirement",
    "Pack",
    "Spread",
    # Who decides, and what comes of it.
    "GangPlacer",
    "OneByOnePlacer",
    "Pass",
    "Binding",
    "Eviction",
    "Verdict",
    "Waiting",
    # Who could make way.
    "Victim",
    "Member",
]

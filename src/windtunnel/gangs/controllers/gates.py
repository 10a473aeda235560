"""The scheduling gate that holds a pod until its gang is complete.

A pod of a base gang is ungated when its gang refers to it, and a gang refers to its pods once every
pod of every clique exists: a scheduler never sees half a gang. A pod of a scaled gang also waits
until every pod group of the base gang has its minimum scheduled. This is checked when a pod is
ungated, and not again.
"""

from typing import NamedTuple

from windtunnel.gangs.objects import GATE, Pod, PodClique
from windtunnel.gangs.roster import NameRoster
from windtunnel.gangs.view import View


class GatedPod(NamedTuple):
    """Why the pods of a clique are held or, if they are not, which of them may be scheduled."""

    why: str
    """Empty if they may be scheduled."""
    referred: NameRoster = NameRoster()
    """The pods that the gang refers to."""


def held(view: View, clique: PodClique) -> GatedPod:
    """Returns why the pods of a clique are held, or which of them may be scheduled."""
    gang = view.gangs.get(clique.gang)
    if gang is None:
        return GatedPod(f"the gang {clique.gang} does not exist yet")
    referred: NameRoster = NameRoster()
    for group in gang.groups:
        if group.name == clique.name:
            referred = group.pods
    if not referred:
        return GatedPod(f"the gang {clique.gang} waits until all of its pods exist")
    if not clique.base_gang:
        return GatedPod("", referred)
    base = view.gangs.get(clique.base_gang)
    if base is None:
        return GatedPod(f"the base gang {clique.base_gang} does not exist yet")
    for group in base.groups:
        other = view.cliques.get(group.name)
        ours = other is not None and other.set_name == clique.set_name
        scheduled = other.status.scheduled if other is not None and ours else 0
        if scheduled < group.min_replicas:
            have = f"{scheduled} of {group.min_replicas} pods scheduled"
            return GatedPod(f"the base gang {base.name} comes first: {group.name} has {have}")
    return GatedPod("", referred)


def why_held(view: View, pod: Pod) -> str:
    """Explains in one sentence why a pod is not yet eligible for scheduling; empty if it is."""
    foreign = [gate for gate in pod.gates if gate != GATE]
    if GATE in pod.gates:
        clique = view.cliques.get(pod.clique)
        if clique is None:
            return f"its clique {pod.clique} is gone"
        verdict = held(view, clique)
        if verdict.why:
            return verdict.why
        if pod.name not in verdict.referred:
            return f"the gang {pod.gang} does not refer to it yet"
        return "its scheduling gate is about to be removed"
    if foreign:
        return f"it has the gate {foreign[0]}, which another controller must remove"
    return ""

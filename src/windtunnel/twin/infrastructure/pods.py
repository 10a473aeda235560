"""Counts the pods of a cluster by stage, at a cost proportional to the changes."""

from typing import Final

from windtunnel.gangs.objects import Pod
from windtunnel.gangs.view import View
from windtunnel.twin.fleet.meter import Levels

WAITING: Final = 0  # on no machine
STARTING: Final = 1
READY: Final = 2
ENDING: Final = 3
STEPS: Final = ("waiting", "starting", "ready", "ending")


class PodCounts:
    """Pods by stage, and the gangs with waiting pods."""

    def __init__(self, view: View) -> None:
        self._view: Final = view
        self._changes: Final = view.watch()
        self._known: Final[dict[str, tuple[int, str]]] = {}  # by pod: its stage and its gang
        self._short: Final[dict[str, int]] = {}  # by gang: the number of its waiting pods
        self.counts: Final = [0] * len(STEPS)
        self.levels: Final = Levels()

    @property
    def gangs_waiting(self) -> int:
        return len(self._short)

    def look(self, now_s: float) -> None:
        """Processes the changes, and records the new counts."""
        changed = self._changes.pods
        if not changed:
            self._changes.clear()
            return
        for name in changed:
            self._drop(name)
            pod = self._view.pods.get(name)
            if pod is not None:
                self._add(name, step_of(pod), pod.gang)
        self._changes.clear()
        self.levels.note(now_s, [*self.counts, self.gangs_waiting])

    def _drop(self, name: str) -> None:
        step, gang = self._known.pop(name, (-1, ""))
        if step < 0:
            return
        self.counts[step] -= 1
        if step == WAITING:
            self._short[gang] -= 1
            if not self._short[gang]:
                del self._short[gang]

    def _add(self, name: str, step: int, gang: str) -> None:
        self._known[name] = (step, gang)
        self.counts[step] += 1
        if step == WAITING:
            self._short[gang] = self._short.get(gang, 0) + 1


def step_of(pod: Pod) -> int:
    if not pod.active:
        return ENDING
    if not pod.node:
        return WAITING
    return READY if pod.ready else STARTING

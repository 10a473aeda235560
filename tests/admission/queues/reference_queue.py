"""The fair queue done slowly and obviously: the oracle that the fast one is held equal to."""

from collections.abc import Callable
from typing import Final

from windtunnel.admission.queues.groups import READY, REFUSED, GroupShare, QueuedWork


class ReferenceQueue:
    """Lists and scans. Whether a head may go, and how its group stands, is asked each time."""

    def __init__(self) -> None:
        self.version = 0
        self._waiting: Final[list[QueuedWork]] = []
        self._activation: Final[dict[str, tuple[float, int]]] = {}
        self._finish: Final[dict[str, float]] = {}
        self._spec: Final[dict[str, GroupShare]] = {}
        self._virtual: Final[dict[int, float]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def enqueue(self, item: QueuedWork, *, is_again: bool = False) -> bool:
        if any(waiting.id == item.id for waiting in self._waiting):
            return False
        self._waiting.insert(0 if is_again else len(self._waiting), item)
        self._spec[item.group.key] = item.group
        self.version += 1
        if item.group.key not in self._activation:
            self._activate(item.group, self._finish.get(item.group.key, 0.0))
        return True

    def heads(self) -> list[QueuedWork]:
        """The first of each group."""
        first: dict[str, QueuedWork] = {}
        for item in self._waiting:
            first.setdefault(item.group.key, item)
        return list(first.values())

    def spec(self, key: str) -> GroupShare:
        """What a group said about itself last."""
        return self._spec[key]

    def select(
        self, open_to: Callable[[QueuedWork], bool], standing: Callable[[QueuedWork], int]
    ) -> tuple[QueuedWork, int] | None:
        """The first head in fair order that may go, and the version that this holds for."""
        candidates = []
        for head in self.heads():
            stands = standing(head) if open_to(head) else REFUSED
            if stands != REFUSED:
                tag, sequence = self._activation[head.group.key]
                candidates.append((stands, -head.group.priority, tag, sequence, head))
        if not candidates:
            return None
        return min(candidates, key=lambda candidate: candidate[:4])[4], self.version

    def commit(self, item: QueuedWork, version: int) -> bool:
        if version != self.version:
            return False
        key, priority = item.group.key, item.group.priority
        spec = self.spec(key)
        tag, _ = self._activation.pop(key)
        virtual = max(self._virtual.get(priority, 0.0), tag)
        self._virtual[priority] = virtual
        self._finish[key] = virtual + item.cost / spec.weight
        self._remove(item)
        if any(waiting.group.key == key for waiting in self._waiting):
            self._activate(spec, self._finish[key])
        self._end_busy_period(priority)
        return True

    def discard(self, item_id: str) -> bool:
        for item in self._waiting:
            if item.id == item_id:
                self._remove(item)
                if all(waiting.group.key != item.group.key for waiting in self._waiting):
                    del self._activation[item.group.key]
                self._end_busy_period(item.group.priority)
                return True
        return False

    def demand(self, group: str | None = None) -> dict[str, int]:
        """What all that waits asks for together."""
        wanted: dict[str, int] = {}
        for item in self._waiting:
            if group is None or item.group.key == group:
                for name, amount in item.lane.request().items():
                    wanted[name] = wanted.get(name, 0) + amount
        return wanted

    def _activate(self, spec: GroupShare, earliest: float) -> None:
        self._sequence += 1
        tag = max(earliest, self._virtual.get(spec.priority, 0.0))
        self._activation[spec.key] = (tag, self._sequence)

    def _remove(self, item: QueuedWork) -> None:
        self._waiting.remove(item)
        self.version += 1

    def _end_busy_period(self, priority: int) -> None:
        """When nothing of a priority waits, its clock passes every finish tag handed out so far."""
        if all(item.group.priority != priority for item in self._waiting):
            finishes = [
                finish
                for key, finish in self._finish.items()
                if self._spec[key].priority == priority
            ]
            self._virtual[priority] = max([self._virtual.get(priority, 0.0), *finishes])


def always_ready(head: QueuedWork) -> int:
    """The standing of every group when there is no policy."""
    return READY

"""Evictions in favour of a gang: of all pods that must make way for it, or of none.

The API cannot evict several pods at once. Each eviction is first tested by a dry run, and the
number that a disruption budget allows is compared with the sum, which a dry run does not count.
Pods covered by a budget are then evicted first, one by one, so that nothing more is evicted after a
refusal.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from windtunnel.core.errors import MALFORMED, InputError
from windtunnel.gangs.commands import Delete
from windtunnel.gangs.objects import POD
from windtunnel.gangs.placement.constraints import requirements_of
from windtunnel.gangs.placement.placer import Eviction
from windtunnel.gangs.placement.requests import Requirement
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.errors import ApiError, KubernetesError, NotFound, NotLeader
from windtunnel.live.kubernetes.resources import Meta, Resource
from windtunnel.live.operate.mirror import Mirror
from windtunnel.live.operate.received import Received

BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NOT_COUNTED: Final = ("Pending", "Succeeded", "Failed")
"""Phases of pods that no budget protects."""


class RefusedEvictions(NamedTuple):
    """Pods that cannot make way for a gang now, and why."""

    in_favour_of: str
    kept: tuple[str, ...]
    """The pods in the gang's way, and others to which the same applies."""
    why: str


class _Budget:
    """A disruption budget, and the evictions it still allows."""

    def __init__(self, raw: Received) -> None:
        self.name: Final = raw.metadata.name
        self._namespace: Final = raw.metadata.namespace
        self._wanted: Final = _selected(raw)
        self._spares_unready: Final = (
            raw.spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            or int(raw.status.get("desiredHealthy") or 0) > 0
        )
        """Whether unready pods do not count; a dry run tests whether they may be evicted."""
        self.left = int(raw.status.get("disruptionsAllowed") or 0)

    def counts(self, pod: Received) -> bool:
        """Whether the eviction of a pod counts against the budget."""
        meta, status = pod.metadata, pod.status
        if meta.namespace != self._namespace or meta.deletion_timestamp is not None:
            return False
        if status.get("phase") in NOT_COUNTED or (self._spares_unready and not _is_ready(status)):
            return False
        return self._wanted is not None and all(one.holds(meta.labels) for one in self._wanted)


def _selected(budget: Received) -> list[Requirement] | None:
    """The label requirements of its pods; None if it covers no pods."""
    selector = budget.spec.get("selector")
    if selector is None:
        return None
    try:
        return requirements_of(selector, f"PodDisruptionBudget {budget.metadata.name}")
    except (InputError, *MALFORMED):
        return None  # the dry run shows how the API server treats it


def _is_ready(status: Mapping[str, object]) -> bool:
    found = status.get("conditions")
    written = found if isinstance(found, list) else []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in written)


class Evictions:
    """Tests the evictions that a pass decided on, and carries them out."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror: Final = mirror
        self._covered: Final[dict[str, None]] = {}
        """Pods of the last check that a budget covers."""

    async def check(self, client: Client, planned: Sequence[Eviction]) -> list[RefusedEvictions]:
        """The gangs for which not all planned evictions are allowed."""
        self._covered.clear()
        if not planned:
            return []
        refused: list[RefusedEvictions] = []
        by_gang: dict[str, list[Eviction]] = {}
        for one in planned:
            by_gang.setdefault(one.in_favour_of, []).append(one)
        try:
            budgets = await self._budgets(client, planned)
        except NotLeader:
            raise
        except KubernetesError as error:
            why = f"disruption budgets cannot be read: {error}"
            return [
                RefusedEvictions(gang, tuple(one.pod for one in found), why)
                for gang, found in by_gang.items()
            ]
        for gang, found in by_gang.items():
            answer = self._overdrawn(gang, found, budgets) or await self._asked(client, gang, found)
            if answer is not None:
                refused.append(answer)
                continue
            for budget in budgets:
                counted = self._counted(budget, found)
                self._covered.update(dict.fromkeys(counted))
                budget.left -= len(counted)
        return refused

    async def _budgets(self, client: Client, planned: Sequence[Eviction]) -> list[_Budget]:
        metas = [self._meta(one.pod) for one in planned]
        spaces = dict.fromkeys(one.namespace for one in metas if one is not None)
        found = [await client.list_all(BUDGETS, ObjectSelection(space)) for space in spaces]
        return [
            _Budget(msgspec.json.decode(raw, type=Received)) for one in found for raw in one.items
        ]

    def _overdrawn(
        self, gang: str, found: Sequence[Eviction], budgets: Iterable[_Budget]
    ) -> RefusedEvictions | None:
        for budget in budgets:
            counted = self._counted(budget, found)
            if len(counted) > budget.left:
                kept = dict.fromkeys([*counted, *self._too_large(budget)])
                allows = f"allows {max(budget.left, 0)} of {len(counted)} evictions"
                return RefusedEvictions(
                    gang, tuple(kept), f"the disruption budget {budget.name} {allows}"
                )
        return None

    def _too_large(self, budget: _Budget) -> list[str]:
        """The pods of all gangs with more pods than the budget allows to evict."""
        pods: dict[str, list[str]] = {}
        for name, pod in self._mirror.view.pods.items():
            raw = self._mirror.raw(POD, name) if pod.node else None
            if raw is not None and budget.counts(raw):
                pods.setdefault(pod.gang, []).append(name)
        return [name for names in pods.values() if len(names) > budget.left for name in names]

    def _counted(self, budget: _Budget, found: Iterable[Eviction]) -> list[str]:
        pods = [(one.pod, self._mirror.raw(POD, one.pod)) for one in found]
        return [name for name, raw in pods if raw is not None and budget.counts(raw)]

    async def _asked(
        self, client: Client, gang: str, found: Sequence[Eviction]
    ) -> RefusedEvictions | None:
        answers = await asyncio.gather(*(self._may_not_evict(client, one) for one in found))
        kept = tuple(one.pod for one, says in zip(found, answers, strict=True) if says)
        return RefusedEvictions(gang, kept, next(filter(None, answers))) if kept else None

    async def _may_not_evict(self, client: Client, eviction: Eviction) -> str:
        """Why a pod cannot be evicted now; empty if it can be, or is gone."""
        meta = self._meta(eviction.pod)
        if meta is None:
            return ""
        try:
            await client.evict(meta, dry_run=True)
        except NotLeader:
            raise
        except NotFound:
            return ""
        except ApiError as error:
            return error.message
        except KubernetesError as error:
            return str(error)
        return ""

    async def carry_out(
        self, client: Client, evictions: Iterable[Delete], for_whom: Mapping[str, str]
    ) -> int:
        """Evicts pods, for each gang up to the first refusal; returns the number refused."""
        by_gang: dict[str, list[Delete]] = {}
        for one in evictions:
            by_gang.setdefault(for_whom.get(one.name, ""), []).append(one)
        refused = await asyncio.gather(*(self._make(client, one) for one in by_gang.values()))
        return sum(refused)

    async def _make(self, client: Client, evictions: Sequence[Delete]) -> int:
        for one in [one for one in evictions if one.name in self._covered]:
            if not await self._evict(client, one):
                return 1
        rest = [one for one in evictions if one.name not in self._covered]
        done = await asyncio.gather(*(self._evict(client, one) for one in rest))
        return Counter(done)[False]

    async def _evict(self, client: Client, command: Delete) -> bool:
        meta = self._meta(command.name)
        if meta is None or meta.uid != command.uid:
            return True
        try:
            await client.evict(meta)
        except NotLeader:
            raise
        except KubernetesError:
            return False
        return True

    def _meta(self, name: str) -> Meta | None:
        raw = self._mirror.raw(POD, name)
        return None if raw is None else raw.metadata

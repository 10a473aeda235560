"""Takes over objects left behind by Grove's own operator, before controllers see their sets.

Grove's operator must have been stopped. If an object is in Grove's form again after it was taken
over, it is left alone and reported: something else writes to it, or prevents our write from being
stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from windtunnel.core.errors import MALFORMED, InputError
from windtunnel.gangs.kubernetes.calls import ApiCall
from windtunnel.gangs.kubernetes.reading import set_of
from windtunnel.gangs.kubernetes.takeover import is_unknown, release, take_over
from windtunnel.gangs.objects import CLIQUE, GROUP, SET
from windtunnel.gangs.pod_manifest import PART_OF
from windtunnel.live.operate.mirror import Mirror
from windtunnel.live.operate.received import Received
from windtunnel.live.operate.writer import CallAnswer, CallOutcome, Versions, Writer

AGAIN: Final = CallAnswer(
    CallOutcome.FAILED,
    "it was taken over, but is in the form of Grove's operator again: does that still run, or are "
    "the CRDs not those of `windtunnel operate crds`?",
)

Decided = Callable[[Sequence[ApiCall]], None]
Failed = Callable[[ApiCall, CallAnswer], None]


class Takeover:
    """Takes over the Grove objects that a mirror has found."""

    def __init__(
        self, mirror: Mirror, writer: Writer | None, decided: Decided, failed: Failed
    ) -> None:
        self._mirror: Final = mirror
        self._writer: Final = writer
        self._decided: Final = decided
        self._failed: Final = failed
        self._done: Final[dict[str, bool]] = {}
        """By uid: objects taken over, and whether it was reported that they are Grove's again."""

    async def step(self) -> str:
        """Takes over everything found; returns the pace of a failure, or an empty string."""
        groves = self._mirror.groves
        if not groves:
            return ""
        sets = [name for (kind, name), raw in groves.items() if kind == SET and _is_to_take(raw)]
        pace = ""
        tried: set[str] = set()
        if sets:
            members = self._cliques()
            for name in sets:
                raw = self._mirror.raw(SET, name)  # newer than `groves` if the set is invalid
                if raw is None or not _is_to_take(raw):
                    continue
                meta = raw.metadata
                cliques = members.get((meta.namespace, meta.name), [])
                owners = {meta.uid, *self._groups(raw)}
                ours = [one for one in cliques if _owner(one) in owners]
                levels = self._mirror.view.levels or None
                try:  # against the current topologies
                    spec = set_of(raw, levels, new=False, pods_checked=True)
                    calls = take_over(raw, spec, ours)
                except (InputError, *MALFORMED) as error:
                    self._mirror.reject(name, raw, error)
                    left = [one.metadata for one in ours]  # until the set can be read
                    tried |= {one.uid for one in left if one.deletion_timestamp is None}
                    continue
                tried |= {call.uid for call in calls}
                pace = await self._make(calls) or pace
        for (kind, name), raw in list(groves.items()):
            if raw.metadata.uid in tried or (kind == SET and _is_to_take(raw)):
                continue
            call = release(kind, raw)
            if call is not None and groves.get((kind, name)) is raw:
                pace = await self._make([call]) or pace
        return pace

    def _cliques(self) -> dict[tuple[str, str], list[Received]]:
        """The cliques, by their set's namespace and name."""
        found: dict[tuple[str, str], list[Received]] = {}
        for one in self._mirror.objects[CLIQUE].cache:
            key = (one.metadata.namespace, one.metadata.labels.get(PART_OF, ""))
            found.setdefault(key, []).append(one)
        return found

    def _groups(self, raw: Received) -> list[str]:
        groups = self._mirror.objects[GROUP].cache
        return [one.metadata.uid for one in groups if _owner(one) == raw.metadata.uid]

    async def _make(self, calls: list[ApiCall]) -> str:
        """Makes the calls of one kind at once, sets one by one; returns the same as `step`."""
        known = [self._done[call.uid] for call in calls if call.uid in self._done]
        if known:
            for call in calls:
                if self._done.get(call.uid) is False:
                    self._done[call.uid] = True
                    self._failed(call, AGAIN)
            return ""
        self._decided(calls)
        if self._writer is None:
            self._done.update((call.uid, True) for call in calls)
            return ""
        versions: Versions = {}
        for kind, same in groupby(calls, key=lambda call: call.kind):
            batch = list(same)
            at_once = [[one] for one in batch] if kind == SET else [batch]
            for some in at_once:
                made = [self._writer.carry_out(one, versions) for one in some]
                answers = await asyncio.gather(*made)
                for call, answer in zip(some, answers, strict=True):
                    if answer.outcome is CallOutcome.FAILED:
                        self._failed(call, answer)
                bad = [one.pace for one in answers if one.outcome is not CallOutcome.DONE]
                if bad:
                    return bad[0]
        self._done.update((call.uid, False) for call in calls)
        return ""


def _is_to_take(raw: Received) -> bool:
    return is_unknown(raw) and raw.metadata.deletion_timestamp is None


def _owner(raw: Received) -> str:
    owner = raw.metadata.controller
    return "" if owner is None else owner.uid

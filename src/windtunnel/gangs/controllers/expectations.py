"""Commands that a controller issued but that its read cache, which may lag, does not show yet.

While a set has such commands, nothing is decided about it: a second pass over stale data would
create pods twice, or overwrite a newer status. An expectation ends when the cache shows the effect,
when the driver reports that the command was refused, or after `LONGEST_S` if no answer comes. A new
controller starts with a fresh cache and expects nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from windtunnel.gangs.commands import (
    Command,
    Create,
    CreatePod,
    Delete,
    Emit,
    PatchClique,
    PatchGang,
    PatchGangPhase,
    PatchStatus,
    SetCondition,
    Ungate,
)
from windtunnel.gangs.objects import (
    GATE,
    POD,
    Owned,
    Pod,
    PodClique,
    PodCliqueSet,
    PodGang,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.statuses import Condition
from windtunnel.gangs.view import View

LONGEST_S: Final = 300.0
NOTHING_EXPECTED_S: Final = float("inf")


@dataclass
class _Expected:
    """A command and, if it creates a pod, the uid of the pod that had its index before."""

    command: Command
    before: str


class Expectations:
    """Commands whose effect the cache does not show yet, and how long to wait for them, by set."""

    def __init__(self, view: View) -> None:
        self._view: Final = view
        self._by_set: Final[dict[str, dict[str, _Expected]]] = {}
        self._until_s: Final[dict[str, float]] = {}

    def __contains__(self, set_name: str) -> bool:
        return set_name in self._by_set

    def __len__(self) -> int:
        return len(self._by_set)

    def next_s(self) -> float:
        """Returns when the next wait ends, whatever the cache shows."""
        return min(self._until_s.values(), default=NOTHING_EXPECTED_S)

    def add(self, commands: list[Command], now_s: float) -> None:
        """Records commands returned to the driver; a later one replaces one of the same key."""
        for command in commands:
            if isinstance(command, Emit):
                continue
            before = ""
            if isinstance(command, CreatePod):
                pod = command.clique.places.get(command.index)
                before = "" if pod is None else pod.uid
            owner = self._set_of(command)
            self._by_set.setdefault(owner, {})[key_of(command)] = _Expected(command, before)
            self._until_s[owner] = now_s + LONGEST_S

    def refused(self, command: Command) -> str:
        """Drops a command that the driver could not execute; returns the set to check again."""
        owner = self._set_of(command)
        known = self._by_set.get(owner)
        if known is not None:
            found = known.get(key_of(command))
            if found is not None and found.command is command:
                del known[key_of(command)]
        return owner

    def settle(self, changed: Iterable[str], now_s: float) -> list[str]:
        """Drops commands of changed sets that the cache shows now; returns the sets left without
        any, and those whose wait has ended."""
        freed = [] if now_s < self.next_s() else [
            owner for owner, until_s in self._until_s.items() if until_s <= now_s
        ]  # fmt: skip
        for owner in changed:
            expected = self._by_set.get(owner)
            if expected is None or owner in freed:
                continue
            for key in [key for key, one in expected.items() if self._is_met(one)]:
                del expected[key]
            if not expected:
                freed.append(owner)
        for owner in freed:
            del self._by_set[owner]
            del self._until_s[owner]
        return freed

    def _set_of(self, command: Command) -> str:
        if isinstance(command, CreatePod):
            return command.clique.set_name
        thing = command.thing if isinstance(command, Create) else None
        thing = thing or self._view.find(command.kind, command.name)
        if isinstance(thing, Owned):
            return thing.set_name
        return command.name

    def _is_met(self, expected: _Expected) -> bool:
        command, view = expected.command, self._view
        if isinstance(command, CreatePod):
            clique = view.cliques.get(command.clique.name)
            if clique is None or clique.uid != command.clique.uid:
                return True
            pod = clique.places.get(command.index)
            return pod is not None and pod.uid != expected.before
        thing = view.find(command.kind, command.name)
        if isinstance(command, Create):
            return thing is not None or view.owner_of(command.thing) is None
        if thing is None or thing.uid != command.uid:
            return True
        if isinstance(command, Delete):
            return thing.terminating
        return _shows(thing, command)


def key_of(command: Command) -> str:
    """Returns a command's key: a later command with the same key supersedes it."""
    if isinstance(command, CreatePod):
        return f"{POD}/{command.name}/{command.index}"
    if isinstance(command, SetCondition):
        return f"{command.kind}/{command.name}/{command.condition.type}"
    return f"{command.kind}/{command.name}/{type(command).__name__}"


def _has_condition(thing: Thing, wanted: Condition) -> bool:
    known = thing.conditions.get(wanted.type)
    if known is None or not wanted.status:
        return known is None and not wanted.status
    return known.says(wanted.status, wanted.reason, wanted.message)


def _shows(thing: Thing, command: Command) -> bool:
    """Whether a patch is visible on its object."""
    if isinstance(command, SetCondition):
        return _has_condition(thing, command.condition)
    if isinstance(command, Ungate):
        return isinstance(thing, Pod) and GATE not in thing.gates
    if isinstance(command, PatchClique):
        return isinstance(thing, PodClique) and thing.template.hash == command.template.hash
    if isinstance(command, PatchGang):
        return isinstance(thing, PodGang) and thing.groups == command.groups
    if isinstance(command, PatchGangPhase):
        return isinstance(thing, PodGang) and thing.phase == command.phase
    if isinstance(command, PatchStatus):
        assert isinstance(thing, PodClique | ScalingGroup | PodCliqueSet)
        return thing.status == command.status
    return True

"""The commands of controllers. A command is a wish: executed or not, once or several times.

A driver turns each into one call to its API server, simulated or real. The uid of the target object
guards a command: it is refused if another object has the name by then. A controller that stops
after any command can start over from the state it finds.
"""

from typing import Final

from windtunnel.gangs.objects import (
    POD,
    SET,
    Pod,
    PodClique,
    PodCliqueSet,
    PodGang,
    ScalingGroup,
    Thing,
)
from windtunnel.gangs.statuses import CliqueStatus, Condition, GroupStatus, ObjectEvent, SetStatus
from windtunnel.gangs.templates import CliqueTemplate, PodGroup, SetSpec


class Command:
    """A wish; `verb` is one of create, delete, patch, condition, event; `kind` and `name` say of
    what."""

    verb = ""

    def __init__(self, kind: str, name: str, uid: str = "") -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.uid: Final = uid
        """Uid of the target object; empty: whichever object has the name."""


class Create(Command):
    """Creates an object, unless one of its name exists."""

    verb = "create"

    def __init__(self, thing: Thing) -> None:
        super().__init__(thing.kind, thing.name)
        self.thing: Final = thing


class CreatePod(Command):
    """Creates a pod of a clique at a free index; the API server names it (`generateName`)."""

    verb = "create"

    def __init__(self, clique: PodClique, index: int) -> None:
        super().__init__(POD, f"{clique.name}-")
        self.clique: Final = clique
        self.index: Final = index


class Delete(Command):
    """Deletes an object and everything it owns."""

    verb = "delete"

    def __init__(self, thing: Thing, why: str) -> None:
        super().__init__(thing.kind, thing.name, thing.uid)
        self.why: Final = why


class Patch(Command):
    """Changes a part of an object."""

    verb = "patch"


class Ungate(Patch):
    """Removes our scheduling gate from a pod, and no other gate."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(pod.kind, pod.name, pod.uid)


class PatchClique(Patch):
    """Gives a clique another template for the pods it creates from now on."""

    def __init__(self, clique: PodClique, template: CliqueTemplate) -> None:
        super().__init__(clique.kind, clique.name, clique.uid)
        self.template: Final = template


class PatchGang(Patch):
    """Sets the pod groups of a gang, with the pods that they refer to."""

    def __init__(self, gang: PodGang, groups: tuple[PodGroup, ...]) -> None:
        super().__init__(gang.kind, gang.name, gang.uid)
        self.groups: Final = groups


class PatchGangPhase(Patch):
    def __init__(self, gang: PodGang, phase: str) -> None:
        super().__init__(gang.kind, gang.name, gang.uid)
        self.phase: Final = phase


class PatchGangPlacement(Patch):
    """Sets what the scheduler reports of a gang: why it waits, or how close together it is."""

    def __init__(self, gang: PodGang, why_pending: str, score: float) -> None:
        super().__init__(gang.kind, gang.name, gang.uid)
        self.why_pending: Final = why_pending
        self.score: Final = score


class PatchStatus(Patch):
    """Sets the status of a clique, a scaling group or a set: what was observed, and its history."""

    def __init__(
        self,
        thing: PodClique | ScalingGroup | PodCliqueSet,
        status: CliqueStatus | GroupStatus | SetStatus,
    ) -> None:
        super().__init__(thing.kind, thing.name, thing.uid)
        self.status: Final = status


class Scale(Patch):
    """Sets the scale subresource: the wanted replicas of a clique, a scaling group or a set."""

    def __init__(self, kind: str, name: str, replicas: int) -> None:
        super().__init__(kind, name)
        self.replicas: Final = replicas


class PatchSpec(Patch):
    """Gives a set another spec, as when its file is applied again or a revision is restored."""

    def __init__(self, name: str, spec: SetSpec) -> None:
        super().__init__(SET, name)
        self.spec: Final = spec


class SetCondition(Command):
    """Sets a condition of an object, or removes it if its status is empty."""

    verb = "condition"

    def __init__(self, thing: Thing, condition: Condition) -> None:
        super().__init__(thing.kind, thing.name, thing.uid)
        self.condition: Final = condition


class Emit(Command):
    verb = "event"

    def __init__(self, event: ObjectEvent) -> None:
        super().__init__(event.kind, event.name)
        self.event: Final = event


def emit(
    commands: list[Command],
    thing: Thing,
    level: str,
    reason: str,
    what: str,
    now_s: float,
    about: str,
) -> None:
    """Adds an event about an object; the same reason and `about` mean the same event."""
    key = f"{reason}/{thing.uid}/{about}"
    event = ObjectEvent(key, level, thing.kind, thing.name, reason, what, now_s)
    commands.append(Emit(event))

"""What a controller wants done. A command is a wish: carried out or not, once or again.

A driver turns each into one call of its API server, simulated or real. The uid of the object that a
command was made for guards it: it is refused when another one has its name by now. A controller
that stops after any command can start over from what is there.
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
    """`verb` is one of create, delete, patch, condition, event; `kind` and `name` say of what."""

    verb = ""

    def __init__(self, kind: str, name: str, uid: str = "") -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.uid: Final = uid
        """Of the object that is meant; empty: whichever has the name."""


class Create(Command):
    """A new object, unless one of its name is there."""

    verb = "create"

    def __init__(self, thing: Thing) -> None:
        super().__init__(thing.kind, thing.name)
        self.thing: Final = thing


class CreatePod(Command):
    """A new pod of a clique at a free index; the API server gives it its name (`generateName`)."""

    verb = "create"

    def __init__(self, clique: PodClique, index: int) -> None:
        super().__init__(POD, f"{clique.name}-")
        self.clique: Final = clique
        self.index: Final = index


class Delete(Command):
    """The object goes, and all that it owns."""

    verb = "delete"

    def __init__(self, thing: Thing, why: str) -> None:
        super().__init__(thing.kind, thing.name, thing.uid)
        self.why: Final = why


class Patch(Command):
    """A change of a part of an object."""

    verb = "patch"


class Ungate(Patch):
    """Takes our scheduling gate off a pod, and no other gate."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(pod.kind, pod.name, pod.uid)


class PatchClique(Patch):
    """The clique makes its pods from another template from now on."""

    def __init__(self, clique: PodClique, template: CliqueTemplate) -> None:
        super().__init__(clique.kind, clique.name, clique.uid)
        self.template: Final = template


class PatchGang(Patch):
    """The pod groups of a gang, with the pods that they refer to."""

    def __init__(self, gang: PodGang, groups: tuple[PodGroup, ...]) -> None:
        super().__init__(gang.kind, gang.name, gang.uid)
        self.groups: Final = groups


class PatchGangPhase(Patch):
    def __init__(self, gang: PodGang, phase: str) -> None:
        super().__init__(gang.kind, gang.name, gang.uid)
        self.phase: Final = phase


class PatchGangPlacement(Patch):
    """What the scheduler says of a gang: why it waits, or how close together it is."""

    def __init__(self, gang: PodGang, why_pending: str, score: float) -> None:
        super().__init__(gang.kind, gang.name, gang.uid)
        self.why_pending: Final = why_pending
        self.score: Final = score


class PatchStatus(Patch):
    """What was seen of a clique, a scaling group or a set, and what is to be remembered of it."""

    def __init__(
        self,
        thing: PodClique | ScalingGroup | PodCliqueSet,
        status: CliqueStatus | GroupStatus | SetStatus,
    ) -> None:
        super().__init__(thing.kind, thing.name, thing.uid)
        self.status: Final = status


class Scale(Patch):
    """The scale subresource: the wanted replicas of a clique, a scaling group or a set."""

    def __init__(self, kind: str, name: str, replicas: int) -> None:
        super().__init__(kind, name)
        self.replicas: Final = replicas


class PatchSpec(Patch):
    """A set gets another spec, as when its file is applied again or a revision is restored."""

    def __init__(self, name: str, spec: SetSpec) -> None:
        super().__init__(SET, name)
        self.spec: Final = spec


class SetCondition(Command):
    """A condition of an object; one whose status is empty is taken away."""

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
    """Adds an event about an object; with the same reason and `about`, it is the same event."""
    key = f"{reason}/{thing.uid}/{about}"
    event = ObjectEvent(key, level, thing.kind, thing.name, reason, what, now_s)
    commands.append(Emit(event))

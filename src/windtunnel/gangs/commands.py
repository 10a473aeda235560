"""What a controller wants done. A command is a wish: carried out or not, once or again.

A driver turns each into one call of its API server, simulated or real. A uid that is given guards
it: the command is for that very object, and refused when another one has its name by now. A
controller that stops after any command can start over from what is there.
"""

from typing import Final

from windtunnel.gangs.objects import (
    CliqueStatus,
    Condition,
    GroupStatus,
    ObjectEvent,
    PodClique,
    PodGroup,
    SetStatus,
    Thing,
)
from windtunnel.gangs.templates import CliqueTemplate, SetSpec


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

    def __init__(self, kind: str, thing: Thing) -> None:
        super().__init__(kind, thing.name)
        self.thing: Final = thing


class CreatePod(Command):
    """A new pod of a clique at a free index; the API server gives it its name (`generateName`)."""

    verb = "create"

    def __init__(self, clique: PodClique, index: int) -> None:
        super().__init__("Pod", f"{clique.name}-")
        self.clique: Final = clique
        self.index: Final = index


class Delete(Command):
    """The object goes, and all that it owns; the uid keeps a successor of the same name safe."""

    verb = "delete"

    def __init__(self, kind: str, name: str, uid: str, why: str) -> None:
        super().__init__(kind, name, uid)
        self.why: Final = why


class Patch(Command):
    """A change of a part of an object."""

    verb = "patch"


class Ungate(Patch):
    """Takes our scheduling gate off a pod, and no other gate."""

    def __init__(self, pod: str, uid: str = "") -> None:
        super().__init__("Pod", pod, uid)


class PatchClique(Patch):
    """The clique makes its pods from another template from now on."""

    def __init__(self, clique: str, template: CliqueTemplate, uid: str = "") -> None:
        super().__init__("PodClique", clique, uid)
        self.template: Final = template


class PatchGang(Patch):
    """The pod groups of a gang, with the pods that they refer to."""

    def __init__(self, gang: str, groups: tuple[PodGroup, ...], uid: str = "") -> None:
        super().__init__("PodGang", gang, uid)
        self.groups: Final = groups


class PatchGangPhase(Patch):
    def __init__(self, gang: str, phase: str, uid: str = "") -> None:
        super().__init__("PodGang", gang, uid)
        self.phase: Final = phase


class PatchGangPlacement(Patch):
    """What the scheduler says of a gang: why it waits, or how close together it is."""

    def __init__(self, gang: str, why_pending: str, score: float, uid: str = "") -> None:
        super().__init__("PodGang", gang, uid)
        self.why_pending: Final = why_pending
        self.score: Final = score


class Scale(Patch):
    """The scale subresource: the wanted replicas of a clique, a scaling group or a set."""

    def __init__(self, kind: str, name: str, replicas: int) -> None:
        super().__init__(kind, name)
        self.replicas: Final = replicas


class PatchSpec(Patch):
    """A set gets another spec, as when its file is applied again or a revision is restored."""

    def __init__(self, name: str, spec: SetSpec) -> None:
        super().__init__("PodCliqueSet", name)
        self.spec: Final = spec


class PatchCliqueStatus(Patch):
    def __init__(self, name: str, status: CliqueStatus, uid: str = "") -> None:
        super().__init__("PodClique", name, uid)
        self.status: Final = status


class PatchGroupStatus(Patch):
    def __init__(self, name: str, status: GroupStatus, uid: str = "") -> None:
        super().__init__("PodCliqueScalingGroup", name, uid)
        self.status: Final = status


class PatchSetStatus(Patch):
    def __init__(self, name: str, status: SetStatus, uid: str = "") -> None:
        super().__init__("PodCliqueSet", name, uid)
        self.status: Final = status


class SetCondition(Command):
    """A condition of an object; one whose status is empty is taken away."""

    verb = "condition"

    def __init__(self, kind: str, name: str, condition: Condition, uid: str = "") -> None:
        super().__init__(kind, name, uid)
        self.condition: Final = condition


class Emit(Command):
    verb = "event"

    def __init__(self, event: ObjectEvent) -> None:
        super().__init__(event.kind, event.name)
        self.event: Final = event

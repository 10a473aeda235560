"""What a controller wants done. A command is a wish: carried out or not, once or again.

`View.apply` carries one out in a simulated world; a driver of a real cluster turns each into one
call of its API server. Whoever stops after any of them can start over from what is there.
"""

from typing import Final

from windtunnel.gangs.objects import (
    CliqueStatus,
    Condition,
    Event,
    GroupStatus,
    PodClique,
    PodGroup,
    SetStatus,
    Thing,
)
from windtunnel.gangs.templates import CliqueTemplate, SetSpec


class Command:
    """`verb` is one of create, delete, patch, condition, event; `kind` and `name` say of what."""

    verb = ""

    def __init__(self, kind: str, name: str) -> None:
        self.kind: Final = kind
        self.name: Final = name


class Create(Command):
    """A new object, unless one of its name is there."""

    verb = "create"

    def __init__(self, kind: str, thing: Thing) -> None:
        super().__init__(kind, thing.name)
        self.thing: Final = thing


class CreatePod(Command):
    """A new pod of a clique at a free index; the store gives it its name, as `generateName` does.

    Nothing happens when the clique is not the one that was meant, or the index is taken by now.
    """

    verb = "create"

    def __init__(self, clique: PodClique, index: int) -> None:
        super().__init__("Pod", f"{clique.name}-")
        self.clique: Final = clique
        self.index: Final = index


class Delete(Command):
    """The object goes, and all that it owns; `uid` keeps a successor of the same name safe."""

    verb = "delete"

    def __init__(self, kind: str, name: str, uid: str, why: str) -> None:
        super().__init__(kind, name)
        self.uid: Final = uid
        self.why: Final = why


class Patch(Command):
    """A change of a part of an object."""

    verb = "patch"


class Ungate(Patch):
    """Takes our scheduling gate off a pod, and no other gate."""

    def __init__(self, pod: str) -> None:
        super().__init__("Pod", pod)


class PatchClique(Patch):
    """The clique makes its pods from another template from now on."""

    def __init__(self, clique: str, template: CliqueTemplate) -> None:
        super().__init__("PodClique", clique)
        self.template: Final = template


class PatchGang(Patch):
    """The pod groups of a gang, with the pods that they refer to."""

    def __init__(self, gang: str, groups: tuple[PodGroup, ...]) -> None:
        super().__init__("PodGang", gang)
        self.groups: Final = groups


class PatchGangPhase(Patch):
    def __init__(self, gang: str, phase: str) -> None:
        super().__init__("PodGang", gang)
        self.phase: Final = phase


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
    def __init__(self, name: str, status: CliqueStatus) -> None:
        super().__init__("PodClique", name)
        self.status: Final = status


class PatchGroupStatus(Patch):
    def __init__(self, name: str, status: GroupStatus) -> None:
        super().__init__("PodCliqueScalingGroup", name)
        self.status: Final = status


class PatchSetStatus(Patch):
    def __init__(self, name: str, status: SetStatus) -> None:
        super().__init__("PodCliqueSet", name)
        self.status: Final = status


class SetCondition(Command):
    """A condition of an object; one whose status is empty is taken away."""

    verb = "condition"

    def __init__(self, kind: str, name: str, condition: Condition) -> None:
        super().__init__(kind, name)
        self.condition: Final = condition


class Emit(Command):
    verb = "event"

    def __init__(self, event: Event) -> None:
        super().__init__(event.kind, event.name)
        self.event: Final = event

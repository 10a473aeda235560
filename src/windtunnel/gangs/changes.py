"""Records of what changed in a cluster, so that a pass costs what changed, not what exists."""

from typing import Final


class Changes:
    """The changes since the last `clear`: names, in the order in which they first changed."""

    def __init__(self) -> None:
        self.sets: Final[dict[str, None]] = {}
        """Sets to check as a whole."""
        self.parts: Final[dict[str, dict[int, None]]] = {}
        """By set, the replicas with a changed part."""
        self.groups: Final[dict[str, None]] = {}
        self.cliques: Final[dict[str, None]] = {}
        self.members: Final[dict[str, dict[int, None]]] = {}
        """By scaling group, the replicas with a changed clique."""
        self.gangs: Final[dict[str, None]] = {}
        self.pods: Final[dict[str, None]] = {}
        self.nodes: Final[dict[str, None]] = {}
        self.attachments: Final[dict[tuple[str, str], None]] = {}
        """By kind and name."""

    def part(self, set_name: str, replica: int) -> None:
        """Records a change within a set replica."""
        replicas = self.parts.get(set_name)
        if replicas is None:
            self.parts[set_name] = {replica: None}
        else:
            replicas[replica] = None

    def take_all(self, other: "Changes") -> None:
        """Moves all changes of another record into this one."""
        self.sets.update(other.sets)
        for set_name, replicas in other.parts.items():
            for replica in replicas:
                self.part(set_name, replica)
        self.groups.update(other.groups)
        self.cliques.update(other.cliques)
        self.gangs.update(other.gangs)
        other.clear()

    def clear(self) -> None:
        self.sets.clear()
        self.parts.clear()
        self.groups.clear()
        self.cliques.clear()
        self.members.clear()
        self.gangs.clear()
        self.pods.clear()
        self.nodes.clear()
        self.attachments.clear()

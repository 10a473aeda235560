"""Who is told what changed in a cluster, so that a pass costs what changed and not what exists."""

from typing import Final

from windtunnel.gangs.objects import Attachment, Node, Pod, PodClique, PodGang, ScalingGroup


class Changes:
    """What changed since this was last emptied: names, in the order in which they first changed."""

    def __init__(self) -> None:
        self.sets: Final[dict[str, None]] = {}
        """Those that changed as a whole."""
        self.parts: Final[dict[str, dict[int, None]]] = {}
        """By set, the replicas of which a part changed."""
        self.groups: Final[dict[str, None]] = {}
        self.cliques: Final[dict[str, None]] = {}
        self.members: Final[dict[str, dict[int, None]]] = {}
        """By scaling group, the replicas of which a clique changed."""
        self.gangs: Final[dict[str, None]] = {}
        self.pods: Final[dict[str, None]] = {}
        self.nodes: Final[dict[str, None]] = {}
        self.attachments: Final[dict[tuple[str, str], None]] = {}
        """By kind and name."""

    def part(self, set_name: str, replica: int) -> None:
        """Notes that something of a set replica changed."""
        replicas = self.parts.get(set_name)
        if replicas is None:
            self.parts[set_name] = {replica: None}
        else:
            replicas[replica] = None

    def take_all(self, other: "Changes") -> None:
        """Adds what another record has, which is empty then."""
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


class Feed:
    """Tells every watcher of changes."""

    def __init__(self) -> None:
        self._watchers: Final[list[Changes]] = []

    def add_watcher(self, changes: Changes) -> None:
        self._watchers.append(changes)

    def unwatch(self, changes: Changes) -> None:
        self._watchers.remove(changes)

    def node_changed(self, node: Node) -> None:
        for watcher in self._watchers:
            watcher.nodes[node.name] = None

    def note_pod(self, pod: Pod) -> None:
        for watcher in self._watchers:
            watcher.pods[pod.name] = None
            watcher.cliques[pod.clique] = None
            watcher.gangs[pod.gang] = None

    def set_changed(self, name: str) -> None:
        for watcher in self._watchers:
            watcher.sets[name] = None

    def group_changed(self, group: ScalingGroup) -> None:
        for watcher in self._watchers:
            watcher.groups[group.name] = None
            watcher.part(group.set_name, group.replica)

    def clique_changed(self, clique: PodClique) -> None:
        for watcher in self._watchers:
            watcher.cliques[clique.name] = None
            watcher.gangs[clique.gang] = None
            watcher.part(clique.set_name, clique.replica)
            if clique.group:
                watcher.groups[clique.group] = None
                members = watcher.members.get(clique.group)
                if members is None:
                    watcher.members[clique.group] = {clique.group_replica: None}
                else:
                    members[clique.group_replica] = None

    def gang_changed(self, gang: PodGang) -> None:
        for watcher in self._watchers:
            watcher.gangs[gang.name] = None
            watcher.part(gang.set_name, gang.replica)

    def attachment_changed(self, attached: Attachment) -> None:
        for watcher in self._watchers:
            watcher.attachments[(attached.kind, attached.name)] = None
            if attached.terminating:  # its name may be free now
                watcher.part(attached.set_name, attached.replica)
                watcher.sets[attached.set_name] = None

    def gang_patched(self, gang: PodGang) -> None:
        for watcher in self._watchers:
            watcher.gangs[gang.name] = None
            for pod_group in gang.groups:
                watcher.cliques[pod_group.name] = None

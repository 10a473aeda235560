"""Controls one fleet shard on a cluster: objects and answers in, calls and decisions out."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from windtunnel.core.errors import MALFORMED, InputError, NoFixedPoint
from windtunnel.core.kubernetes import Received
from windtunnel.core.loop import INFINITY
from windtunnel.core.random import Streams
from windtunnel.fleet.demand.cluster import (
    UNKNOWN,
    ApartOf,
    ClusterDemand,
    ClusterView,
    Fields,
    TermsOf,
)
from windtunnel.fleet.demand.roll_up import RollUp
from windtunnel.fleet.driver import FleetDriver
from windtunnel.fleet.kubernetes.books import LARGEST_BOOKS, ROWS, RowBooks, books_of
from windtunnel.fleet.kubernetes.objects import (
    APPLY,
    CONFIG_MAP,
    FleetCall,
    ProviderOutcome,
)
from windtunnel.fleet.kubernetes.provider import KubernetesProvider
from windtunnel.fleet.kubernetes.settings import FleetFile
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import NeedKey
from windtunnel.fleet.orders import ExecutionLimits
from windtunnel.fleet.planner.actions import ACTIONS, VERDICTS, CyclePlan
from windtunnel.fleet.provider import FROM_THE_START
from windtunnel.fleet.shard import Shard, Territory
from windtunnel.fleet.sharding.membership import ShardMember
from windtunnel.fleet.sharding.messages import Instruction
from windtunnel.fleet.states import CONFIGURED, FAILED, STATES

LIMITS: Final = ExecutionLimits(timeout_s=60.0, create_timeout_s=1200.0)
"""Karpenter gives up a NodeClaim after 15 minutes."""
RETRY_S: Final = 5.0
MOST_STEPS: Final = 100_000
GANG_POD: Final = "PodClique"
DAEMON: Final = "DaemonSet"


class FleetDecision(NamedTuple):
    """A decision or finding, and the reason."""

    word: str
    """`provision`, `reclaim`, ..., `short`, `met`, `no_kind`, or the state of a machine."""
    machine: str
    need: str
    pod: str
    """The pod that the need was first requested for; empty if unknown."""
    reason: str


class ShardIdentity(NamedTuple):
    """The shard that a controller runs, and its term."""

    name: str
    epoch: int
    """From 1; increases with every process that runs the shard."""
    books_name: str
    """The name of its ConfigMap."""
    namespaces: tuple[str, ...] = ()
    """The namespaces for whose pods machines are requested; empty: all."""


class PodReader(NamedTuple):
    """Functions of the gang controllers that read pod specs."""

    terms_of: TermsOf
    apart_of: ApartOf
    requests_of: Callable[[Fields], dict[str, float]]
    name_of: Callable[[Any], str]
    """Returns the name of an object from its metadata."""


class ShardController:
    """Decides about the machines of one shard."""

    def __init__(
        self,
        file: FleetFile,
        provider: KubernetesProvider,
        view: ClusterView,
        reading: PodReader,
        identity: ShardIdentity,
        books: RowBooks,
        territory: Territory | None = None,
    ) -> None:
        self.identity: Final = identity
        self._reading: Final = reading
        self._view: Final = view
        self.provider: Final = provider
        self.shard: Final = Shard(identity.name, LIMITS, epoch=identity.epoch, territory=territory)
        provider.owns = self.shard.territory.has
        self.member: Final = ShardMember(self.shard)
        """Its side of the coordinator, if there are several shards."""
        self.driver: Final = FleetDriver(
            provider, [self.shard], Streams(0)["fleet.fetch"], cycle_s=file.fleet.cycle_s
        )
        self.driver.pace = 0.0
        self.driver.before_cycle = self._look
        self.driver.after_cycle = self._note
        self._unschedulable: Final[dict[str, None]] = {}
        self.demand: Final = ClusterDemand(
            view, provider.kinds(), identity.name, reading.terms_of, reading.apart_of, self._asks
        )
        self.demand.demand.restore([one.row() for one in books.rows], books.issued)
        self._roll_up: Final = RollUp(identity.name)
        self._cursor = FROM_THE_START
        self._known: Final[dict[str, Machine]] = {}
        self._holds: Final[dict[str, tuple[str, str]]] = {}  # by machine: its row and node
        self._ranked = 0
        self._ranks: Final[dict[str, int]] = {}
        self._wanted_text = self._stored_text = books.text()
        self._saving = False
        self._save_s = -INFINITY
        self.decisions: list[FleetDecision] = []
        """Decisions since the driver last took them."""
        self.verdicts: dict[str, str] = {}
        """By need that is short: the reason."""
        self._unplaceable: Final[dict[str, bool]] = {}
        self._pod_of_row: Final = {one.name: one.pod for one in books.rows}

    # What is observed.

    def pod(self, before: Received | None, after: Received | None, now_s: float) -> None:
        """Reports a pod that is new, has changed, or (None) is gone."""
        self.provider.pod(before, after)
        raw = after if after is not None else before
        assert raw is not None
        name = self._reading.name_of(raw.metadata)
        self._unschedulable.pop(name, None)
        if after is not None and _is_unschedulable(after):
            self._unschedulable[name] = None
        owner = raw.metadata.controller
        kind = "" if owner is None else owner.kind
        node = str(raw.spec.get("nodeName") or "")
        if kind == GANG_POD and (after is None or self._is_in_view(name, after, node)):
            self.demand.forget(name) if after is None else self.demand.pod_in_view(name)
            return
        ended = after is None or after.status.get("phase") in ("Succeeded", "Failed")
        if kind == DAEMON:
            if node:
                requests = self._requests(raw)
                there = UNKNOWN if requests is None else requests
                self.demand.daemon(name, node, None if ended else there)
            return
        if ended:
            self.demand.forget(name)
            return
        spec = raw.spec
        asked = self.demand.other_pod(name, raw.metadata.uid, spec, self._requests(raw), now_s)
        priority = spec.get("priority")
        self.demand.demand.prioritize(name, priority if isinstance(priority, int) else 0)
        pending = not node and self.demand.asks(name)
        self.demand.demand.pod(asked, node, pending=pending, gated=False)

    def _is_in_view(self, name: str, raw: Received, node: str) -> bool:
        """Whether the view has the current state of a pod; it omits pods that cannot be read."""
        found = self._view.pods.get(name)
        return found is not None and (found.uid, found.node) == (raw.metadata.uid, node)

    def _requests(self, raw: Received) -> dict[str, float] | None:
        """The requests of a pod; None: they cannot be read."""
        try:
            return self._reading.requests_of(raw.spec)
        except (InputError, *MALFORMED):
            return None

    def _asks(self, pod: str) -> bool:
        """Whether machines are requested for a pod: unschedulable, and in one of our namespaces."""
        if pod not in self._unschedulable:
            return False
        spaces = self.identity.namespaces
        return not spaces or (pod.rpartition("/")[0] or "default") in spaces

    # Time.

    def next_s(self) -> float:
        """When to call `step` next, at the latest."""
        unsaved = self._wanted_text != self._stored_text and not self._saving
        return min(self.driver.next_s(), self._save_s if unsaved else INFINITY)

    def step(self, now_s: float) -> list[FleetCall]:
        """Decides what is due; returns the calls to make now, each of which must be answered."""
        for _ in range(MOST_STEPS):
            if self.driver.next_s() > now_s:
                break
            self.driver.advance(now_s)
        else:
            raise NoFixedPoint(f"{MOST_STEPS:,} steps of the fleet")
        return self._save(now_s) + self.provider.calls(now_s)

    def answered(self, call: FleetCall, outcome: ProviderOutcome, says: str, now_s: float) -> None:
        """Takes the outcome of a call, whose effect on its object has already been observed."""
        if call.kind != CONFIG_MAP:
            self.provider.answered(call, outcome, says, now_s)
            return
        self._saving = False
        if outcome is ProviderOutcome.DONE:
            self._stored_text = call.body["data"][ROWS]
            if self._stored_text == self._wanted_text:
                self.provider.let_go()
        else:
            self._save_s = now_s + RETRY_S

    def obey(self, instructions: list[Instruction], now_s: float) -> None:
        """Follows the coordinator's instructions to give up or take machines, each once."""
        before = dict(self.shard.territory.given), dict(self.shard.territory.left)
        self.member.obey(instructions, self.provider.get, now_s)
        for was, is_now, word in zip(
            before,
            (self.shard.territory.given, self.shard.territory.left),
            ("taken", "given_up"),
            strict=True,
        ):
            for machine in is_now:
                if machine not in was:
                    self._decide(word, machine, None, "as the coordinator asked")
                    self.provider.touch(machine)

    # Decisions.

    def _look(self, now_s: float) -> None:
        """Updates the demand and the rows of machines, before a cycle."""
        self._follow()
        demand = self.demand.look(now_s)
        for name, row in demand.added.items():
            if row.pod is not None:
                self._pod_of_row[name] = row.pod.name
        for name in demand.dropped:
            self._pod_of_row.pop(name, None)
        for pod, by_taints in demand.unplaceable.items():
            if pod not in self._unplaceable:
                why = "no kind of machine of the fleet can hold it"
                if by_taints:
                    why += ": it does not tolerate the taints of those that are large enough"
                self._decide("no_kind", "", None, why, pod)
        self._unplaceable.clear()
        self._unplaceable.update(demand.unplaceable)
        demand.unplaceable.clear()
        if demand.added or demand.dropped or not self.driver.cycles > 1:
            self._wanted_text = books_of(demand, self._pod_of_row).text()
            self.provider.held_back = self._wanted_text != self._stored_text
        self._roll_up.send(self.shard, demand)

    def _save(self, now_s: float) -> list[FleetCall]:
        """Stores the rows before anything is ordered for them."""
        text = self._wanted_text
        if text == self._stored_text or self._saving or now_s < self._save_s:
            return []
        if len(text.encode()) > LARGEST_BOOKS:
            self._save_s = now_s + RETRY_S
            why = f"its {len(text)} bytes of rows are more than a ConfigMap holds"
            self._decide("unsaved", "", None, why)
            return []
        self._saving = True
        name = self.identity.books_name
        body: dict[str, Any] = {"metadata": {"name": name}, "data": {ROWS: text}}
        return [FleetCall(APPLY, CONFIG_MAP, name, body=body, why="rows of the demand")]

    def _follow(self) -> None:
        """Reports to the demand which node is counted for which row."""
        more = True
        while more:
            page = self.provider.changes_since(self._cursor)
            self._cursor, more = page.cursor, page.more
            for record in page.records:
                before = self._known.get(record.id)
                self._known[record.id] = record
                is_news = before is not None and before.state != record.state
                if is_news and self.provider.owns(record):
                    reason = record.error
                    self._decide(STATES[record.state], record.id, record.holder, reason)
                self._hold(record.id, record)
            for name in page.tombstones:
                self._known.pop(name, None)
                self._hold(name, None)

    def _hold(self, machine: str, record: Machine | None) -> None:
        demand, now = self.demand.demand, None
        was = self._holds.get(machine)
        if record is not None and record.state == CONFIGURED and self.provider.owns(record):
            assert record.holder is not None
            now = (record.holder.group, self.provider.node_of(machine))
        elif record is not None and record.state == FAILED and self.provider.owns(record):
            # Its row is kept for its pods, so that another machine comes before they leave.
            need = self.provider.need_of_pods(machine)
            now = None if need is None else (need.group, self.provider.node_of(machine))
        if was == now:
            return
        if was is not None:
            del self._holds[machine]
            if now is None or now[1] != was[1]:
                demand.release(was[1])
        if now is not None:
            if machine not in self._ranks:
                self._ranked += 1
                self._ranks[machine] = self._ranked
            self._holds[machine] = now
            demand.hold(now[1], now[0], self._ranks[machine])

    def _note(self, shard: Shard, plan: CyclePlan, now_s: float) -> None:  # noqa: ARG002 - there is one
        self.member.note(plan)
        for action in plan.actions:
            self._decide(ACTIONS[action.kind], action.machine, action.need, action.reason)
        verdicts = {}
        for one in plan.shortfalls:
            why = verdicts[one.need.group] = f"{VERDICTS[one.verdict]}: {one.reason}"
            if self.verdicts.get(one.need.group) != why:
                self._decide("short", "", one.need, why)
        for group in self.verdicts:
            if group not in verdicts:
                self._decide("met", "", NeedKey(shard.name, "", group), "")
        self.verdicts = verdicts

    def _decide(
        self, word: str, machine: str, need: NeedKey | None, reason: str, pod: str = ""
    ) -> None:
        group = "" if need is None else need.group
        pod = pod or self._pod_of_row.get(group, "")
        self.decisions.append(FleetDecision(word, machine, group, pod, reason))

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Machines by pool and state."""
        found: dict[tuple[str, str], int] = {}
        for record in self.provider.records():
            if self.provider.owns(record):
                key = (record.shape.instance_type, STATES[record.state])
                found[key] = found.get(key, 0) + 1
        return found


def _is_unschedulable(raw: Received) -> bool:
    """Whether a scheduler has found no node for a pod."""
    if raw.spec.get("nodeName") or raw.metadata.deletion_timestamp is not None:
        return False
    conditions = raw.status.get("conditions")
    return any(
        isinstance(one, dict)
        and one.get("type") == "PodScheduled"
        and one.get("status") == "False"
        and one.get("reason") == "Unschedulable"
        for one in (conditions if isinstance(conditions, list) else [])
    )

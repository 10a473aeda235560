"""`engine-crash`, `crash-loop`: engines crash, once or after every start."""

from collections.abc import Iterator
from typing import Final, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context, Section
from windtunnel.twin.faults.context import FaultContext, context_of
from windtunnel.twin.faults.kind import Injection, LastingFault
from windtunnel.twin.faults.servers import ServerFault, ServerSelect, names_of
from windtunnel.twin.faults.timing import Length, Moment
from windtunnel.twin.faults.world import World
from windtunnel.twin.servers.replicas import Replica


class EngineCrash(ServerFault):
    """Engines crash, and new servers replace them."""

    kind: Literal["engine-crash"]

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream)
        return Injection(names_of(servers), begin=lambda now_s: world.crash(servers, now_s))


class RestartBackoff(Section):
    """How long a crashed engine waits before it restarts; the wait doubles each time."""

    first_s: Moment = Field(default=10.0, description="After the first crash, as in Kubernetes.")
    most_s: Moment = Field(default=300.0, description="Longest wait.")

    def after(self, crashes: int) -> float:
        """The wait after a crash that follows this many earlier ones."""
        return min(self.first_s * 2.0 ** min(crashes, 60), self.most_s)

    def check(self, where: Context) -> Iterator[Fault]:
        if self.most_s < self.first_s:
            what = f"{self.most_s:g} s is less than `first`, which is {self.first_s:g} s"
            yield where.fault("most", what)


class CrashLoop(ServerFault, LastingFault):
    """Engines crash, and crash again after every start."""

    kind: Literal["crash-loop"]
    for_s: Length = Field(
        serialization_alias="for_",
        description="Duration; servers that start later do not crash.",
    )
    select: ServerSelect = Field(
        default_factory=ServerSelect, description="Which servers; default: one of all."
    )
    after_s: Moment = Field(default=5.0, description="From being ready to the crash.")
    backoff: RestartBackoff = Field(
        default_factory=RestartBackoff,
        description="Wait before a restart; doubles each time. Default: 10s, 20s, ... 5m.",
    )

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream)
        if world.has_pods:
            cliques: list[tuple[str, str]] = []
            return Injection(
                names_of(servers),
                begin=lambda now_s: cliques.extend(world.crash_pods(servers, now_s)),
                end=lambda now_s: world.mend_pods(cliques, now_s),
            )
        loop = CrashingServers(self, world, servers)
        return Injection(names_of(servers), begin=loop.begin, end=loop.end)

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        if context_of(where.root).pods:
            for field, key in (("after_s", "after"), ("backoff", "backoff")):
                if self.written(field):
                    what = "on gangs it is the cluster that says when pods crash and start again"
                    yield where.fault(key, what, hint="leave it out")

    @classmethod
    def draw(cls, dice: Dice, context: FaultContext) -> Values:
        drawn = super().draw(dice, context)
        if not context.pods:
            first_s = context.span_s(dice)
            drawn["after"] = context.span_s(dice)
            drawn["backoff"] = {"first": first_s, "most": first_s * dice.pick(1, 4)}
        return drawn


class CrashingServers:
    """The servers of a crash loop, and their replacements."""

    def __init__(self, settings: CrashLoop, world: World, servers: list[Replica]) -> None:
        self._settings: Final = settings
        self._world: Final = world
        self._servers: Final = servers
        self._until_s = 0.0

    def begin(self, now_s: float) -> None:
        self._until_s = now_s + self._settings.for_s
        for server in self._servers:
            self._crash(server, 0, now_s)

    def end(self, now_s: float) -> None:
        """Does nothing: servers that start from now on do not crash."""

    def _crash(self, server: Replica, crashes: int, now_s: float) -> None:
        """Crashes a server; `crashes` counts the earlier crashes of its predecessors."""
        successor = self._world.lose(server, now_s)
        if successor is not None:
            start_s = now_s + self._settings.backoff.after(crashes)
            self._world.later(
                start_s, lambda at_s: self._start(successor, crashes + 1, at_s), helps=True
            )

    def _start(self, server: Replica, crashes: int, now_s: float) -> None:
        ready_s = self._world.start(server, now_s)
        if ready_s is not None and ready_s + self._settings.after_s <= self._until_s:
            crash_s = ready_s + self._settings.after_s
            self._world.later(crash_s, lambda at_s: self._crash(server, crashes, at_s), helps=False)

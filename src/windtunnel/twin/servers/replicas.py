"""Replicas and their states: pending, starting, ready, draining, gone.

A replica is a server from when it is requested until it is gone. It costs money from the beginning
of its start-up, and serves from the end of it. `lifecycle.py` moves it from state to state; this
module counts.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.loop import Entry
from windtunnel.core.statistics.histogram import HistogramBuckets
from windtunnel.core.vocabulary import REPLICA_STATES
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.overheads import Overheads
from windtunnel.engine.server import Server
from windtunnel.models.step_time.model import StepTimeModel

PENDING: Final = 0  # requested, without a machine
STARTING: Final = 1  # on a machine, loading the model
READY: Final = 2
DRAINING: Final = 3  # gets no more requests, and finishes its own
GONE: Final = 4
STATES: Final = REPLICA_STATES

NOT_YET: Final = -1.0

MOST_SIZES: Final = 2_000
"""The most recorded changes of a pool's size; at twice as many, every second one is dropped."""

Size = tuple[float, int, list[int]]
"""The time, the target, and the number of replicas in each state."""


class Replica:
    """One server of a pool, and the times of its state changes."""

    def __init__(self, server: Server, pool: "Pool", number: int) -> None:
        self.server: Final = server
        self.pool: Final = pool
        self.number: Final = number  # within its pool
        self.state: i64 = PENDING
        self.started_s = NOT_YET
        self.ready_s = NOT_YET
        self.gone_s = NOT_YET
        self.planned: Entry | None = None  # the end of its start-up

    def paid_s(self, now_s: float) -> float:
        """Seconds that cost money so far, from the beginning of its start-up."""
        return _since(self.started_s, self.gone_s, now_s)

    def served_s(self, now_s: float) -> float:
        """Seconds in which it could serve."""
        return _since(self.ready_s, self.gone_s, now_s)


def _since(from_s: float, until_s: float, now_s: float) -> float:
    if from_s == NOT_YET:
        return 0.0
    return (now_s if until_s == NOT_YET else until_s) - from_s


class Pool:
    """Interchangeable replicas, and what new ones are built from."""

    def __init__(
        self,
        name: str,
        *,
        decodes: bool,
        prefills: bool,
        limits: EngineLimits,
        step_time: StepTimeModel,
        overheads: Overheads,
        model: int = 0,
        site: int = 0,
    ) -> None:
        self.name: Final = name
        self.model: Final[i64] = model  # the one that its servers serve, by number
        self.site: Final[i64] = site  # the cluster that they are in, by number
        self.decodes: Final = decodes
        self.prefills: Final = prefills
        self.limits: Final = limits
        self.step_time: Final = step_time
        self.overheads: Final = overheads
        self.token_gaps: Final = HistogramBuckets()  # of its servers
        self.target = 0  # the target number of replicas
        self.replicas: Final[list[Replica]] = []  # all that ever existed
        self.here: Final[list[Replica]] = []  # those that are not gone
        self.counts: Final = [0] * len(STATES)
        self.moves: i64 = 0  # how often a replica was added or changed state
        self.most = 0  # the most that cost money at one time
        self.started: i64 = 0  # after the start of the run
        self.drained: i64 = 0
        self.redirected: i64 = 0  # requests that were sent back to the router
        self.lost: i64 = 0  # replicas lost at once, with all their requests
        self.retried: i64 = 0  # requests that started over because of that
        self.failed: i64 = 0  # and those that had no retries left
        self.lost_tokens: i64 = 0  # computed in vain
        self.rate_limited: i64 = 0  # how often its servers answered 429
        self._paid_s = 0.0
        self._served_s = 0.0
        self._settled_s = 0.0
        self._sizes: list[Size] = []

    @property
    def servers(self) -> list[Server]:
        """The servers of all replicas that ever existed."""
        return [replica.server for replica in self.replicas]

    @property
    def paying(self) -> int:
        return self.counts[STARTING] + self.counts[READY] + self.counts[DRAINING]

    @property
    def coming_or_ready(self) -> int:
        return self.counts[PENDING] + self.counts[STARTING] + self.counts[READY]

    def paid_s(self, now_s: float) -> float:
        """Seconds of its replicas that cost money."""
        return self._paid_s + self.paying * (now_s - self._settled_s)

    def served_s(self, now_s: float) -> float:
        """Seconds in which its replicas could serve."""
        serving = self.counts[READY] + self.counts[DRAINING]
        return self._served_s + serving * (now_s - self._settled_s)

    def sizes(self) -> list[list[float]]:
        """Every change: the time, the target from then on, and the replicas in each state.

        The states are pending, starting, ready and draining.
        """
        return [[time_s, wanted, *counts] for time_s, wanted, counts in self._sizes]

    def note_size(self, now_s: float) -> None:
        """Records the current size after a change."""
        if self._sizes and self._sizes[-1][0] == now_s:
            self._sizes.pop()
        self._sizes.append((now_s, self.target, self.counts[:GONE]))
        if len(self._sizes) >= 2 * MOST_SIZES:
            self._sizes = self._sizes[1::2]

    def join(self, replica: Replica) -> None:
        self.replicas.append(replica)
        self.here.append(replica)
        self.counts[PENDING] += 1
        self.moves += 1

    def move(self, replica: Replica, state: int, now_s: float) -> None:
        """Moves a replica to another state, and updates the counts."""
        self._paid_s = self.paid_s(now_s)
        self._served_s = self.served_s(now_s)
        self._settled_s = now_s
        self.counts[replica.state] -= 1
        self.counts[state] += 1
        replica.state = state
        self.moves += 1
        if state == STARTING:
            replica.started_s = now_s
        elif state == READY:
            replica.ready_s = now_s
        elif state == GONE:
            replica.gone_s = now_s
            self.here.remove(replica)
        if self.paying > self.most:
            self.most = self.paying

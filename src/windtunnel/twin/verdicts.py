"""Does what the gateway of a run says: lets in, turns away, stops, and looks again in time."""

import math
from typing import Final

from windtunnel.admission.gateway.tickets import ADMIT, EVICT, REJECT, Decision
from windtunnel.core import vocabulary
from windtunnel.core.events import Entry, EventQueue
from windtunnel.twin.cluster import Roster
from windtunnel.twin.door import Door
from windtunnel.twin.event_log import EventLog
from windtunnel.twin.inside import Inside
from windtunnel.workload.request import Request

DISPATCH: Final = 3


class Verdicts:
    """Asks the gateway and carries out its verdicts, one after another.

    Doing one may make the gateway say more; that is done after what it has said already.
    """

    def __init__(
        self,
        door: Door,
        inside: Inside,
        roster: Roster,
        queue: EventQueue,
        event_log: EventLog | None,
    ) -> None:
        self._door: Final = door
        self._inside: Final = inside
        self._roster: Final = roster
        self._queue: Final = queue
        self._event_log: Final = event_log
        self._todo: Final[list[Decision]] = []
        self._held = False
        self._planned: Entry | None = None  # when the gateway wants to look again

    def arrive(self, request: Request, now_s: float) -> None:
        self._look(now_s)
        self._obey(self._door.arrive(request, now_s), now_s)

    def ended(self, request: Request, now_s: float) -> None:
        self._look(now_s)
        self._obey(self._door.ended(request, now_s), now_s)

    def leave(self, request: Request, now_s: float) -> None:
        """The client of a request that waits at the gateway gives up."""
        self._door.leave(request, now_s)
        self._plan(now_s)

    def due(self, now_s: float) -> None:
        """The time has come that the gateway was waiting for."""
        self._planned = None
        self.ask(now_s)

    def ask(self, now_s: float) -> None:
        """Time has passed, or servers have come: who may go now?"""
        self._look(now_s)
        self._obey(self._door.tick(now_s), now_s)

    def hold(self) -> bool:
        """Nothing is carried out until `release` is given what this returns."""
        held = self._held
        self._held = True
        return held

    def release(self, held: bool, now_s: float) -> None:  # noqa: FBT001 - what `hold` gave
        self._held = held
        if not held:
            self._carry_all_out(now_s)

    def _look(self, now_s: float) -> None:
        """Servers are asked for a gateway that wants to know how they are, and for no other."""
        if self._door.reads_signals:
            self._roster.look(now_s)

    def _obey(self, verdicts: list[Decision], now_s: float) -> None:
        self._todo.extend(verdicts)
        if not self._held:
            self._carry_all_out(now_s)

    def _carry_all_out(self, now_s: float) -> None:
        self._held = True
        done = 0
        while done < len(self._todo):
            self._carry_out(self._todo[done], now_s)
            done += 1
        self._todo.clear()
        self._held = False
        self._plan(now_s)

    def _carry_out(self, verdict: Decision, now_s: float) -> None:
        request = self._door.hear(verdict)
        if request is None:
            return
        reason = str(verdict.reason)
        if self._event_log is not None:
            kind = vocabulary.GATEWAY_DECISIONS[verdict.kind]
            self._event_log.add(
                now_s, kind, request, reason, seen=verdict.seen, limit=verdict.limit
            )
        if verdict.kind == ADMIT:
            self._inside.let_in(request)
        elif verdict.kind == REJECT:
            self._door.turned_away(request)
            self._inside.turn_away(request, reason)
        elif verdict.kind == EVICT:
            self._inside.stop(request, reason)

    def _plan(self, now_s: float) -> None:
        """Keeps one event in the queue for when the gateway wants to look again."""
        next_s = self._door.gateway.next_s
        planned = self._planned
        if planned is not None:
            if planned[0] == next_s:
                return
            self._queue.cancel(planned)
            self._planned = None
        if next_s != math.inf:
            self._planned = self._queue.push(max(next_s, now_s), DISPATCH, self)

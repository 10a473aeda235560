"""The loop of a simulation: arrivals, servers and time, until no work remains."""

import math
from collections.abc import Callable
from typing import Final

from windtunnel.admission.gateway.tickets import ADMIT, EVICT, REJECT, Decision
from windtunnel.core.events import Entry, EventQueue
from windtunnel.engine.encoder import Encoders
from windtunnel.engine.server import Server
from windtunnel.routing.counterfactual import Counterfactual, Judgement
from windtunnel.routing.router import Router
from windtunnel.routing.split import Decider
from windtunnel.twin import story as told
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.door import Door
from windtunnel.twin.handoff import RETRY, Handoff
from windtunnel.twin.reasons import stage_of
from windtunnel.twin.recorder import (
    COMPLETED,
    DROPPED,
    REJECTED,
    TIMED_OUT,
    UNFINISHED,
    Overheads,
    Recorder,
)
from windtunnel.twin.story import Story
from windtunnel.twin.timeline import Timeline
from windtunnel.workload.request import NEVER, UNSET, Request
from windtunnel.workload.traffic import Traffic

# What can be planned, in the order in which things of the same instant happen.
ENQUEUE: Final = 0
ENCODED: Final = 1
DISPATCH: Final = 3
TIMEOUT: Final = 9

# Where a request is.
AT_THE_DOOR: Final = 1
ENCODING: Final = 2
ON_THE_WAY: Final = 3
SPLIT: Final = 4
AT_SERVER: Final = 5
ENDED: Final = 6

EVENTS_PER_LOOK: Final = 16_384


class Splitting:
    """Disaggregation: who decides, who computes prompts, and how KV gets across."""

    def __init__(self, decider: Decider, router: Router, handoff: Handoff) -> None:
        self.decider: Final = decider
        self.router: Final = router
        self.handoff: Final = handoff


class Simulation:
    """Servers under traffic. One run each: `run` takes it from the first arrival to the end."""

    def __init__(
        self,
        traffic: Traffic,
        router: Router,
        cluster: Cluster,
        queue: EventQueue,
        door: Door | None,
        counterfactual: Counterfactual | None,
        splitting: Splitting | None,
        encoders: Encoders | None,
        overheads: list[Overheads],
        recorder: Recorder,
        timeline: Timeline,
        story: Story | None,
        horizon_s: float,
    ) -> None:
        self.traffic: Final = traffic
        self.router: Final = router
        self.cluster: Final = cluster
        self.servers: Final = cluster.servers
        self.door: Final = door
        self.counterfactual: Final = counterfactual
        self.splitting: Final = splitting
        self.encoders: Final = encoders
        self.recorder: Final = recorder
        recorder.has_gateway = door is not None
        self.timeline: Final = timeline
        self.horizon_s: Final = horizon_s
        self.now_s = 0.0
        self.last_arrival_s = 0.0
        self.events = 0
        self.elsewhere: Final[dict[int, Request]] = {}  # inside, and not (whole) at a server
        self.legs = 0  # prefill halves at servers: no requests of their own
        self._signals: Final = cluster.signals
        self._overheads: Final = overheads
        self._queue: Final = queue
        self._story: Final = story
        self._verdicts: Final[list[Decision]] = []  # of the gateway, still to be carried out
        self._obeying = False
        self._dispatch: Entry | None = None  # when the gateway wants to look again

    def run(
        self,
        look: Callable[["Simulation"], None],
        check: Callable[["Simulation"], None] | None = None,
    ) -> None:
        """Runs to the end. `look` is called now and then, `check` after every event."""
        traffic = self.traffic
        queue = self._queue
        agenda = self.cluster.agenda
        timeline = self.timeline
        while True:
            # What arrives as a step ends is seen by the next step: arrivals go first.
            arrival_s = traffic.next_s
            event_s = queue.peek_time()
            actor = agenda.first()
            next_s = actor.wake_s
            if event_s <= next_s:
                next_s = event_s
            if arrival_s <= next_s:
                next_s = arrival_s
            if next_s > self.horizon_s or next_s == math.inf:
                break
            if next_s > timeline.next_s:
                timeline.take(next_s, self.recorder, self.cluster, self.door)
            self.now_s = next_s
            self.events += 1
            if arrival_s == next_s:
                self._arrive(traffic.take())
            elif event_s == next_s:
                self._happen()
            elif actor.turn < len(self.servers):
                self._step(self.servers[actor.turn])
            else:
                self._land()
            if check is not None:
                check(self)
            if self.events % EVENTS_PER_LOOK == 0:
                look(self)
        if self.horizon_s != math.inf:
            self.now_s = self.horizon_s
        timeline.finish(self.now_s, self.recorder, self.cluster, self.door)
        self._account_for_the_rest()
        self.recorder.flush()

    # The way in

    def _arrive(self, request: Request) -> None:
        """The one way into a run: first requests, follow-ups of users, replays."""
        self.recorder.arrive(request)
        self.last_arrival_s = self.now_s
        if request.deadline_s != NEVER:
            gone_s = max(self.now_s, request.deadline_s)
            request.alarm = self._queue.push(gone_s, TIMEOUT, request)
        if self.door is None:
            self._admit(request)
        else:
            self._keep(request, AT_THE_DOOR)
            self._look_for(self.door)
            self._obey(self.door.arrive(request, self.now_s))

    def _look_for(self, door: Door) -> None:
        """Servers are asked for a gateway that wants to know how they are, and for no other."""
        if door.reads_signals:
            self.cluster.look(self.now_s)

    def _obey(self, verdicts: list[Decision]) -> None:
        """Does what the gateway says. Doing it may make it say more, which is done after that."""
        self._verdicts.extend(verdicts)
        if not self._obeying:
            self._carry_all_out()

    def _carry_all_out(self) -> None:
        self._obeying = True
        done = 0
        while done < len(self._verdicts):
            self._carry_out(self._verdicts[done])
            done += 1
        self._verdicts.clear()
        self._obeying = False
        self._plan_dispatch()

    def _carry_out(self, verdict: Decision) -> None:
        assert self.door is not None
        request = self.door.hear(verdict)
        if request is None:
            return
        if self._story is not None:
            kind = told.VERDICTS[verdict.kind]
            reason = str(verdict.reason)
            self._story.tell(
                self.now_s, kind, request, reason, seen=verdict.seen, limit=verdict.limit
            )
        if verdict.kind == ADMIT:
            del self.elsewhere[request.id]
            self._admit(request)
        elif verdict.kind == REJECT:
            del self.elsewhere[request.id]
            self.door.turned_away(request)
            self._turn_away(request, verdict)
        elif verdict.kind == EVICT:
            self._withdraw(request)
            self._turn_away(request, verdict)

    def _turn_away(self, request: Request, verdict: Decision) -> None:
        request.reason = str(verdict.reason)
        request.finished_s = self.now_s
        self._end(request, REJECTED)

    def _plan_dispatch(self) -> None:
        """Keeps one event in the queue for when the gateway wants to look again."""
        assert self.door is not None
        next_s = self.door.gateway.next_s
        planned = self._dispatch
        if planned is not None:
            if planned[0] == next_s:
                return
            self._queue.cancel(planned)
            self._dispatch = None
        if next_s != math.inf:
            self._dispatch = self._queue.push(max(next_s, self.now_s), DISPATCH, None)

    def _admit(self, request: Request) -> None:
        request.admitted_s = self.now_s
        if self.encoders is not None and request.media_tokens:
            done_s = self.encoders.done_s(request.media_tokens, self.now_s)
            self._keep(request, ENCODING)
            request.planned = self._queue.push(done_s, ENCODED, request)
        else:
            self._route(request)

    def _keep(self, request: Request, place: int) -> None:
        """Notes that a request is inside, but not at a server."""
        request.place = place
        self.elsewhere[request.id] = request

    def _route(self, request: Request) -> None:
        if self.router.reads_signals:
            self.cluster.look(self.now_s)
        opinions: list[tuple[int, float]] = []
        if self._story is not None:
            opinions = self.router.explain(request, self.now_s)
        server = self.servers[self.router.choose(request, self.now_s)]
        judgement: Judgement | None = None
        if self.counterfactual is not None:
            judgement = self.counterfactual.look(request, server.index, self.now_s)
        request.server = server.index
        request.sent_s = self.now_s
        self._signals.sent(server.index)
        if self._story is not None:
            self._story.routed(self.now_s, request, opinions, judgement)
        if self.splitting is not None and self._split(request, server):
            return
        queued_s = self._overheads[server.index].queued_s(self.now_s)
        if queued_s > self.now_s:
            self._keep(request, ON_THE_WAY)
            request.planned = self._queue.push(queued_s, ENQUEUE, request)
        else:
            self._enqueue(request, server)

    def _split(self, request: Request, server: Server) -> bool:
        """Sends the prompt to a prefill server, if the decider wants it; the whole waits for it."""
        splitting = self.splitting
        assert splitting is not None
        if server.refusal(request):
            return False
        cached = server.cached_tokens(request)
        if not splitting.decider.split(request.prompt_tokens, cached):
            return False
        if splitting.router.reads_signals:
            self.cluster.look(self.now_s)
        prefill = splitting.router.choose(request, self.now_s)
        if prefill == server.index:
            return False
        if self._story is not None:
            reason = splitting.decider.kind
            self._story.tell(
                self.now_s, told.SPLIT, request, reason, prefill=prefill, cached=int(cached)
            )
        leg = splitting.handoff.begin(request, prefill, self.now_s)
        self._keep(request, SPLIT)
        self._signals.sent(leg.server)
        queued_s = self._overheads[leg.server].queued_s(self.now_s)
        if queued_s > self.now_s:
            leg.place = ON_THE_WAY
            leg.planned = self._queue.push(queued_s, ENQUEUE, leg)
        else:
            self._enqueue(leg, self.servers[leg.server])
        return True

    def _enqueue(self, request: Request, server: Server) -> None:
        request.place = AT_SERVER
        if request.parent is not None:
            self.legs += 1
        self.cluster.submit(request, server, self.now_s)
        if server.finished:
            self._collect(server)

    # What happens

    def _happen(self) -> None:
        """The next event of the queue."""
        entry = self._queue.pop()
        assert entry is not None
        kind = entry[1]
        if kind == DISPATCH:
            assert self.door is not None
            self._dispatch = None
            self._look_for(self.door)
            self._obey(self.door.tick(self.now_s))
            return
        request = entry[3]
        assert isinstance(request, Request)
        if kind == TIMEOUT:
            request.alarm = None
            self._time_out(request)
            return
        request.planned = None
        if kind == RETRY:
            assert self.splitting is not None
            self.splitting.handoff.move(request, self.now_s)
            self._settle(request)
            return
        if request.parent is None:
            del self.elsewhere[request.id]
        if kind == ENCODED:
            request.encoded_s = self.now_s
            self._route(request)
        else:
            self._enqueue(request, self.servers[request.server])

    def _step(self, server: Server) -> None:
        self.cluster.advance(server, self.now_s)
        if self._story is not None:
            self._story.stepped(self.now_s, server)
        if server.finished:
            self._collect(server)

    def _land(self) -> None:
        """KV has arrived where it was wanted, or has begun to move."""
        link = self.cluster.link
        assert link is not None
        assert self.splitting is not None
        arrived = link.advance(self.now_s)
        self.cluster.agenda.moved(link)
        for request in arrived:
            self.splitting.handoff.arrived(request, self.now_s)
            self._settle(request)

    def _settle(self, request: Request) -> None:
        """Once a split request's KV is across, the decoding server has it whole."""
        assert self.splitting is not None
        if request.id not in self.splitting.handoff.splits:
            del self.elsewhere[request.id]
            request.place = AT_SERVER
            if self._story is not None:
                self._story.moved(self.now_s, request)
            server = self.servers[request.server]
            if server.finished:
                self._collect(server)

    def _collect(self, server: Server) -> None:
        finished = server.finished[:]
        server.finished.clear()
        # All that ended have to be seen to before the gateway may stop one of them.
        obeying = self._obeying
        self._obeying = True
        for request in finished:
            parent = request.parent
            if parent is None:
                self._end(request, DROPPED if request.dropped else COMPLETED)
            else:
                self._end_leg(request, parent)
        self._obeying = obeying
        if self.door is not None and not obeying:
            self._carry_all_out()

    def _end_leg(self, leg: Request, request: Request) -> None:
        assert self.splitting is not None
        self.legs -= 1
        self._signals.ended(leg.server)
        if self.splitting.router.reads_signals and not leg.dropped:
            self._hear(leg)
        if self.splitting.handoff.prefilled(leg, self.now_s):
            self._settle(request)
        else:
            del self.elsewhere[request.id]
            request.finished_s = self.now_s
            self._end(request, DROPPED)

    # The ways out

    def _end(self, request: Request, outcome: str) -> None:
        """The one way out of a run that goes on; whoever must know of an end hears of it here."""
        request.place = ENDED
        if request.alarm is not None:
            self._queue.cancel(request.alarm)
            request.alarm = None
        if request.server >= 0:
            self._signals.ended(request.server)
        if outcome == COMPLETED:
            # Servers speak of their own times, before they become the client's.
            if self.router.reads_signals:
                self._hear(request)
            self._overheads[request.server].reach_client(request)
        self.recorder.end(request, outcome)
        if self._story is not None:
            self._story.ended(self.now_s, request, outcome)
        if self.door is not None:
            self._look_for(self.door)
            self._obey(self.door.ended(request, self.now_s))
        if request.followed:
            self.traffic.ended(request, outcome == COMPLETED, max(self.now_s, request.finished_s))

    def _hear(self, request: Request) -> None:
        """What its server can say of its times when it is asked next."""
        gaps = request.output_tokens - 1
        tpot_s = 0.0
        if gaps > 0:
            tpot_s = (request.finished_s - request.first_token_s) / float(gaps)
        self._signals.heard(request.server, request.first_token_s - request.sent_s, tpot_s)

    def _time_out(self, request: Request) -> None:
        """The client leaves; a step that ends at this very instant still counts."""
        if request.place == AT_SERVER and self.servers[request.server].wake_s <= self.now_s:
            self._step(self.servers[request.server])
            if request.place == ENDED:
                return
        self._withdraw(request)
        request.reason = f"the client left {stage_of(request)}"
        request.finished_s = self.now_s
        self._end(request, TIMED_OUT)

    def _withdraw(self, request: Request) -> None:
        """Takes a request out of wherever it is."""
        if request.place == AT_SERVER:
            self.cluster.cancel(request, self.now_s)
            self._take_back(request)
            return
        del self.elsewhere[request.id]
        if request.place == AT_THE_DOOR:
            assert self.door is not None
            self.door.leave(request, self.now_s)
            self._plan_dispatch()
            return
        if request.planned is not None:
            self._queue.cancel(request.planned)
            request.planned = None
        if request.place != SPLIT:
            return
        assert self.splitting is not None
        leg = self.splitting.handoff.abandon(request, self.now_s)
        if leg is None:
            return
        self._signals.ended(leg.server)
        if leg.planned is not None:
            self._queue.cancel(leg.planned)
        else:
            self.legs -= 1
            self.cluster.cancel(leg, self.now_s)

    def _take_back(self, request: Request) -> None:
        """A step that was planned for it, and has not begun by its end, never was."""
        if request.scheduled_s > self.now_s:
            request.scheduled_s = UNSET

    def _account_for_the_rest(self) -> None:
        """At the horizon, whatever is still somewhere is unfinished, and counted."""
        rest = list(self.elsewhere.values())
        if self.splitting is not None:
            for request in rest:
                if request.place == SPLIT:
                    self.splitting.handoff.note(request)
        self.elsewhere.clear()
        for server in self.servers:
            server.stop(self.now_s)
            rest.extend(one for one in server.unfinished() if one.parent is None)
        self.legs = 0
        rest.sort(key=request_id)
        for request in rest:
            self._take_back(request)
            self.recorder.end(request, UNFINISHED)
        self.traffic.stop(self.now_s)


def request_id(request: Request) -> int:
    return request.id

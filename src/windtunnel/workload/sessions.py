"""Conversations: each turn starts a think time after the end of the previous turn.

A conversation draws from its own stream, named by its source and its number there, so that two
policies face the same conversations however long each turn takes.
"""

import math
from heapq import heappop, heappush
from typing import Final

from windtunnel.core.random import Stream, Streams
from windtunnel.core.statistics.distribution import Distribution
from windtunnel.workload.arrivals import ArrivalTimes
from windtunnel.workload.lengths import LengthDraw, TimeDraw
from windtunnel.workload.register import Register
from windtunnel.workload.request import MOST_TURNS, PrefixChain, Request
from windtunnel.workload.settings.sources import SourceSettings
from windtunnel.workload.sources import Persona, Recipe, RequestSource, Users


class Sessions:
    """The conversations of a run, each in exactly one state; statistics of the completed ones."""

    def __init__(self) -> None:
        self.started = 0
        self.live = 0
        self.completed = 0
        self.cancelled = 0  # a turn was rejected, dropped or timed out
        self.interrupted = 0  # the run ended first
        self.duration_s: Final = Distribution()  # of completed ones: first arrival to last end
        self.turns: Final = Distribution()  # of completed ones

    def fault(self) -> str | None:
        """What is wrong with the counts of conversations; None if each is in one state."""
        ended = self.completed + self.cancelled + self.interrupted
        if self.started == self.live + ended and self.live >= 0:
            return None
        return f"{self.started} sessions started, {ended} ended, {self.live} live"


class Session:
    """One conversation in progress."""

    def __init__(
        self, number: int, stream: Stream, persona: Persona, turns: int, user: int
    ) -> None:
        self.number: Final = number  # among those of its source
        self.stream: Final = stream
        self.persona: Final = persona
        self.turns: Final = turns
        self.user: Final = user  # its user in a closed loop; -1: none
        self.turn = 0
        self.started_s = 0.0
        self.context = 0  # tokens that the next prompt starts with
        self.keys: Final[list[int]] = []  # and their segments
        self.ends: Final[list[int]] = []


class SessionSource(RequestSource):
    """Starts conversations by its arrival process and continues each when a turn ends.

    In a closed loop the users start them: each user one after another, with a think time in
    between.
    """

    def __init__(
        self,
        entry: int,
        plan: SourceSettings,
        register: Register,
        streams: Streams,
        sessions: Sessions,
    ) -> None:
        super().__init__(entry)
        session = plan.session
        assert session is not None
        self._name: Final[str] = plan.name
        self._seed: Final = streams.seed
        self._recipe: Final = Recipe(entry, plan, register)
        self._turns: Final = LengthDraw(session.turns.drawn(MOST_TURNS))
        self._thinks: Final = TimeDraw(session.think.drawn())
        self._accumulates: Final[bool] = session.context == "accumulate"
        self._sessions: Final = sessions
        self._left: int = plan.count if plan.count is not None else -1
        self._users: Final = Users(plan, streams) if plan.arrivals.process == "closed" else None
        self._times: ArrivalTimes | None = None
        if self._users is None:
            arrivals = streams[f"workload.{plan.name}.arrivals"]
            self._times = ArrivalTimes(plan.arrivals.drawn(), plan.curve, arrivals)
        self._live: Final[dict[int, Session]] = {}  # by the session number in its requests
        self._ready: Final[list[tuple[float, int]]] = []  # time of the next turn, and that number
        self._begun = 0
        self._begin_s = 0.0
        self._draw_start()
        self.wake_s = self._begin_s

    def _draw_start(self) -> None:
        """Sets the start time of the next conversation."""
        if self._left == 0:
            self._begin_s = math.inf
        elif self._times is not None:
            self._begin_s = self._times.next()
        else:
            assert self._users is not None
            self._begin_s = self._users.next_s()

    def take(self, number: int) -> Request:
        if self._ready and self._ready[0][0] <= self._begin_s:
            arrived_s, name = heappop(self._ready)
            request = self._turn(number, arrived_s, name, self._live[name])
        else:
            request = self._begin(number)
        self._step()
        return request

    def _step(self) -> None:
        self.wake_s = self._begin_s
        if self._ready and self._ready[0][0] < self._begin_s:
            self.wake_s = self._ready[0][0]

    def _begin(self, number: int) -> Request:
        stream = Stream(self._seed, f"workload.{self._name}.session.{self._begun}")
        turns = self._turns.draw(stream)
        user = self._users.take() if self._users is not None else -1
        persona = self._recipe.personas.draw(stream, stream, stream, user)
        session = Session(self._begun, stream, persona, turns, user)
        session.started_s = self._begin_s
        self._restart(session)
        name = self._recipe.register.own(self._recipe.entry, self._begun)
        self._live[name] = session
        self._sessions.started += 1
        self._sessions.live += 1
        self._begun += 1
        self._left -= 1
        self._draw_start()
        return self._turn(number, session.started_s, name, session)

    def _restart(self, session: Session) -> None:
        """Resets the context, so that the next prompt starts with the shared prefix only."""
        session.context = self._recipe.personas.prefix_tokens
        session.keys.clear()
        session.ends.clear()
        prefix = session.persona.prefix
        if prefix is not None:
            session.keys.extend(prefix.keys)
            session.ends.extend(prefix.ends)

    def _turn(self, number: int, arrived_s: float, name: int, session: Session) -> Request:
        recipe = self._recipe
        stream = session.stream
        prompt = session.context + recipe.prompts.draw(stream)
        output = recipe.outputs.draw(stream)
        media = 0
        if recipe.media is not None:
            media = recipe.media.draw(stream)
            prompt += media
        if recipe.reasoning is not None:
            output += recipe.reasoning.draw(stream)
        goes_on = self._accumulates and session.turn + 1 < session.turns
        answer = -1
        if goes_on:
            session.keys.append(self._key(session, 2 * session.turn))
            session.ends.append(prompt)
            answer = self._key(session, 2 * session.turn + 1)
        prefix: PrefixChain | None = None
        if session.keys:
            prefix = PrefixChain(session.keys.copy(), session.ends.copy())
        request = recipe.request(number, arrived_s, prompt, output, session.persona, prefix)
        request.media_tokens = media
        request.session = name
        request.turn = session.turn
        request.followed = True
        request.answer_key = answer
        return request

    def _key(self, session: Session, part: int) -> int:
        """The key of a turn's new tokens (even parts) or of the answer to them (odd parts)."""
        local = self._recipe.personas.keys + session.number * 2 * MOST_TURNS + part
        return self._recipe.register.own(self._recipe.entry, local)

    def ended(self, request: Request, completed: bool, now_s: float) -> None:  # noqa: FBT001
        name: int = request.session
        session = self._live[name]
        session.turn += 1
        if completed and session.turn < session.turns:
            if self._accumulates:
                session.context = request.prompt_tokens + request.output_tokens
                session.keys.append(self._key(session, 2 * session.turn - 1))
                session.ends.append(session.context)
            heappush(self._ready, (now_s + self._thinks.draw(session.stream), name))
            self._step()
            return
        del self._live[name]
        self._sessions.live -= 1
        if completed:
            self._sessions.completed += 1
            self._sessions.duration_s.add(now_s - session.started_s)
            self._sessions.turns.add(session.turns)
        else:
            self._sessions.cancelled += 1
        if self._users is not None:
            self._users.think(session.user, request.arrived_s, now_s)
            self._draw_start()
            self._step()

    def stop(self, now_s: float) -> None:  # noqa: ARG002
        self._sessions.interrupted += len(self._live)
        self._sessions.live -= len(self._live)
        self._live.clear()
        self._ready.clear()
        self._begin_s = math.inf
        self.wake_s = math.inf

"""Progress of a run: counts what can repeat endlessly until a request finishes.

A run is a closed loop: an autoscaler removes a server, its requests start over, and therefore it
adds the server again. Everything that undoes work is counted here by subject, and each kind has a
limit (`progress:` in a scenario). Counts restart with every request that finishes, whatever its
outcome, so a run that makes progress is never ended. A count has constant cost.
"""

from collections.abc import Callable
from typing import Final

from windtunnel.core.units import format_duration
from windtunnel.twin.results.recorder import Recorder
from windtunnel.twin.settings import ProgressSettings

NO_PROGRESS: Final = "no progress"
"""The cause of an early end by livelock."""

# The kinds that are counted: the setting that limits each, and its sentence.
RESTARTS: Final = 0
PREEMPTIONS: Final = 1
RESIZES: Final = 2
LOSSES: Final = 3
RECYCLES: Final = 4
RECLAIMS: Final = 5
NAMES: Final = ("restarts", "preemptions", "resizes", "losses", "recycles", "reclaims")
SENTENCES: Final = (
    "request {} was restarted",
    "server {} preempted requests",
    "pool {} was resized",
    "pool {} lost a server",
    "gang {} was recycled",
    "machine {} was taken away",
)

FEWEST_TOLD: Final = 10
"""Lower counts are not reported as part of a loop."""

EarlyEnding = Callable[[str, str], None]
Reached = Callable[[], dict[int, int]]


class Furthest:
    """The most tokens that each request has had computed, restarts and preemptions included."""

    def __init__(self) -> None:
        self._tokens: Final[dict[int, int]] = {}

    def advanced(self, reached: dict[int, int]) -> bool:
        """Whether any request got further than ever before, by the tokens computed now."""
        before = self._tokens
        further = {
            number: tokens for number, tokens in reached.items() if tokens > before.get(number, 0)
        }
        before.update(further)
        return bool(further)

    def clear(self) -> None:
        self._tokens.clear()


class LoopCount:
    """How often something has happened to one member since a request last finished."""

    def __init__(self, kind: int, member: str, now_s: float) -> None:
        self.kind: Final = kind
        self.member: Final = member
        self.times = 0
        self.moments = 0  # several events of one instant are one: they are no loop
        self.first_s: Final = now_s
        self.last_s = now_s
        self.why = ""

    @property
    def period_s(self) -> float:
        return (self.last_s - self.first_s) / max(1, self.moments - 1)

    def sentence(self, others: int, total: int) -> str:
        """What was repeated, how often and why; `others` is the number of other members of its
        kind, `total` how often it was repeated with them."""
        what = f"{SENTENCES[self.kind].format(self.member)} {self.times:,} times"
        if self.moments < self.times:
            what += f" at {self.moments:,} moments"
        if others:
            what += f" ({total:,} with {others:,} more)"
        why = f" ({self.why})" if self.why else ""
        return f"{what}, every {format_duration(self.period_s)}{why}"


class RunProgress:
    """Counts what may repeat endlessly, and ends the run when something did too often."""

    def __init__(self, recorder: Recorder, limits: ProgressSettings) -> None:
        self._recorder: Final = recorder
        self._limits: Final[list[int]] = [getattr(limits, name) for name in NAMES]
        self._instant: Final[int] = limits.instant
        self._events: Final[int] = limits.events
        self.idle: Final[int] = limits.idle
        self._counts: Final[dict[tuple[int, str], LoopCount]] = {}
        self._over: LoopCount | None = None  # the first that was at its limit
        self._ended = 0  # requests that had finished when the counts began
        self._looked_s = -1.0  # of the last look, with the requests and events at that time
        self._looked = 0
        self._looked_events = 0
        self._moved_s = 0.0  # when a request was last seen to arrive or finish
        self._moved_events = 0
        self._furthest: Final = Furthest()
        self._further_events = 0  # when a request was last seen to get further
        self.reached: Reached = _no_requests
        """Returns the tokens computed so far for each request, by its number; set by the run."""
        self.end_run: EarlyEnding = _nowhere
        """Ends the run, given a word and a sentence; set by the run's loop."""

    def note(self, kind: int, member: str, why: str, now_s: float) -> None:
        """Counts an event that cannot repeat endlessly while requests wait.

        The limits are on the instants at which it happened.
        """
        self._forget()
        if self._ended == self._recorder.arrived:
            return  # no request is in the system: the run ends, or goes on with the next arrival
        count = self._counts.get((kind, member))
        if count is None:
            count = self._counts[kind, member] = LoopCount(kind, member, now_s)
        count.times += 1
        if count.moments and now_s <= count.last_s:
            return  # a thousand servers that fail together are not a loop
        count.moments += 1
        count.last_s = now_s
        count.why = why
        if count.moments > self._limits[kind] and self._over is None:
            self._over = count
            self.end_run(NO_PROGRESS, self.sentence())

    def _forget(self) -> None:
        """Restarts the counts if a request has finished since they began."""
        ended = self._recorder.ended
        if ended != self._ended:
            self._ended = ended
            self._counts.clear()

    def look(self, events: int, servers: int, now_s: float) -> None:
        """Ends a run with endless events, at one instant or over time; called from time to time."""
        recorder = self._recorder
        ended = recorder.ended
        inside = recorder.arrived - ended
        moved = recorder.arrived + ended
        if moved != self._looked or inside == 0:
            self._moved_s, self._moved_events, self._further_events = now_s, events, events
            self._furthest.clear()
        elif events - self._further_events > self._events * (inside + 1):
            if self._furthest.advanced(self.reached()):
                self._further_events = events
            else:
                self._endless(events - self._moved_events, now_s)
        if now_s > self._looked_s or moved != self._looked:
            self._looked_s, self._looked, self._looked_events = now_s, moved, events
        elif events - self._looked_events > self._instant * (inside + servers + 1):
            self.end_run(
                NO_PROGRESS, self.standstill(f"{events - self._looked_events:,} events", now_s)
            )

    def _endless(self, events: int, now_s: float) -> None:
        """Ends a run in which no request arrives or finishes, although no counter is at its
        limit."""
        loops = [f"{events:,} events", *self._loops(None)]
        said = self._no_request(now_s) + "; ".join(loops)
        self.end_run(NO_PROGRESS, f"{said} (progress.events: {self._events})")

    def standstill(self, what: str, now_s: float) -> str:
        """The message for a run whose time does not advance, with its counts."""
        loops = self._loops(None)
        told = f": {'; '.join(loops)}" if loops else ""
        return f"time does not advance beyond {format_duration(now_s)}, after {what}{told}"

    def control_only(self, events: int, now_s: float) -> None:
        """Ends a run in which only the control plane has acted for too long."""
        what = f"{events:,} events of the control plane alone, and no server for the requests"
        loops = [what, *self._loops(None)]
        self.end_run(NO_PROGRESS, self._no_request(now_s) + "; ".join(loops))

    def sentence(self) -> str:
        """What has been repeated too often, as counted so far; empty if nothing has been."""
        over = self._over
        if over is None or self._ended != self._recorder.ended:
            return ""
        limit = f"{NAMES[over.kind]}: {self._limits[over.kind]}"
        counted_s = min(one.first_s for one in self._counts.values())
        said = self._no_request_in(over.last_s - counted_s) + "; ".join(self._loops(over))
        return f"{said} (progress.{limit})"

    def _no_request(self, now_s: float) -> str:
        """Since the first event that is counted, or the last look at which a request moved."""
        self._forget()
        counted = [one.first_s for one in self._counts.values()]
        return self._no_request_in(now_s - min([self._moved_s, *counted]))

    def _no_request_in(self, seconds: float) -> str:
        inside = self._recorder.arrived - self._recorder.ended
        lasted = format_duration(seconds)
        if inside == 1:
            return f"the one request inside did not finish in the last {lasted}: "
        return f"none of the {inside:,} requests inside finished in the last {lasted}: "

    def _loops(self, over: LoopCount | None) -> list[str]:
        """What is repeated, by kind with its most frequent member, and that over a limit first."""
        self._forget()
        most: dict[int, LoopCount] = {}
        others: dict[int, int] = {}
        totals: dict[int, int] = {}
        for one in self._counts.values():
            others[one.kind] = others.get(one.kind, -1) + 1
            totals[one.kind] = totals.get(one.kind, 0) + one.times
            known = most.get(one.kind)
            if one.times >= FEWEST_TOLD and (known is None or one.times > known.times):
                most[one.kind] = one
        if over is not None:
            most[over.kind] = over
        kinds = sorted(most, key=lambda kind: (over is None or kind != over.kind, kind))
        return [most[kind].sentence(others[kind], totals[kind]) for kind in kinds]


def _nowhere(by: str, sentence: str) -> None:
    """Does nothing: there is no loop yet that could be ended."""


def _no_requests() -> dict[int, int]:
    return {}

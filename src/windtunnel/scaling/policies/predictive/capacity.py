"""The load that a replica carries within the SLO, found by simulating a few replicas.

Random requests of the observed lengths go to the replica with the fewest requests. A step of a
replica decodes one token of every running sequence and computes waiting prompts with the rest of
its token budget, in order of arrival; how long it takes is known. The capacity is the largest rate
at which enough requests meet their targets. It is bisected with the same requests at every rate, so
that rates differ by their load and not by luck.
"""

import heapq
import math
from collections import deque
from typing import Final, NamedTuple

from windtunnel.scaling.policies.predictive.mix import DrawnRequests, RequestMix
from windtunnel.scaling.snapshot import Objective, ReplicaSpec, StepTimes, Variant

MOST_REPLICAS: Final = 8
"""More replicas even out fluctuations little further."""
_COUNTED: Final = 1000
"""Fewest requests whose lateness is counted."""
_COUNTED_EACH: Final = 300
"""Fewest of them per replica: queues at high load take long to build up."""
_WARM: Final = 3.0
"""Arrivals before those that count, as a multiple of the requests in flight."""
_WARM_EACH: Final = 100
"""Fewest arrivals before those that count, per replica."""
_MOST_WARM: Final = 4000
"""Most arrivals before those that count."""
_MOST_STEPS: Final = 20_000
"""Steps after which a simulation ends early."""
_FEWEST_ARRIVALS: Final = 100
"""Arrivals that are counted even then."""
_FEWEST_SUBMITTED: Final = 500
"""Requests that are submitted at once to measure throughput: all that are drawn together."""
_MOST_SUBMITTED: Final = 4096
"""Bound on them, where a replica has many slots."""
_RANGE: Final = 50.0
"""Ratio of the highest rate that is tried to the lowest."""
_CLOSE: Final = 1.025
"""Ratio of rates at which bisection ends."""
_KV_SHARE: Final = 0.95
"""Usable share of the KV cache; above it sequences are preempted."""
_BUSY_SHARE: Final = 0.95
"""Usable share of an engine's throughput, so that queues stay finite even without an SLO."""
_SHORTEST_STEP_S: Final = 1e-6

TARGETS: Final = ("ttft", "tpot", "e2e")


class Carried(NamedTuple):
    """The largest rate that a replica carries, and what limits it."""

    rate: float
    running: float
    """Mean sequences that run at that rate."""
    bound: str
    """What more load would break: a target; or what it would exhaust: `kv`, `sequences`, `busy`."""
    reached: bool = True
    """False: `bound` is a target that is missed at any rate, and `rate` only keeps queues short."""


class _Replica:
    """Steps through the requests of one replica."""

    def __init__(self, spec: ReplicaSpec, times: StepTimes, requests: DrawnRequests) -> None:
        self._budget: Final = float(spec.max_num_batched_tokens or 8192)
        self._seqs: Final = spec.max_num_seqs or 256
        self._kv: Final = _KV_SHARE * spec.kv_tokens if spec.kv_tokens else math.inf
        self._times: Final = times
        self._requests: Final = requests
        self.now_s = 0.0
        self.steps = 0
        """Computed steps; equal ones in a row count as one."""
        self.running = 0
        self.waiting: Final[deque[int]] = deque()
        self.full: Final = {"kv": 0, "sequences": 0}
        """Steps at which a prompt had to wait for room, by what was full."""
        self.ended: Final[list[tuple[int, float, float]]] = []
        """Requests, with when they had their first and last tokens."""
        self._number = 0  # of the current step
        self._rest = 0.0  # tokens left of the first waiting prompt, once it has been begun
        self._context = 0.0
        # Running sequences by their last step, with when they had their first token.
        self._lasts: Final[list[tuple[int, int, float]]] = []

    @property
    def load(self) -> int:
        return self.running + len(self.waiting)

    def submit(self, request: int, now_s: float) -> None:
        if not self.running and not self.waiting:
            self.now_s = max(self.now_s, now_s)
        self.waiting.append(request)

    def advance(self, until_s: float) -> None:
        while self.now_s < until_s and (self.running or self.waiting):
            self.step(until_s)

    def step(self, until_s: float) -> None:
        """Computes the next step, or several if nothing changes between them."""
        begun: list[int] = []
        tokens = self._prefill(begun) if self.waiting else 0.0
        running = self.running
        step_s = self._step_s(tokens, self._context if running else 0.0)
        self.steps += 1
        count = 1
        if not tokens and not begun and running and until_s - self.now_s > 2.0 * step_s:
            count = max(1, self._lasts[0][0] - self._number)
            if self.now_s + count * step_s > until_s:
                count = int((until_s - self.now_s) / step_s) + 1
            if count > 2:
                context = self._context + running * (count - 1) / 2.0
                step_s = self._step_s(0.0, context)
        self.now_s += count * step_s
        self._number += count
        self._context += running * count
        self._end()
        for request in begun:
            self._begin(request)

    def _step_s(self, tokens: float, context: float) -> float:
        return max(_SHORTEST_STEP_S, self._times.step_s(tokens, self.running, context))

    def _end(self) -> None:
        lasts, requests = self._lasts, self._requests
        while lasts and lasts[0][0] <= self._number:
            _, request, first_s = heapq.heappop(lasts)
            self.running -= 1
            self._context -= requests.prompts[request] + requests.outputs[request] - 1
            self.ended.append((request, first_s, self.now_s))

    def _begin(self, request: int) -> None:
        """Ends a prompt, which yields the first token."""
        more = self._requests.outputs[request] - 1
        if not more:
            self.ended.append((request, self.now_s, self.now_s))
            return
        self.running += 1
        self._context += self._requests.prompts[request]
        heapq.heappush(self._lasts, (self._number + more, request, self.now_s))

    def _prefill(self, begun: list[int]) -> float:
        """The prompt tokens of this step; adds the requests whose prompts they complete."""
        waiting, requests = self.waiting, self._requests
        room = self._budget - self.running
        tokens = held = 0.0
        while waiting and room > 0.0:
            if self.running + len(begun) >= self._seqs:
                self.full["sequences"] += 1
                break
            request = waiting[0]
            prompt = requests.prompts[request]
            full = self._context + held + prompt > self._kv
            if full and not self._rest and (self.running or begun):
                self.full["kv"] += 1
                break
            todo = self._rest or requests.new[request]
            taken = min(todo, room)
            room -= taken
            tokens += taken
            self._rest = todo - taken
            if self._rest > 0.0:
                break
            held += prompt
            begun.append(waiting.popleft())
        return tokens


class _Misses(NamedTuple):
    """The requests that missed a target, by target, of those counted."""

    counted: int
    ttft: int
    tpot: int
    e2e: int
    running: float
    """Mean sequences of a replica, as arrivals find them."""


class _Pool:
    """A few replicas of a variant under one mix of requests."""

    def __init__(
        self, variant: Variant, mix: RequestMix, objective: Objective, replicas: int
    ) -> None:
        if variant.spec.step_times is None:
            raise ValueError(f"The step times of {variant.name} are unknown.")
        self._times: Final = variant.spec.step_times
        self._spec: Final = variant.spec
        self._goal: Final = objective
        self._answers_ttft: Final = variant.role != "decode"
        self._replicas: Final = replicas
        self._requests: Final = DrawnRequests(mix, variant.role)

    def throughput(self) -> Carried:
        """What a replica does that always has requests waiting."""
        count = min(max(4 * (self._spec.max_num_seqs or 256), _FEWEST_SUBMITTED), _MOST_SUBMITTED)
        while len(self._requests.gaps) < count:
            self._requests.draw()
        alone = self._replica()
        for number in range(count):
            alone.submit(number, 0.0)
        while alone.waiting and alone.steps < _MOST_STEPS:
            alone.step(math.inf)
        full = max(alone.full, key=lambda name: alone.full[name])
        bound = full if 2 * alone.full[full] > alone.steps else "busy"
        ends = [ended_s for _, _, ended_s in alone.ended]
        half = len(ends) // 2
        lasted_s = ends[-1] - ends[half] if ends else 0.0
        if lasted_s > 0.0:
            return Carried((len(ends) - half - 1) / lasted_s, alone.running, bound)
        return Carried(max(len(ends), 0.5) / alone.now_s, alone.running, bound)

    def misses(self, rate: float, in_flight: float) -> _Misses:
        """Simulates arrivals at this rate per replica; ends early if clearly too many miss."""
        replicas = [self._replica() for _ in range(self._replicas)]
        warm = math.ceil(self._replicas * max(_WARM_EACH, _WARM * in_flight))
        warm = min(_MOST_WARM, warm)
        counted = max(_COUNTED, _COUNTED_EACH * self._replicas, warm)
        most = (1.0 - self._goal.attained) * counted
        requests = self._requests
        arrived: list[float] = []
        late = [0, 0, 0]
        now_s = 0.0
        running = steps = 0
        while len(arrived) < warm + counted and late[0] + late[1] + late[2] <= most:
            number = len(arrived)
            if steps > _MOST_STEPS and number >= warm + _FEWEST_ARRIVALS:
                break
            if number == len(requests.gaps):
                requests.draw()
            now_s += requests.gaps[number] / (rate * self._replicas)
            steps = 0
            chosen = replicas[0]
            for replica in replicas:
                replica.advance(now_s)
                steps += replica.steps
                if replica.load < chosen.load:
                    chosen = replica
            for replica in replicas:
                self._count(replica, arrived, warm, late)
            running += chosen.running if number >= warm else 0
            arrived.append(now_s)
            chosen.submit(number, now_s)
        if late[0] + late[1] + late[2] <= most:
            for replica in replicas:
                replica.advance(math.inf)
                self._count(replica, arrived, warm, late)
        seen = max(1, len(arrived) - warm)
        return _Misses(seen, late[0], late[1], late[2], running / seen)

    def _replica(self) -> _Replica:
        return _Replica(self._spec, self._times, self._requests)

    def _count(self, replica: _Replica, arrived: list[float], warm: int, late: list[int]) -> None:
        """Counts the ended requests by the first target that they missed."""
        goal = self._goal
        for request, first_s, ended_s in replica.ended:
            if request < warm:
                continue
            more = self._requests.outputs[request] - 1
            arrived_s = arrived[request]
            if goal.ttft_s > 0.0 and self._answers_ttft and first_s - arrived_s > goal.ttft_s:
                late[0] += 1
            elif goal.tpot_s > 0.0 and more and ended_s - first_s > goal.tpot_s * more:
                late[1] += 1
            elif goal.e2e_s > 0.0 and ended_s - arrived_s > goal.e2e_s:
                late[2] += 1
        replica.ended.clear()


def capacity_of(
    variant: Variant, mix: RequestMix, objective: Objective, replicas: int = 1
) -> Carried:
    """The largest sustainable rate per replica, when this many share fluctuations.

    If the SLO is out of reach even at low rates, only queues are kept from growing.
    """
    pool = _Pool(variant, mix, objective, min(max(1, replicas), MOST_REPLICAS))
    full = pool.throughput()
    rate = high = _BUSY_SHARE * full.rate
    low = high / _RANGE
    sustained = None
    bound, running = full.bound, full.running
    while high > low * _CLOSE:
        seen = pool.misses(rate, running)
        running = seen.running
        late = (seen.ttft, seen.tpot, seen.e2e)
        if sum(late) > (1.0 - objective.attained) * seen.counted:
            high, bound = rate, TARGETS[late.index(max(late))]
        else:
            low, sustained = rate, running
        rate = math.sqrt(low * high)
    if sustained is None:
        return Carried(_BUSY_SHARE * full.rate, full.running, bound, reached=False)
    return Carried(low, sustained, bound)

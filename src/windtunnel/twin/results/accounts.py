"""The accounts of a run by class, source, tenant and server: plain counts, indexed by number."""

import math
from typing import Final

from mypy_extensions import i64

from windtunnel.core.statistics.distribution import EXACT_VALUES, FEW_VALUES, Distribution, together
from windtunnel.workload.request import UNSET, Request

MOST_TENANTS: Final = 1_000
OTHERS: Final = "(others)"
"""The account of all tenants after the first MOST_TENANTS, in order of appearance."""


class Owners:
    """The pool of each server, and its number there. Servers are added as they are created."""

    def __init__(self, pools: list[str]) -> None:
        self.names: Final = pools
        self.pools: Final[list[int]] = []  # by server: the number of its pool
        self.pool_names: Final[list[str]] = []
        self.numbers: Final[list[int]] = []

    def add(self, pool: int, number: int) -> None:
        self.pools.append(pool)
        self.pool_names.append(self.names[pool])
        self.numbers.append(number)


class RecordNames:
    """The names behind the numbers of a request. The lists belong to the traffic, and may grow."""

    def __init__(
        self,
        sources: list[str],
        classes: list[str],
        tenants: list[str],
        adapters: list[str],
        owners: Owners | None = None,
        models: list[str] | None = None,
    ) -> None:
        self.sources: Final = sources
        self.classes: Final = classes
        self.tenants: Final = tenants
        self.adapters: Final = adapters
        self.owners: Final = owners if owners is not None else Owners([])
        self.models: Final[list[str]] = models if models is not None else []


class SloTargets:
    """The targets of a class of service; infinity where it has none."""

    def __init__(self, ttft_s: float, tpot_s: float, e2e_s: float) -> None:
        self.ttft_s: Final = ttft_s
        self.tpot_s: Final = tpot_s
        self.e2e_s: Final = e2e_s


NO_TARGETS: Final = SloTargets(math.inf, math.inf, math.inf)


class OutcomeTally:
    """Requests of a class, tenant or source, by outcome."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.requests: i64 = 0
        self.completed: i64 = 0
        self.attained: i64 = 0
        self.others: Final[dict[str, int]] = {}  # uncompleted requests by outcome

    def fail(self, outcome: str) -> None:
        self.others[outcome] = self.others.get(outcome, 0) + 1

    def give_up(self, outcome: str) -> None:
        """Gives all requests that have not ended this outcome."""
        left = int(self.requests) - int(self.completed) - sum(self.others.values())
        if left:
            self.others[outcome] = self.others.get(outcome, 0) + left


class Account(OutcomeTally):
    """What a source or a tenant requested, and what it received."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked_tokens: i64 = 0  # prompts and answers of all that arrived
        self.prompt_tokens: i64 = 0  # of completed requests
        self.output_tokens: i64 = 0

    def arrive(self, request: Request) -> None:
        self.requests += 1
        self.asked_tokens += request.prompt_tokens + request.output_tokens

    def complete(self, request: Request, attained: i64) -> None:
        self.completed += 1
        self.attained += attained
        self.prompt_tokens += request.prompt_tokens
        self.output_tokens += request.output_tokens


class TenantAccount(Account):
    """The account of a tenant, with few kept latencies, since there may be a thousand tenants."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ttft: Final = Distribution(FEW_VALUES)
        self.e2e: Final = Distribution(FEW_VALUES)


class WorkAccount(Account):
    """What was requested of one model or all, and how much of it was cached."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked_prompt_tokens: i64 = 0  # of all that arrived
        self.asked_prompt_squares = 0.0
        self.prefix_hit_tokens: i64 = 0

    def arrive(self, request: Request) -> None:
        Account.arrive(self, request)  # `super()` is slow in plain Python
        prompt: i64 = request.prompt_tokens
        self.asked_prompt_tokens += prompt
        self.asked_prompt_squares += float(prompt * prompt)

    def complete(self, request: Request, attained: i64) -> None:
        Account.complete(self, request, attained)
        self.prefix_hit_tokens += request.prefix_hit_tokens


class LatencyAccount:
    """Latencies of completed requests."""

    def __init__(self) -> None:
        self.ttft = Distribution()
        self.tpot = Distribution()
        self.e2e = Distribution()
        self.queue = Distribution()

    def add(self, request: Request, ttft_s: float, tpot_s: float, e2e_s: float) -> None:
        """Adds a request; `tpot_s` is UNSET for an answer of one token."""
        self.ttft.add(ttft_s)
        self.e2e.add(e2e_s)
        self.queue.add(request.scheduled_s - request.arrived_s)
        if tpot_s != UNSET:
            self.tpot.add(tpot_s)

    def fold(self) -> None:
        """Gives up exact percentiles, since there are too many values to keep."""
        for values in (self.ttft, self.tpot, self.e2e, self.queue):
            values.fold()


def all_latencies(parts: list[LatencyAccount]) -> LatencyAccount:
    """Merges the latencies of several accounts."""
    whole = LatencyAccount()
    whole.ttft = together([one.ttft for one in parts])
    whole.tpot = together([one.tpot for one in parts])
    whole.e2e = together([one.e2e for one in parts])
    whole.queue = together([one.queue for one in parts])
    return whole


class ModelAccount(WorkAccount):
    """The account of one of several models: requests, outcomes and latencies."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.latencies: Final = LatencyAccount()


class ClassAccount(OutcomeTally):
    """The account of a class of service: its counts, by target, and its latencies."""

    def __init__(self, name: str, targets: SloTargets) -> None:
        super().__init__(name)
        self.targets: Final = targets
        self.kept_ttft: i64 = 0
        self.kept_tpot: i64 = 0
        self.kept_e2e: i64 = 0
        self.latencies: Final = LatencyAccount()


class ServerAccount:
    """The account of one server's requests."""

    def __init__(self) -> None:
        self.requests: i64 = 0
        self.prefix_hit_tokens: i64 = 0
        self.output_tokens: i64 = 0
        self.prompts: i64 = 0  # computed here, of completed requests
        self.waited_s = 0.0  # queue time of those
        self.answers: i64 = 0  # completed here
        self.ttft_s = 0.0  # sums over those: TTFT, and the time after the first token
        self.writing_s = 0.0


MOST_LISTED: Final = 1_000
"""The number of LoRA adapters with an account of their own."""


class AdapterAccounts:
    """Accounts of LoRA adapters; all after the first MOST_LISTED share one. The names may grow."""

    def __init__(self, names: list[str]) -> None:
        self._names: Final = names
        self.accounts: Final[list[TenantAccount]] = []

    def of(self, adapter: int) -> TenantAccount:
        number = min(adapter, MOST_LISTED)
        while len(self.accounts) <= number:
            name = self._names[len(self.accounts)] if len(self.accounts) < MOST_LISTED else OTHERS
            self.accounts.append(TenantAccount(name))
        return self.accounts[number]


class SessionAccounts:
    """Sessions by number. The first million are timed; beyond that, only turns are counted."""

    def __init__(self) -> None:
        self.cold_ttft: Final = Distribution()  # of first turns, and of later ones
        self.warm_ttft: Final = Distribution()
        self.turns = 0
        self.count = 0
        self._start_s: Final[list[float]] = []  # arrival of the first turn; UNSET: none
        self._end_s: Final[list[float]] = []  # end of the last turn; UNSET: not ended

    def arrive(self, request: Request) -> None:
        self.turns += 1
        number: int = request.session
        if number >= EXACT_VALUES:
            self.count += 1 if request.turn == 0 else 0
            return
        while len(self._start_s) <= number:
            self._start_s.append(UNSET)
            self._end_s.append(UNSET)
        if self._start_s[number] == UNSET:
            self._start_s[number] = request.arrived_s
            self.count += 1

    def complete(self, request: Request, ttft_s: float) -> None:
        if request.turn == 0:
            self.cold_ttft.add(ttft_s)
        else:
            self.warm_ttft.add(ttft_s)

    def end(self, request: Request) -> None:
        """Records the end of a turn, whatever its outcome; UNSET when it did not end."""
        number: int = request.session
        if number < EXACT_VALUES:
            self._end_s[number] = request.finished_s

    def durations(self) -> Distribution:
        """The durations from first arrival to last end, of sessions whose last turn has ended."""
        found = Distribution()
        for start_s, end_s in zip(self._start_s, self._end_s, strict=True):
            if start_s >= 0.0 and end_s >= 0.0:
                found.add(end_s - start_s)
        return found

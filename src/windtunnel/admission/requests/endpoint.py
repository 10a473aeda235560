"""One provider's model: its cap, its limits by domain, its budgets, and its queue."""

from dataclasses import dataclass
from typing import Final

from windtunnel.admission.events import Correlation
from windtunnel.admission.leases import Lease
from windtunnel.admission.queues.fair_queue import FairQueue
from windtunnel.admission.queues.groups import DemandLane, GroupShare
from windtunnel.admission.reasons import Domain, RequestDenial
from windtunnel.admission.requests.budgets import Budget, Spent
from windtunnel.admission.requests.limiter import Admission, RequestLimiter
from windtunnel.core.errors import InputError
from windtunnel.core.loop import Entry

_MEAN_GAIN: Final = 0.125
_DEVIATION_GAIN: Final = 0.25
_DEVIATIONS: Final = 2.0
"""Mean deviations added to the mean to estimate an answer's length."""


@dataclass(frozen=True)
class TokenEstimate:
    """Tokens that a call is expected to use; its reply says how many it used.

    An estimate is no reason to refuse a call: if it exceeds a whole budget, the call waits until
    all of the budget is free. If `prompt` gives the prompt's part, the rest is a guess at the
    answer, which is replaced by the experience of earlier answers; with `is_bounded`, the request
    allows no longer answer than that.
    """

    tokens: int
    prompt: int = -1
    is_bounded: bool = False


@dataclass(frozen=True)
class RequestAsk:
    """One outbound call that wants to start: endpoint, tenant and size."""

    provider: str
    model: str
    domain: Domain = Domain.CHAT
    group: str = ""
    weight: int = 1
    priority: int = 0
    tokens: int | TokenEstimate = 0
    correlation: Correlation | None = None
    is_again: bool = False
    """Whether it was refused before, and so goes before others of its group."""

    def __post_init__(self) -> None:
        if isinstance(self.tokens, int) and self.tokens < 0:
            raise InputError(f"{self.tokens} is not a number of tokens", allowed="0 or more")

    @property
    def key(self) -> str:
        return f"{self.provider}/{self.model}/{self.domain.value}"


@dataclass(frozen=True)
class RequestDenied:
    """A call may not start: why, and when it may be worth asking again (infinity: never)."""

    ask: RequestAsk
    reason: RequestDenial
    retry_at_s: float


class DomainState:
    """The limit of one domain of an endpoint, and the requests in flight under it."""

    def __init__(self, key: str, endpoint: "ModelEndpoint", limiter: RequestLimiter) -> None:
        self.key: Final = key
        self.endpoint: Final = endpoint
        self.limiter: Final = limiter
        self.lane: Final = DemandLane(key, endpoint.bay, [], [])
        self.in_flight = 0
        self.peak_in_flight = 0
        self.last_outcome = ""
        self.reported_limit = limiter.limit
        self.reported_ceiling = 0


class AnswerSizes:
    """The length of answers, learned from earlier ones: a moving mean, and a margin for their
    variation.

    A guess that is far too large would make calls wait for a budget that nothing else needs; one
    that is slightly too small is settled when the reply comes.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._mean = 0.0
        self._deviation = 0.0

    @property
    def likely(self) -> int:
        """The estimated length of the next answer."""
        return int(self._mean + _DEVIATIONS * self._deviation) + 1

    def saw(self, tokens: int) -> None:
        """Takes in an answer; what its prompt took beyond its estimate counts with it."""
        size = float(tokens if tokens > 0 else 0)
        if not self.is_known:
            self.is_known = True
            self._mean = size
            self._deviation = size / 2.0
            return
        off = size - self._mean
        self._deviation += (abs(off) - self._deviation) * _DEVIATION_GAIN
        self._mean += off * _MEAN_GAIN


class ModelEndpoint:
    """A provider's model, over all its domains."""

    def __init__(self, provider: str, model: str, requests: Budget, tokens: Budget) -> None:
        self.provider: Final = provider
        self.model: Final = model
        self.key: Final = f"{provider}/{model}"
        self.caps: Final[dict[str, int]] = {}
        self.cap = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self.peak_waiters = 0
        self.requests: Final = requests
        self.tokens: Final = tokens
        self.answers: Final = AnswerSizes()
        self.queue: Final = FairQueue()
        self.bay: Final = self.queue.add_bay()
        self.domains: Final[dict[Domain, DomainState]] = {}
        self.specs: Final[dict[str, GroupShare]] = {}
        self.wake: Entry | None = None

    def tokens_of(self, ask: RequestAsk) -> int:
        """Returns what a request takes of the token budget, which may be learned while it waits."""
        estimate = ask.tokens
        if isinstance(estimate, int):
            return estimate
        tokens = estimate.tokens
        if estimate.prompt >= 0 and self.answers.is_known:
            likely = estimate.prompt + self.answers.likely
            if likely < tokens or not estimate.is_bounded:
                tokens = likely
        limit = self.tokens.limit
        return limit if 0 < limit < tokens else tokens

    def cost_of(self, ask: RequestAsk) -> float:
        """Returns the cost of a request's turn in the fair queue: tokens, if those are limited."""
        return float(max(1, self.tokens_of(ask))) if self.tokens.limit > 0 else 1.0

    def answered(self, ask: RequestAsk, tokens_used: int) -> None:
        """Learns from a successful call that reports its tokens, for better estimates."""
        estimate = ask.tokens
        if not isinstance(estimate, int) and estimate.prompt >= 0 and tokens_used > 0:
            self.answers.saw(tokens_used - estimate.prompt)

    def budget_ready_s(self, ask: RequestAsk, now: float) -> float:
        """Returns when one more request of this size fits both budgets; infinity if never."""
        tokens = self.tokens_of(ask)
        requests_s = self.requests.ready_s(1, now)
        tokens_s = self.tokens.ready_s(tokens, now) if tokens > 0 else now
        return requests_s if requests_s > tokens_s else tokens_s

    def spec(self, ask: RequestAsk, domain: DomainState) -> GroupShare:
        """The fairness group of a request: its own, separate for each domain and priority."""
        key = f"{domain.key}|{ask.priority}|{ask.group}"
        spec = self.specs.get(key)
        if spec is None or spec.weight != ask.weight:
            if len(self.specs) > 2 * len(self.queue.groups) + 16:
                self.specs.clear()
            spec = GroupShare(key, ask.weight, ask.priority)
            self.specs[key] = spec
        return spec


class RequestLease(Lease):
    """The right to make one call, with the basis of its admission."""

    def __init__(
        self,
        id: int,  # noqa: A002 - an id is what it is
        generation: str,
        work_id: str,
        ask: RequestAsk,
        domain: DomainState,
        admission: Admission,
        token_spent: Spent | None,
        acquired_s: float,
    ) -> None:
        super().__init__(id, generation, work_id, ask.group, acquired_s)
        self.ask: Final = ask
        self.domain: Final = domain
        self.admission: Final = admission
        self.token_spent: Final = token_spent


class QueueTicket:
    """A place in the queue; once resolved it has a lease or a denial."""

    def __init__(
        self,
        id: str,  # noqa: A002 - an id is what it is
        ask: RequestAsk,
        domain: DomainState,
        since_s: float,
    ) -> None:
        self.id: Final = id
        self.ask: Final = ask
        self.domain: Final = domain
        self.since_s: Final = since_s
        self.deadline: Entry | None = None
        self.lease: RequestLease | None = None
        self.denied: RequestDenied | None = None
        self.user: object = None
        """Free for the driver, to find the caller; not used by admission."""

    @property
    def is_waiting(self) -> bool:
        return self.lease is None and self.denied is None

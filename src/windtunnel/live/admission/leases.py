"""The common part of the limiters for asyncio and threads: all but how a caller waits and wakes."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, NamedTuple

from windtunnel.admission.reasons import Outcome, RequestDenial
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.budgets import ObservedLimits
from windtunnel.admission.requests.endpoint import (
    QueueTicket,
    RequestAsk,
    RequestDenied,
    RequestLease,
)
from windtunnel.admission.requests.headers import read_limits, refusal_delay_s, retry_delay_s
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.clock import unix_s
from windtunnel.core.errors import WindtunnelError
from windtunnel.core.random import Stream

TRIES: Final = 6
"""Attempts of a call, at most."""
WHY: Final[dict[RequestDenial, str]] = {
    RequestDenial.NO_CAPACITY: "the limit of calls in flight is reached",
    RequestDenial.COOLDOWN: "the cooldown that the provider asked for is not over",
    RequestDenial.REQUEST_BUDGET: "the request budget is used up for now",
    RequestDenial.TOKEN_BUDGET: "the token budget is used up for now",
    RequestDenial.QUEUED_WAITERS_AHEAD: "other calls are queued before it",
    RequestDenial.CANCELLED: "its caller is gone",
    RequestDenial.QUEUE_TIMEOUT: "it was queued for longer than allowed",
    RequestDenial.QUEUE_FULL: "the queue is full",
    RequestDenial.SHUTDOWN: "admission is shut down",
    RequestDenial.UNREGISTERED: "this provider and model are not registered",
    RequestDenial.TOO_LARGE: "it is larger than the whole token budget",
}


class Refused(WindtunnelError):
    """A call may not start; `denied` holds the reason as a value."""

    def __init__(self, denied: RequestDenied) -> None:
        super().__init__(f"the call may not start: {WHY[denied.reason]}", where=denied.ask.key)
        self.denied: Final = denied


class HeldLease:
    """A lease that a call holds, and how that call ended."""

    __slots__ = ("_ended", "lease", "waited_s")

    def __init__(self) -> None:
        self.lease: RequestLease | None = None
        self.waited_s = 0.0
        self._ended: tuple[Outcome, float, int, ObservedLimits | None] | None = None

    def ended(
        self,
        outcome: Outcome,
        *,
        retry_after_s: float = 0.0,
        tokens_used: int = -1,
        observed: ObservedLimits | None = None,
    ) -> None:
        """Records how the call ended, the tokens it used, and the limits in the reply's headers.

        If it is not called, leaving the block counts as success, and an error is classified by its
        type.
        """
        self._ended = (outcome, retry_after_s, tokens_used, observed)

    def give_back(
        self, admission: RequestAdmission, error: type[BaseException] | None, now: float
    ) -> None:
        """Releases the lease, once."""
        lease, ended = self.lease, self._ended
        assert lease is not None, "a lease is given back by its holder"
        self.lease = None
        if ended is None:
            admission.release(lease, outcome_of(error), now)
        else:
            outcome, retry_after_s, tokens_used, observed = ended
            admission.release(
                lease,
                outcome,
                now,
                retry_after_s=retry_after_s,
                tokens_used=tokens_used,
                observed=observed,
            )

    def take(self, ticket: QueueTicket, now: float) -> None:
        """Takes the result of a wait: stores the lease, or raises the denial as `Refused`."""
        if ticket.lease is None:
            assert ticket.denied is not None, "a wait ends with a lease or a denial"
            raise Refused(ticket.denied)
        self.lease = ticket.lease
        self.waited_s = now - ticket.since_s


def outcome_of(error: type[BaseException] | None) -> Outcome:
    """The outcome of a call, given the error that left its block."""
    if error is None:
        return Outcome.SUCCESS
    if issubclass(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit):
        return Outcome.LOCAL_CANCELLED
    if issubclass(error, TimeoutError):
        return Outcome.PROVIDER_TIMEOUT
    return Outcome.UNEXPECTED


class LeaseLimiter:
    """Drives one request admission on a clock; subclasses wake the callers whose wait is over."""

    def __init__(
        self,
        admission: RequestAdmission,
        clock: Callable[[], float],
        guard: AbstractContextManager[object],
    ) -> None:
        """`guard` is held while the admission state changes."""
        self.admission: Final = admission
        self._clock: Final = clock
        self._guard: Final = guard
        self._origin_s: Final = clock()
        self._now_s = 0.0
        self._armed_s = NEVER
        self._stream: Final = Stream(0, "live.retries")

    def now(self) -> float:
        """Seconds since construction; never decreases. Call only under the guard."""
        now = self._clock() - self._origin_s
        if now > self._now_s:
            self._now_s = now
        return self._now_s

    def reach(self, at_s: float) -> None:
        """Makes it at least `at_s`: event loops round, and a timer may ring before its time."""
        self._now_s = max(self.now(), at_s)

    def settle(self) -> None:
        """Wakes callers whose wait is over and schedules the next check; called on every change."""
        raise NotImplementedError

    def register(
        self,
        provider: str,
        model: str,
        alias: str,
        cap: int,
        *,
        requests_per_minute: int = 0,
        tokens_per_minute: int = 0,
    ) -> None:
        """Registers an endpoint or changes its cap; waiters that may now start are woken."""
        with self._guard:
            self.admission.register(
                provider,
                model,
                alias,
                cap,
                self.now(),
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
            )
            self.settle()

    def shut_down(self) -> None:
        """Refuses all waiting and future calls; leases in flight are still returned."""
        with self._guard:
            self.admission.shut_down(self.now())
            self.settle()

    def ask(
        self, asks: tuple[RequestAsk, ...], timeout: float | None
    ) -> RequestLease | list[QueueTicket]:
        """Returns a lease if one is available, otherwise queue tickets, one per endpoint.

        Of several endpoints that could start the call, the least loaded is used. Raises `Refused`
        for a call that may not start at all.
        """
        assert asks, "there is nothing to ask for"
        admission, now = self.admission, self.now()
        if len(asks) > 1:
            ready = [ask for ask in asks if admission.could_start(ask, now)]
            asks = (min(ready, key=admission.load),) if ready else asks
        until_s = NEVER if timeout is None else now + timeout
        tickets: list[QueueTicket] = []
        denied: RequestDenied | None = None
        for ask in asks:
            answer = admission.acquire(ask, now, until_s)
            if isinstance(answer, RequestLease):
                self.leave(tickets, None)
                return answer
            if isinstance(answer, QueueTicket):
                tickets.append(answer)
            else:
                denied = answer
        if not tickets:
            assert denied is not None
            raise Refused(denied)
        return tickets

    def leave(self, tickets: list[QueueTicket], kept: QueueTicket | None) -> None:
        """Gives up all tickets except `kept`, and any leases granted to them meanwhile."""
        for ticket in tickets:
            if ticket is not kept:
                self.admission.cancel(ticket, self.now())


def ended_of(tickets: list[QueueTicket]) -> QueueTicket | None:
    """The ticket with a lease, or the last one if all were denied; None while some are waiting."""
    served = next((ticket for ticket in tickets if ticket.lease is not None), None)
    if served is not None or any(ticket.is_waiting for ticket in tickets):
        return served
    return tickets[-1]


class Verdict(NamedTuple):
    """The result of a call: its outcome, whether a retry may help, and the limits in headers."""

    outcome: Outcome
    may_pass: bool
    observed: ObservedLimits | None = None


def judge(said: object) -> Verdict:
    """Classifies a reply or an error by its status and headers, where it has them.

    Understands replies of aiohttp (`status`), httpx and requests (`status_code`), and errors that
    carry one, as the openai package's do. Anything else that is not an error is a success; an error
    without a status is an unexpected local failure, except for a timeout or a broken connection.
    """
    reply = getattr(said, "response", None) or said
    status = getattr(reply, "status_code", None) or getattr(reply, "status", None)
    if isinstance(status, int):
        headers = getattr(reply, "headers", None)
        observed = read_limits(dict(headers), unix_s()) if isinstance(headers, Mapping) else None
        outcome = _STATUSES.get(status, Outcome.SUCCESS)
        if status >= 500 and outcome is Outcome.SUCCESS:
            outcome = Outcome.PROVIDER_FAILURE
        return Verdict(outcome, outcome is not Outcome.SUCCESS, observed)
    if isinstance(said, TimeoutError):
        return Verdict(Outcome.PROVIDER_TIMEOUT, may_pass=True)
    if isinstance(said, ConnectionError):
        return Verdict(Outcome.PROVIDER_FAILURE, may_pass=True)
    is_error = isinstance(said, BaseException)
    return Verdict(Outcome.UNEXPECTED if is_error else Outcome.SUCCESS, may_pass=False)


_STATUSES: Final = {
    429: Outcome.RATE_LIMITED,
    503: Outcome.PROVIDER_OVERLOADED,
    529: Outcome.PROVIDER_OVERLOADED,
    408: Outcome.PROVIDER_TIMEOUT,
}


class Tries:
    """The attempts of one call: the result of the last, and whether there is another."""

    def __init__(self, asks: tuple[RequestAsk, ...], most: int, stream: Stream) -> None:
        self.asks = asks
        self.said: object = None
        self.error: Exception | None = None
        self._left = most
        self._refusals = 0
        self._failures = 0
        self._stream: Final = stream

    def ended(self, held: HeldLease) -> float | None:
        """Seconds until the next attempt, from Retry-After or an increasing delay; None if over."""
        verdict = judge(self.said if self.error is None else self.error)
        held.ended(verdict.outcome, observed=verdict.observed)
        self._left -= 1
        if not verdict.may_pass or self._left <= 0:
            return None
        asked_s = verdict.observed.retry_after_s if verdict.observed is not None else 0.0
        if verdict.outcome is Outcome.RATE_LIMITED:
            self._refusals += 1
            self.asks = tuple(replace(ask, is_again=True) for ask in self.asks)
            assert held.lease is not None
            share = held.lease.domain.limiter.pace.share
            return max(asked_s, refusal_delay_s(self._refusals, share, self._stream))
        self._failures += 1
        return asked_s or retry_delay_s(self._failures - 1, self._stream)

    def result(self) -> object:
        """Returns the last reply, or raises the last error."""
        if self.error is not None:
            raise self.error
        return self.said

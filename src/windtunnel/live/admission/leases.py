"""What the limiters for asyncio and for threads share: a held lease, and a refusal as an error."""

import asyncio
from typing import Final

from windtunnel.admission.reasons import Outcome, RequestDenial
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.budgets import ObservedLimits
from windtunnel.admission.requests.endpoint import QueueTicket, RequestDenied, RequestLease
from windtunnel.admission.requests.limiter import NEVER
from windtunnel.core.errors import WindtunnelError

WHY: Final[dict[RequestDenial, str]] = {
    RequestDenial.NO_CAPACITY: "as many as may be are in flight",
    RequestDenial.COOLDOWN: "the provider asked for a wait that is not over",
    RequestDenial.REQUEST_BUDGET: "the budget of requests is spent for now",
    RequestDenial.TOKEN_BUDGET: "the budget of tokens is spent for now",
    RequestDenial.QUEUED_WAITERS_AHEAD: "others are queued before it",
    RequestDenial.CANCELLED: "its caller is gone",
    RequestDenial.QUEUE_TIMEOUT: "it waited for as long as it was allowed to",
    RequestDenial.QUEUE_FULL: "too many are waiting already",
    RequestDenial.SHUTDOWN: "admission is shut down",
    RequestDenial.UNREGISTERED: "nobody registered this provider and model",
    RequestDenial.TOO_LARGE: "it is larger than the whole token budget",
}


class Refused(WindtunnelError):
    """A call may not start; `denied` has the reason as a value."""

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
        """Says how the call ended, what it took, and what the reply's headers said of limits.

        Without it, leaving the block is a success, and an error speaks for itself.
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
        """What a wait brought: the lease, or the refusal as an error."""
        if ticket.lease is None:
            assert ticket.denied is not None, "a wait ends with a lease or a denial"
            raise Refused(ticket.denied)
        self.lease = ticket.lease
        self.waited_s = now - ticket.since_s


def outcome_of(error: type[BaseException] | None) -> Outcome:
    """What an error that left the block says of the call."""
    if error is None:
        return Outcome.SUCCESS
    if issubclass(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit):
        return Outcome.LOCAL_CANCELLED
    if issubclass(error, TimeoutError):
        return Outcome.PROVIDER_TIMEOUT
    return Outcome.UNEXPECTED


def deadline_s(timeout: float | None, now: float) -> float:
    return NEVER if timeout is None else now + timeout

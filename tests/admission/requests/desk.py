"""Request admission with one endpoint and a clock, in few words, for tests."""

from windtunnel.admission.events import EventReporter
from windtunnel.admission.reasons import Domain, Outcome, RequestDenial
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.budgets import ObservedLimits
from windtunnel.admission.requests.endpoint import (
    QueueTicket,
    RequestAsk,
    RequestDenied,
    RequestLease,
)
from windtunnel.admission.requests.limiter import NEVER, AimdSettings
from windtunnel.core.random import Streams


class Desk:
    """One provider's model behind request admission."""

    def __init__(
        self,
        cap: int = 2,
        *,
        requests_per_minute: int = 0,
        tokens_per_minute: int = 0,
        reporter: EventReporter | None = None,
        waiters_max: int = 1000,
        ramp_s: float = 0.0,
    ) -> None:
        self.now = 0.0
        self.admission = RequestAdmission(
            "run-1",
            Streams(1),
            AimdSettings(startup_ramp_s=ramp_s, jitter_fraction=0.0),
            reporter=reporter,
            waiters_max=waiters_max,
        )
        self.admission.register(
            "p",
            "m",
            "alias",
            cap,
            0.0,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )

    def ask(
        self,
        *,
        domain: Domain = Domain.CHAT,
        group: str = "",
        weight: int = 1,
        priority: int = 0,
        tokens: int = 0,
        model: str = "m",
    ) -> RequestAsk:
        return RequestAsk(
            "p",
            model,
            domain,
            group=group,
            weight=weight,
            priority=priority,
            tokens=tokens,
        )

    def take(self, ask: RequestAsk | None = None) -> RequestLease:
        answer = self.admission.acquire(ask or self.ask(), self.now)
        assert isinstance(answer, RequestLease)
        return answer

    def wait(self, ask: RequestAsk | None = None, deadline_s: float = NEVER) -> QueueTicket:
        answer = self.admission.acquire(ask or self.ask(), self.now, deadline_s)
        assert isinstance(answer, QueueTicket)
        return answer

    def refusal(self, ask: RequestAsk | None = None) -> RequestDenial:
        answer = self.admission.acquire(ask or self.ask(), self.now, self.now)
        assert isinstance(answer, RequestDenied)
        return answer.reason

    def end(
        self,
        lease: RequestLease,
        outcome: Outcome = Outcome.SUCCESS,
        *,
        retry_after_s: float = 0.0,
        tokens_used: int = -1,
        observed: ObservedLimits | None = None,
    ) -> list[QueueTicket]:
        """Releases, and returns whoever was served by that."""
        self.admission.release(
            lease,
            outcome,
            self.now,
            retry_after_s=retry_after_s,
            tokens_used=tokens_used,
            observed=observed,
        )
        return self.admission.take_resolved()

    def press(self, retry_after_s: float = 0.0) -> None:
        """Three calls one after another are refused: nothing starts for a while."""
        for _ in range(3):
            self.end(self.take(), Outcome.RATE_LIMITED, retry_after_s=retry_after_s)

    def sleep_until(self, time_s: float) -> list[QueueTicket]:
        """Passes time as a driver does, and returns whoever was served meanwhile."""
        served: list[QueueTicket] = []
        while self.admission.next_wake_s() <= time_s:
            self.now = self.admission.next_wake_s()
            self.admission.advance(self.now)
            served += self.admission.take_resolved()
        self.now = time_s
        return served

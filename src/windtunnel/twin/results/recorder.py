"""Keeps the accounts of a run: every request that arrived ends here exactly once, with one
outcome."""

from typing import Final, Protocol

from mypy_extensions import i64

from windtunnel.core.statistics.distribution import EXACT_VALUES, Distribution
from windtunnel.engine.overheads import Overheads
from windtunnel.twin.results.accounts import (
    MOST_TENANTS,
    NO_TARGETS,
    OTHERS,
    Account,
    AdapterAccounts,
    ClassAccount,
    LatencyAccount,
    ModelAccount,
    OutcomeTally,
    RecordNames,
    ServerAccount,
    SessionAccounts,
    SloTargets,
    TenantAccount,
    WorkAccount,
    all_latencies,
)
from windtunnel.twin.results.reasons import ReasonCounts, reason_of
from windtunnel.workload.request import UNSET, Request

COMPLETED: Final = "completed"
REJECTED: Final = "rejected"
TIMED_OUT: Final = "timed_out"
DROPPED: Final = "dropped"
UNFINISHED: Final = "unfinished"
OUTCOMES: Final = (COMPLETED, REJECTED, TIMED_OUT, DROPPED, UNFINISHED)

ROWS_PER_BATCH: Final = 1_024
"""Few enough for the processor's cache, and so that not all need to be kept."""


class RowSink(Protocol):
    """A consumer of rows of ended requests, in batches."""

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None: ...


class MeasurementWindow:
    """The measured part of a run: requests that arrive in [from_s, to_s)."""

    def __init__(self, from_s: float, to_s: float) -> None:
        self.from_s: Final = from_s
        self.to_s: Final = to_s

    def length_s(self, end_s: float) -> float:
        """How much of the window lies within a run that ended at `end_s`."""
        return max(min(self.to_s, end_s) - self.from_s, 0.0)


class Recorder:
    """Counts arrivals and endings, and keeps the figures that a result shows.

    With a window, `measured` keeps those of the requests that arrive in it.
    """

    def __init__(
        self,
        names: RecordNames,
        targets: dict[str, SloTargets],
        overheads: list[Overheads],
        sink: RowSink | None,
        window: MeasurementWindow | None = None,
    ) -> None:
        self.window: Final = window
        self._inner: Final = None if window is None else Recorder(names, targets, overheads, None)
        self.names: Final = names
        self._targets: Final = targets  # by class
        self._overheads: Final = overheads  # by server
        self._sink: Final = sink
        self._rows: list[Request] = []
        self._row_outcomes: list[str] = []
        self.reasons: Final = ReasonCounts(OUTCOMES)
        self.total: Final = WorkAccount("")
        self.classes: Final[list[ClassAccount]] = []
        self.sources: Final[list[Account]] = []
        self.tenants: Final[list[TenantAccount]] = []
        self.servers: Final = [ServerAccount() for _ in overheads]
        self.sessions: Final = SessionAccounts()
        self.adapters: Final = AdapterAccounts(names.adapters)
        # By model. With a single model, the totals are its account.
        several = len(names.models) > 1
        self.models: Final = [ModelAccount(name) for name in names.models] if several else []
        self.has_gateway = False  # whether requests may wait before they are admitted
        self.gateway: Final = Distribution()
        self.ttft_lately: list[list[float]] | None = None  # by model, for an autoscaler
        self._open_accounts()

    def _open_accounts(self) -> None:
        """Opens an account for every name that has none yet."""
        names = self.names
        for name in names.classes[len(self.classes) :]:
            self.classes.append(ClassAccount(name, self._targets.get(name, NO_TARGETS)))
        for name in names.sources[len(self.sources) :]:
            self.sources.append(Account(name))
        if len(self.tenants) <= MOST_TENANTS:
            for name in names.tenants[len(self.tenants) : MOST_TENANTS + 1]:
                one = len(self.tenants) < MOST_TENANTS
                self.tenants.append(TenantAccount(name if one else OTHERS))

    def join(self) -> None:
        """Adds the account of a new server."""
        self.servers.append(ServerAccount())
        if self._inner is not None:
            self._inner.join()

    @property
    def measured(self) -> "Recorder":
        """The recorder behind the figures of a result: the window's requests, or all."""
        return self if self._inner is None else self._inner

    @property
    def arrived(self) -> int:
        return int(self.total.requests)

    @property
    def ended(self) -> int:
        return int(self.total.completed) + sum(self.total.others.values())

    def count(self, outcome: str) -> int:
        """The number of requests with this outcome so far."""
        if outcome == COMPLETED:
            return int(self.total.completed)
        return self.total.others.get(outcome, 0)

    @property
    def outcomes(self) -> dict[str, int]:
        return {outcome: self.count(outcome) for outcome in OUTCOMES}

    @property
    def latencies(self) -> LatencyAccount:
        """The latencies of all classes together."""
        return all_latencies([account.latencies for account in self.classes])

    def arrive(self, request: Request) -> None:
        if self._inner is not None and self._is_measured(request):
            self._inner.arrive(request)
        tenant: i64 = request.tenant
        if tenant > MOST_TENANTS:
            tenant = MOST_TENANTS
        if (
            request.slo >= len(self.classes)
            or request.source >= len(self.sources)
            or tenant >= len(self.tenants)
        ):
            self._open_accounts()
        self.classes[request.slo].requests += 1
        self.total.arrive(request)
        self.sources[request.source].arrive(request)
        self.tenants[tenant].arrive(request)
        if request.adapter >= 0 or self.models:
            for account in self._optional_accounts(request):
                account.arrive(request)
        if request.session >= 0:
            self.sessions.arrive(request)

    def _is_measured(self, request: Request) -> bool:
        window = self.window
        return window is None or window.from_s <= request.arrived_s < window.to_s

    def _tenant(self, request: Request) -> TenantAccount:
        tenant: i64 = request.tenant
        if tenant > MOST_TENANTS:
            tenant = MOST_TENANTS
        return self.tenants[tenant]

    def _optional_accounts(self, request: Request) -> list[Account]:
        """The accounts of its adapter and its model, where there are any."""
        found: list[Account] = []
        if request.adapter >= 0:
            found.append(self.adapters.of(int(request.adapter)))
        if self.models:
            found.append(self.models[request.model])
        return found

    def end(self, request: Request, outcome: str) -> None:
        """Records the end of a request: the one way out of a run."""
        if self._inner is not None and self._is_measured(request):
            self._inner.has_gateway = self.has_gateway
            self._inner.end(request, outcome)
        if request.server >= 0:
            self.servers[request.server].requests += 1
        if request.prefill_server >= 0 and request.prefill_server != request.server:
            self.servers[request.prefill_server].requests += 1
        if outcome == COMPLETED:
            self._measure(request)
            if request.reason:
                self.reasons.add(outcome, request.reason)
        else:
            self._fail(request, outcome)
        if request.session >= 0:
            self.sessions.end(request)
        if self._sink is not None:
            self._rows.append(request)
            self._row_outcomes.append(outcome)
            if len(self._rows) == ROWS_PER_BATCH:
                self.flush()

    def give_up(self, outcome: str, reason: str) -> None:
        """Ends all remaining requests with one outcome and reason, at once and without rows."""
        if self._inner is not None:
            self._inner.give_up(outcome, reason)
        left = self.arrived - self.ended
        if not left:
            return
        self.reasons.add(outcome, reason, left)
        self.total.give_up(outcome)
        accounts: list[OutcomeTally] = [*self.classes, *self.sources, *self.tenants]
        for one in [*accounts, *self.adapters.accounts, *self.models]:
            one.give_up(outcome)

    def _fail(self, request: Request, outcome: str) -> None:
        self.reasons.add(outcome, reason_of(request, outcome))
        self.classes[request.slo].fail(outcome)
        self.total.fail(outcome)
        self.sources[request.source].fail(outcome)
        self._tenant(request).fail(outcome)
        for account in self._optional_accounts(request):
            account.fail(outcome)

    def _measure(self, request: Request) -> None:
        around = self._overheads[request.server]
        account = self.classes[request.slo]
        targets = account.targets
        arrived_s = request.arrived_s
        output: int = request.output_tokens
        ttft_s = request.first_token_s - arrived_s
        e2e_s = request.finished_s - arrived_s
        in_ttft = ttft_s <= targets.ttft_s
        in_e2e = e2e_s <= targets.e2e_s
        in_tpot = True
        tpot_s = UNSET
        if self.has_gateway:
            self.gateway.add(request.admitted_s - arrived_s)
        if output > 1:
            tpot_s = (request.finished_s - around.completion_s - request.first_token_s) / (
                output - 1
            )
            in_tpot = tpot_s <= targets.tpot_s
        good: i64 = 1 if in_ttft and in_tpot and in_e2e else 0
        account.kept_ttft += 1 if in_ttft else 0
        account.kept_tpot += 1 if in_tpot else 0
        account.kept_e2e += 1 if in_e2e else 0
        account.completed += 1
        account.attained += good
        account.latencies.add(request, ttft_s, tpot_s, e2e_s)
        self.total.complete(request, good)
        self.sources[request.source].complete(request, good)
        tenant = self._tenant(request)
        tenant.complete(request, good)
        tenant.ttft.add(ttft_s)
        tenant.e2e.add(e2e_s)
        if request.adapter >= 0 or self.models:
            for one in self._optional_accounts(request):
                one.complete(request, good)
                if isinstance(one, TenantAccount):
                    one.ttft.add(ttft_s)
                    one.e2e.add(e2e_s)
        if self.models:
            self.models[request.model].latencies.add(request, ttft_s, tpot_s, e2e_s)
        self._count_servers(request, ttft_s, e2e_s)
        if self.ttft_lately is not None:
            self.ttft_lately[request.model].append(ttft_s)
        if request.session >= 0:
            self.sessions.complete(request, ttft_s)
        if self.total.completed == EXACT_VALUES:
            # One bound for all classes together: memory does not grow with their number.
            for each in self.classes:
                each.latencies.fold()
            for model in self.models:
                model.latencies.fold()

    def _count_servers(self, request: Request, ttft_s: float, e2e_s: float) -> None:
        """Counts tokens and times for the server that answered, and for the one that computed the
        prompt."""
        writer = self.servers[request.server]
        writer.output_tokens += request.output_tokens
        writer.answers += 1
        writer.ttft_s += ttft_s
        writer.writing_s += e2e_s - ttft_s
        computed: i64 = request.prefill_server
        if computed < 0:
            computed = request.server
        server = self.servers[computed]
        server.prefix_hit_tokens += request.prefix_hit_tokens
        server.prompts += 1
        came_s = request.arrived_s
        if request.admitted_s > came_s:
            came_s = request.admitted_s
        if request.encoded_s > came_s:
            came_s = request.encoded_s
        server.waited_s += request.scheduled_s - came_s

    def flush(self) -> None:
        """Passes the collected rows to the sink."""
        if self._sink is not None and self._rows:
            self._sink.write(self._rows, self._row_outcomes, self.names)
        self._rows.clear()
        self._row_outcomes.clear()

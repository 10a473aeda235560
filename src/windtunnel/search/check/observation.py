"""A run as a check records it: its figures, its decisions, and the outcome of each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from windtunnel.analysis.comparison import figures_of
from windtunnel.core.telemetry import Event
from windtunnel.core.vocabulary import RESIZED
from windtunnel.search.measure import Metrics, measure
from windtunnel.twin.ceiling import MemoryCeiling
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.columns import RequestColumns
from windtunnel.twin.results.recorder import COMPLETED, OUTCOMES, REJECTED
from windtunnel.twin.run import run
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import cost_of, overheads_of
from windtunnel.workload.request import UNSET, Request

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

ADMITTED, QUEUED, REFUSED = "admitted", "queued", "rejected"
ADMISSIONS = (ADMITTED, QUEUED, REFUSED)
"""Gateway decisions about a request: admitted at once, admitted later, or rejected."""

NO_ACTION = ("fleet.short", "fleet.met")
"""Fleet events that report whether a need is met, and decide nothing."""

ROWS_PER_BATCH = 65_536

Columns = dict[str, Any]
"""NumPy arrays by name, with one entry per request."""


class ControlDecision(NamedTuple):
    """A decision of the control plane: the controller, the subject, and the decision."""

    controller: str
    time_s: float
    subject: str
    decided: str
    reason: str
    target: int | None = None
    """New number of replicas of the pool; None: not a decision of the autoscaler."""


class Observation(NamedTuple):
    """The record of a run, passed between processes."""

    figures: dict[str, Any]
    metrics: Metrics
    partial: str | None
    requests: Columns
    """Sorted by request id."""
    classes: list[str]
    servers: list[str]
    """Names by server number: `POOL/REPLICA`."""
    control: list[ControlDecision]
    costs: tuple[Floats, Floats]
    """Times, and the dollars spent by each."""
    machines: list[tuple[float, int]] | None = None
    """Times, and the number of machines from each on; None: the scenario has no fleet."""


def observe(
    plan: ScenarioPlan, processes: int = 1, step_scales: Mapping[str, float] | None = None
) -> Observation:
    """Runs a plan; `processes` like this one share the machine's memory.

    `step_scales` scales the step times of some pools.
    """
    rows, log = KeptRequests(plan), _ControlLog()
    ceiling = MemoryCeiling.of(None, processes)
    done = run(plan, rows=rows, decisions=log, look=ceiling.look, step_scales=step_scales)
    owners = done.timeline.owners
    return Observation(
        figures_of(done.result),
        measure(done.result),
        done.result["partial"],
        rows.columns(),
        rows.classes,
        [f"{name}/{n}" for name, n in zip(owners.pool_names, owners.numbers, strict=True)],
        log.decisions,
        _costs(plan, done.timeline.samples, owners.pools, done.result["cost"]["total"]),
        machines_over_time(done.result["fleet"]),
    )


def machines_over_time(fleet: Mapping[str, Any] | None) -> list[tuple[float, int]] | None:
    """Machines of all pools together that exist or are being created, and have not failed."""
    if fleet is None:
        return None
    changes = sorted(
        (row[0], name, sum(row[1:6]))
        for name, pool in fleet["pools"].items()
        for row in pool["sizes"]
    )
    counts: dict[str, int] = {}
    found: list[tuple[float, int]] = [(0.0, 0)]
    for time_s, name, count in changes:
        counts[name] = count
        found.append((time_s, sum(counts.values())))
    return found


def _costs(
    plan: ScenarioPlan, samples: list[Any], pools: list[int], total: float
) -> tuple[Floats, Floats]:
    """Cumulative cost at each sample; for a fleet, the total is spread by the time of the
    servers."""
    import numpy as np

    rates = np.array([cost_of(plan.pools[pool], 1.0) for pool in pools])
    times = np.array([0.0, *(sample.time_s for sample in samples)])
    paid = [0.0, *(float(np.dot(rates[: len(one.paid_s)], one.paid_s)) for one in samples)]
    spent = np.array(paid)
    return times, spent * (total / spent[-1]) if spent[-1] > 0.0 else spent


class _ControlLog:
    """Records decisions of the autoscaler, the gang controllers and the fleet that change
    something."""

    def __init__(self) -> None:
        self.decisions: list[ControlDecision] = []

    def wants(self, kind: str) -> bool:
        return kind == RESIZED or (kind.startswith(("gang.", "fleet.")) and kind not in NO_ACTION)

    def record(self, event: Event) -> None:
        subject = event.subject.replace("/", " ", 1)
        controller, _, decided = event.kind.partition(".")
        target = None
        if event.kind == RESIZED:
            target = cast("int", event.data["target"])
            decided = f"{event.data['current']} to {target} replicas"
        one = ControlDecision(controller, event.time, subject, decided, event.reason, target)
        self.decisions.append(one)


class KeptRequests:
    """Keeps about forty bytes for every request that ends."""

    def __init__(self, plan: ScenarioPlan) -> None:
        self._targets = plan.slos
        self._completions = [overheads_of(pool, 0.0).completion_s for pool in plan.pools]
        self._ended = RequestColumns(OUTCOMES)
        self._names = RecordNames([], [], [], [])
        self._batches: list[Columns] = []

    @property
    def classes(self) -> list[str]:
        return self._names.classes

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        self._names = names
        self._ended.add(requests, outcomes)
        if self._ended.rows >= ROWS_PER_BATCH:
            self._read_batch()

    def _read_batch(self) -> None:
        self._batches.append(self.read(self._ended, self._names))
        self._ended = RequestColumns(OUTCOMES)

    def read(self, ended: RequestColumns, names: RecordNames) -> Columns:
        """Outcome, latencies and routing of the ended requests, as columns."""
        import numpy as np

        codes = {name: number for number, name in enumerate(OUTCOMES)}
        arrived, admitted = ended.column("arrived_s"), ended.column("admitted_s")
        first, finished = ended.column("first_token_s"), ended.column("finished_s")
        tokens, server = ended.column("output_tokens"), ended.column("server").astype(np.int32)
        slo = ended.column("slo").astype(np.int32)
        outcome = ended.column("outcome").astype(np.int8)
        done = outcome == codes[COMPLETED]
        ttft, e2e = first - arrived, finished - arrived
        # Time after the last token does not count towards TPOT.
        pools = np.array([*names.owners.pools, 0])
        after = np.array(self._completions)[pools[server]]
        several = done & (tokens > 1)
        tpot = np.full(ended.rows, np.nan)
        tpot[several] = (finished - after - first)[several] / (tokens - 1)[several]
        waited = (admitted > arrived) | ((admitted == UNSET) & (server < 0))
        admission = np.where(outcome == codes[REJECTED], 2, np.where(waited, 1, 0))
        return {
            "id": ended.column("id").copy(),
            "arrived": arrived.copy(),
            "slo": slo,
            "outcome": outcome,
            "server": server,
            "prefill_server": ended.column("prefill_server").astype(np.int32),
            "admission": admission.astype(np.int8),
            "tokens": np.where(done, tokens, 0).astype(np.int32),
            "attained": done & self._in_time(names.classes, slo, ttft, tpot, e2e),
            "ttft": np.where(done, ttft, np.nan).astype(np.float32),
            "tpot": tpot.astype(np.float32),
            "e2e": np.where(done, e2e, np.nan).astype(np.float32),
        }

    def _in_time(
        self, classes: list[str], slo: Any, ttft: Floats, tpot: Floats, e2e: Floats
    ) -> Any:
        """Whether each request met the targets of its class; an answer of one token has no TPOT."""
        import numpy as np

        good = np.ones(len(slo), dtype=bool)
        for values, name in ((ttft, "ttft_s"), (tpot, "tpot_s"), (e2e, "e2e_s")):
            limits = [getattr(self._targets.get(one), name, None) for one in classes]
            bounds = np.array([np.inf if limit is None else limit for limit in limits])
            good &= ~(values > bounds[slo])
        return good

    def columns(self) -> Columns:
        import numpy as np

        if not self._batches or self._ended.rows:
            self._read_batch()
        whole = {
            name: np.concatenate([batch[name] for batch in self._batches])
            for name in self._batches[0]
        }
        self._batches.clear()
        order = np.argsort(whole["id"], kind="stable")
        return {name: values[order] for name, values in whole.items()}

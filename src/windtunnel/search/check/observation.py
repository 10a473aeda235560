"""One run as a check keeps it: its figures, its decisions, and what each request came to."""

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
"""What the gateway may decide of a request: let in at once, let in later, or not at all."""

NO_ACTION = ("fleet.short", "fleet.met")
"""Verdicts of the fleet on needs."""

ROWS_PER_BATCH = 65_536

Columns = dict[str, Any]
"""NumPy arrays by name, an entry per request."""


class ControlDecision(NamedTuple):
    """A decision of the control plane: of which controller, about what, and what it is."""

    controller: str
    time_s: float
    subject: str
    decided: str
    reason: str
    target: int | None = None
    """Replicas of the pool from then on; None: not a decision of the autoscaler."""


class Observation(NamedTuple):
    """What is kept of a run. It crosses from one process to another."""

    figures: dict[str, Any]
    metrics: Metrics
    partial: str | None
    requests: Columns
    """In the order of their ids."""
    classes: list[str]
    servers: list[str]
    """By number: `POOL/REPLICA`."""
    control: list[ControlDecision]
    costs: tuple[Floats, Floats]
    """Times, and dollars spent until then."""
    machines: list[tuple[float, int]] | None = None
    """How many there were from a time on; None: the scenario has no fleet."""


def observe(
    plan: ScenarioPlan, processes: int = 1, step_scales: Mapping[str, float] | None = None
) -> Observation:
    """Runs a plan; `processes` like this one share the machine's memory.

    `step_scales` make the steps of some pools longer or shorter.
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
    """Of all pools together: those that exist or are being made, and have not failed."""
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
    """What had been spent at each sample; machines of a fleet by the time of their servers."""
    import numpy as np

    rates = np.array([cost_of(plan.pools[pool], 1.0) for pool in pools])
    times = np.array([0.0, *(sample.time_s for sample in samples)])
    paid = [0.0, *(float(np.dot(rates[: len(one.paid_s)], one.paid_s)) for one in samples)]
    spent = np.array(paid)
    return times, spent * (total / spent[-1]) if spent[-1] > 0.0 else spent


class _ControlLog:
    """Keeps what autoscaler, gang controllers and fleet decide, as far as it changes something."""

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
    """Keeps some forty bytes of every request that ends."""

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
        """What requests came to."""
        import numpy as np

        codes = {name: number for number, name in enumerate(OUTCOMES)}
        arrived, admitted = ended.column("arrived_s"), ended.column("admitted_s")
        first, finished = ended.column("first_token_s"), ended.column("finished_s")
        tokens, server = ended.column("output_tokens"), ended.column("server").astype(np.int32)
        slo = ended.column("slo").astype(np.int32)
        outcome = ended.column("outcome").astype(np.int8)
        done = outcome == codes[COMPLETED]
        ttft, e2e = first - arrived, finished - arrived
        # The time after the last token does not count for the time per token.
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
        """Which of them met the targets of their class; one of a single token has no TPOT."""
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

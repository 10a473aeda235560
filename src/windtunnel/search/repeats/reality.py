"""Compares a measured server with its simulation: how far apart they are, and what to recalibrate.

The requests of a measured trace are simulated on a scenario's servers as they were sent. Each then
has two TTFTs and two E2Es, and their differences say more than those of the averages: a constant
difference is an overhead, one that grows with the prompt is prefill speed, and one that grows with
the answer is step time.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.core.errors import InputError
from windtunnel.core.statistics.distribution import PERCENTILES, Distribution, quantile_of
from windtunnel.core.units import format_duration
from windtunnel.search.plan.goal import has_targets
from windtunnel.search.repeats.runs import RunStopped
from windtunnel.twin.ceiling import MemoryCeiling
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.recorder import COMPLETED
from windtunnel.twin.run import run
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.settings import PoolSettings
from windtunnel.workload.request import Request
from windtunnel.workload.settings.sources import ReplaySettings, SloClass, TraceSettings
from windtunnel.workload.traces.measured import cached_share, lateness
from windtunnel.workload.traces.notes import TraceNotes
from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.record import TraceRequest

KINDS = ("ttft", "tpot", "e2e")
WORTH_CORRECTING = 0.03
"""Relative errors below this are within the noise of a measurement."""
UNQUEUED_STEPS = 3
"""A request counts as not queued if it waits no longer than this many median steps."""
FEWEST_UNQUEUED = 10
MOST_TOKENISING_S = 20e-6
"""Limit per prompt token for time on the host; anything slower is attributed to computation."""
CLEAR = 3.0
"""A slope must be this many times its standard error to count as significant."""
FAR_OFF = 4.0
"""A server this many times faster or slower than simulated is not the one of the scenario."""
MOST_OVERHEAD_S = 1.0
"""No server adds more to every first token; a longer delay has another cause."""
FEW_TOKENS = 0.05
"""Prefix hits may differ by this share of all prompt tokens without advice."""


MEASURE_AGAIN = (
    "measure again before you recalibrate: the client machine was too slow or --concurrency too "
    "low, so measured times may include the client's own delays"
)


class Pair(NamedTuple):
    """One request, measured and simulated."""

    row: TraceRequest
    ttft_s: float
    e2e_s: float
    queue_s: float
    computed_tokens: int
    """Prompt tokens that were not cached."""

    @property
    def real_ttft_s(self) -> float:
        assert self.row.ttft_s is not None
        return self.row.ttft_s

    @property
    def real_e2e_s(self) -> float:
        assert self.row.e2e_s is not None
        return self.row.e2e_s


class Advice(NamedTuple):
    """What to recalibrate, in a sentence, and the scenario settings that would do it."""

    about: str
    says: str
    sets: tuple[str, ...] = ()


def compare_with_reality(plan: ScenarioPlan, trace: Path) -> dict[str, Any]:
    """Compares a plan with a measured trace; returns plain data."""
    rows = _measured_rows(trace)
    replay = _Replay(plan, trace, rows)
    late = lateness(trace)
    is_late = late is not None and late.matters
    recalibration = _Recalibration(plan, trace, rows)
    # A client that sends late also reads late: what looks like the server's time may be its own.
    corrected = replay.pairs if is_late else recalibration.look(replay.pairs)
    advice = [Advice("client", MEASURE_AGAIN)] if is_late else recalibration.advice
    hits = replay.hit_share()
    measured_hits = cached_share(trace)
    if measured_hits is not None and abs(measured_hits - hits) > FEW_TOKENS:
        advice.append(_cache_advice(measured_hits, hits))
    result = {
        "requests": {
            "measured": len(rows),
            "compared": len(replay.pairs),
            "not_completed_when_simulated": replay.others,
        },
        "sent_late": {"p99": late.p99_s, "max": late.max_s} if late and late.matters else None,
        "latency": _latency(replay.pairs),
        "goodput": {
            "measured": _good(replay.pairs, plan.slos, real=True),
            "simulated": _good(replay.pairs, plan.slos, real=False),
        },
        "prefix_hit": {"measured": measured_hits, "simulated": hits},
        "advice": [{"about": one.about, "says": one.says, "set": list(one.sets)} for one in advice],
        "with_advice": None,
    }
    if recalibration.corrected:
        again = _latency(corrected)
        result["with_advice"] = {kind: again[kind]["mean"]["error"] for kind in KINDS}
    return result


def _measured_rows(trace: Path) -> list[TraceRequest]:
    rows = list(open_trace(trace, notes=TraceNotes(str(trace))))
    if not any(row.ttft_s is not None and row.e2e_s is not None for row in rows):
        what = "no request of this trace has both a measured TTFT and E2E"
        hint = "`windtunnel observe` writes such traces; others name them `ttft` and `e2e`"
        raise InputError(what, where=str(trace), hint=hint)
    return rows


class _Replay:
    """The simulation of a trace's requests; rows and requests have the same order."""

    def __init__(self, plan: ScenarioPlan, trace: Path, rows: list[TraceRequest]) -> None:
        self._rows = rows
        self._overheads = [pool.overheads for pool in plan.pools]
        self.pairs: list[Pair] = []
        self.others = 0
        self._hits = self._prompts = 0
        source = ReplaySettings(trace=TraceSettings(path=str(trace)), model=plan.models[0])
        replay = plan.changed(workload=[source], duration_s=None)
        ended = run(replay, rows=self, look=MemoryCeiling.of(None).look).result
        if ended["partial"] is not None:
            raise RunStopped(f"the simulation ended early: {ended['partial']}", where=str(trace))
        if not self.pairs:
            what = "no request that was measured is completed when it is simulated"
            raise InputError(what, where=str(trace), hint="does the scenario describe this server?")

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:  # noqa: ARG002
        """Pairs the ended requests of the run with their rows."""
        for request, outcome in zip(requests, outcomes, strict=True):
            row = self._rows[request.id]
            if outcome != COMPLETED:
                self.others += 1
                continue
            self._hits += request.prefix_hit_tokens
            self._prompts += request.prompt_tokens
            if row.ttft_s is None or row.e2e_s is None:
                continue
            arrived_s = request.arrived_s
            self.pairs.append(
                Pair(
                    row,
                    request.first_token_s - arrived_s,
                    request.finished_s - arrived_s,
                    request.scheduled_s - arrived_s - self._before_queue_s(request),
                    request.prompt_tokens - request.prefix_hit_tokens,
                )
            )

    def _before_queue_s(self, request: Request) -> float:
        """The wait of every request, even on an idle server."""
        tokens = float(request.prompt_tokens)
        return min(own.queueing_s + own.per_prompt_token_s * tokens for own in self._overheads)

    def hit_share(self) -> float:
        return self._hits / self._prompts if self._prompts else 0.0


# Errors


def _times(pairs: Sequence[Pair]) -> dict[str, list[tuple[float, float]]]:
    """Pairs (measured, simulated) for each kind of latency."""
    longer = [pair for pair in pairs if pair.row.output_tokens > 1]
    return {
        "ttft": [(pair.real_ttft_s, pair.ttft_s) for pair in pairs],
        "tpot": [(_decode_s(p, real=True), _decode_s(p, real=False)) for p in longer],
        "e2e": [(pair.real_e2e_s, pair.e2e_s) for pair in pairs],
    }


def _decode_s(pair: Pair, *, real: bool) -> float:
    """Time per token after the first."""
    span_s = pair.real_e2e_s - pair.real_ttft_s if real else pair.e2e_s - pair.ttft_s
    return span_s / (pair.row.output_tokens - 1)


def _latency(pairs: Sequence[Pair]) -> dict[str, dict[str, Any]]:
    return {kind: _figures(times) for kind, times in _times(pairs).items()}


def _figures(times: list[tuple[float, float]]) -> dict[str, Any]:
    measured, simulated = Distribution(), Distribution()
    for real, ours in times:
        measured.add(real)
        simulated.add(ours)
    figures: dict[str, Any] = {"mean": _figure(measured.mean(), simulated.mean())}
    for name, share in PERCENTILES:
        figures[name] = _figure(measured.quantile(share), simulated.quantile(share))
    errors = [ours / real - 1.0 for real, ours in times if real > 0.0]
    figures["mape"] = _mean([abs(error) for error in errors]) if errors else None
    figures["bias"] = _mean(errors) if errors else None
    return figures


def _figure(measured: float, simulated: float) -> dict[str, float | None]:
    if math.isnan(measured):
        return {"measured": None, "simulated": None, "error": None}
    error = simulated / measured - 1.0 if measured > 0.0 else None
    return {"measured": measured, "simulated": simulated, "error": error}


def _good(pairs: Sequence[Pair], slos: dict[str, SloClass], *, real: bool) -> float | None:
    """The share of requests within all targets of their class; None where no class has any."""
    used = [slos[name] for name in {pair.row.slo for pair in pairs} if name in slos]
    if not any(has_targets(slo) for slo in used):
        return None
    good = 0
    for pair in pairs:
        slo = slos.get(pair.row.slo or "")
        ttft_s, e2e_s = pair.ttft_s, pair.e2e_s
        if real:
            ttft_s, e2e_s = pair.real_ttft_s, pair.real_e2e_s
        tpot_s = _decode_s(pair, real=real) if pair.row.output_tokens > 1 else 0.0
        good += slo is None or all(
            limit is None or time <= limit
            for time, limit in ((ttft_s, slo.ttft_s), (tpot_s, slo.tpot_s), (e2e_s, slo.e2e_s))
        )
    return good / len(pairs)


# Recalibration


class _Recalibration:
    """Looks for one error after the other, each in a simulation with the earlier ones corrected.

    Slow steps also delay first tokens, and slow prompts delay the tokens of others, so the order
    matters.
    """

    def __init__(self, plan: ScenarioPlan, trace: Path, rows: list[TraceRequest]) -> None:
        self._trace = trace
        self._rows = rows
        self.plan = plan
        self.advice: list[Advice] = []
        self.corrected = False

    def look(self, pairs: list[Pair]) -> list[Pair]:
        """Returns the pairs after all possible corrections."""
        for part in (self._steps, self._prefill, self._overheads):
            pool = part(pairs)
            if pool is None:
                break
            if pool is not self._pool:
                self.plan = self.plan.with_pools([pool])
                self.corrected = True
                pairs = _Replay(self.plan, self._trace, self._rows).pairs
        return pairs

    @property
    def _pool(self) -> PoolSettings:
        return self.plan.pools[0]

    def _parameter(self, name: str) -> float | None:
        """A step-time parameter, if there is one pool and its model has that parameter."""
        value = getattr(self._pool.step_time, name, None)
        alone = len(self.plan.pools) == 1
        return float(value) if alone and isinstance(value, int | float) else None

    # Each reports an error and returns the corrected pool; None: it must be calibrated first.

    def _steps(self, pairs: Sequence[Pair]) -> PoolSettings | None:
        times = _times(pairs)["tpot"]
        if not times:
            return self._pool
        real_s, ours_s = _median([real for real, _ in times]), _median([ours for _, ours in times])
        more_s = _median([real - ours for real, ours in times])
        if abs(more_s) <= WORTH_CORRECTING * real_s:
            return self._pool
        slower = "slower" if more_s > 0 else "faster"
        says = (
            f"a token after the first takes {format_duration(real_s)}, simulated "
            f"{format_duration(ours_s)}: steps are {abs(more_s / ours_s):.1%} {slower}"
        )
        if self._is_another_server("steps", says, real_s / ours_s if ours_s > 0.0 else math.inf):
            return None
        for field, name in (("fixed", "fixed_s"), ("per_step", "per_step_s")):
            now_s = self._parameter(name)
            # Never zero: answers whose pieces came all at once would suggest it.
            if now_s is not None and now_s + more_s > 0.0:
                return self._with_parameter("steps", says, field, now_s + more_s)
        calibrate = (
            "measure them with `windtunnel profile` and fit them with `windtunnel calibrate`"
        )
        self.advice.append(Advice("steps", f"{says}; {calibrate}, then compare again"))
        return None

    def _prefill(self, pairs: Sequence[Pair]) -> PoolSettings | None:
        unqueued = self._unqueued(pairs)
        if unqueued is None:
            return None
        prompts = [float(pair.computed_tokens) for pair in unqueued]
        more_s, error_s = _slope(prompts, [pair.real_ttft_s - pair.ttft_s for pair in unqueued])
        ours_s, _ = _slope(prompts, [pair.ttft_s for pair in unqueued])
        mean_s = _mean([pair.real_ttft_s for pair in unqueued])
        small = abs(more_s) * _mean(prompts) <= WORTH_CORRECTING * mean_s
        if small or ours_s <= 0.0 or abs(more_s) <= CLEAR * error_s:
            return self._pool
        slower = "slower" if more_s > 0 else "faster"
        says = f"prompts are computed {abs(more_s / ours_s):.1%} {slower} than simulated"
        if self._is_another_server("prefill", says, 1.0 + more_s / ours_s):
            return None
        now_s = self._parameter("per_prefill_token_s")
        if now_s is not None and now_s + more_s >= 0.0:
            return self._with_parameter("prefill", says, "per_prefill_token", now_s + more_s)
        wanted_s = self._pool.overheads.per_prompt_token_s + more_s
        if len(self.plan.pools) == 1 and 0.0 <= wanted_s < MOST_TOKENISING_S:
            says = f"each prompt token makes the first token {format_duration(abs(more_s))} "
            says += ("later" if more_s > 0 else "sooner") + " than simulated"
            return self._with_overhead("prefill", says, "per_prompt_token", wanted_s)
        calibrate = "calibrate the step times, then compare again"
        self.advice.append(Advice("prefill", f"{says}; {calibrate}"))
        return None

    def _overheads(self, pairs: Sequence[Pair]) -> PoolSettings | None:
        unqueued = self._unqueued(pairs)
        if unqueued is None:
            return None
        more_s = _median([pair.real_ttft_s - pair.ttft_s for pair in unqueued])
        if abs(more_s) <= WORTH_CORRECTING * _mean([pair.real_ttft_s for pair in unqueued]):
            return self._pool
        later = "later" if more_s > 0 else "sooner"
        says = f"every first token comes {format_duration(abs(more_s))} {later} than simulated"
        wanted_s = self._pool.overheads.queueing_s + more_s
        if wanted_s > MOST_OVERHEAD_S:
            why = "too long for an overhead; look for a proxy, a queue or a slow network in between"
            self.advice.append(Advice("overheads", f"{says}: {why}"))
            return None
        if len(self.plan.pools) > 1 or wanted_s < 0.0:
            self.advice.append(Advice("overheads", f"{says}; look at the overheads of the pools"))
            return None
        return self._with_overhead("overheads", says, "queueing", wanted_s)

    def _is_another_server(self, about: str, says: str, times: float) -> bool:
        """Whether the error is beyond what calibration mends; if so, with advice."""
        if 1.0 / FAR_OFF <= times <= FAR_OFF:
            return False
        check = (
            "too far off to recalibrate: check the scenario's model, accelerator and parallelism"
        )
        self.advice.append(Advice(about, f"{says}, {check}, and that the server streams"))
        return True

    def _with_overhead(self, about: str, says: str, field: str, value_s: float) -> PoolSettings:
        self.advice.append(Advice(about, says, (_setting(f"overheads.{field}", value_s),)))
        changed = self._pool.overheads.model_copy(update={f"{field}_s": value_s})
        return self._pool.model_copy(update={"overheads": changed})

    def _unqueued(self, pairs: Sequence[Pair]) -> list[Pair] | None:
        """Requests that were not queued; None, with advice, if there are too few."""
        steps = [ours for _, ours in _times(pairs)["tpot"]]
        patience_s = UNQUEUED_STEPS * _median(steps) if steps else 0.0
        unqueued = [pair for pair in pairs if pair.queue_s <= patience_s]
        if len(unqueued) >= FEWEST_UNQUEUED:
            return unqueued
        says = (
            "nearly all requests waited, so overheads and prefill cannot be separated from queueing"
        )
        self.advice.append(Advice("queue", f"{says}: measure at a lower rate first"))
        return None

    def _with_parameter(self, about: str, says: str, field: str, value: float) -> PoolSettings:
        step = self._pool.step_time
        setting = _setting(f"step_time.{field}", value)
        self.advice.append(Advice(about, says, (setting,)))
        changed = step.model_copy(update={f"{field}_s": value})
        return self._pool.model_copy(update={"step_time": changed})


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _median(values: Sequence[float]) -> float:
    return quantile_of(sorted(values), 0.5)


def _slope(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """The slope of the least-squares line, and its standard error."""
    middle_x, middle_y = _mean(xs), _mean(ys)
    spread = math.fsum((x - middle_x) ** 2 for x in xs)
    if spread == 0.0:
        return 0.0, 0.0
    pairs = list(zip(xs, ys, strict=True))
    slope = math.fsum((x - middle_x) * (y - middle_y) for x, y in pairs) / spread
    rest = math.fsum((y - middle_y - slope * (x - middle_x)) ** 2 for x, y in pairs)
    return slope, math.sqrt(rest / (len(xs) - 2) / spread)


def _setting(field: str, seconds: float) -> str:
    written = f"{1e3 * seconds:.4g}ms" if seconds >= 1e-4 else f"{1e6 * seconds:.4g}us"
    return f"serving.pools.0.{field}={written}"


def _cache_advice(measured: float, simulated: float) -> Advice:
    says = (
        f"the server found {measured:.1%} of all prompt tokens in its prefix cache, simulated "
        f"{simulated:.1%}: look at prefix_caching, block_size and kv_blocks"
    )
    return Advice("prefix cache", says)

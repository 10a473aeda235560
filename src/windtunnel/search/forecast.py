"""Forecasts: the twin replays recent traffic up to now, then probable traffic after it.

The twin has no state to load. It reaches the present by serving the requests of the last minutes at
their arrival times, which leaves it with the same requests in flight and similarly full queues and
caches. Future traffic is a repetition of the arrivals of that period, the latest minutes first.
"""

import copy
import heapq
import math
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, product
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.analysis.shadow.forecasts import (
    AS_IT_IS,
    DecisionCount,
    PolicyDecision,
    PolicyRegret,
    TwinForecast,
    TwinForecasts,
)
from windtunnel.analysis.shadow.shadow import SATURATED, Shadow
from windtunnel.analysis.shadow.window import Present, TrafficWindow, figures_of
from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration, parse_duration
from windtunnel.search.arena.arena import Arena
from windtunnel.search.check.decisions import FirstDifference, decision_differences
from windtunnel.search.check.observation import ControlDecision, Observation, observe
from windtunnel.search.check.sides import start_within_bounds
from windtunnel.settings.document import Document, parse_value
from windtunnel.settings.overrides import apply_override
from windtunnel.twin.results.recorder import COMPLETED, OUTCOMES
from windtunnel.twin.scenario.load import document_of, load_document
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.traces.formats.windtunnel import line
from windtunnel.workload.traces.record import LARGEST_KEY, TraceRequest

FEWEST_PAST: Final = 20
"""Minimum number of recently ended requests for a forecast."""
MOST_TRAFFIC: Final = 100.0
COPY_SPREAD_S: Final = 10.0
"""Copies of a request arrive within this time around it: the rate of a minute is multiplied, and
not the chance that a few requests come together."""
GOLDEN: Final = 0.6180339887498949
"""Its multiples, without their whole part, are spread evenly from 0 to 1."""
ROUNDING: Final = 1e-9
"""What sums of floats may be short of a whole number by."""
GOAL: Final = 0.95
"""Attainment of the fixed pool from which foresight measures the capacity of a replica."""
REGRET_JOBS: Final = 2
"""Processes used to compute regret, while forecasts continue."""
UNKNOWN_OUTPUT: Final = 128
KEY_STRIDE: Final = 0x9E3779B97F4A7C15
MOST_DECISIONS: Final = 8
"""Number of decisions shown before now, and again after now."""


class WhatIf(NamedTuple):
    """Hypothetical changes from now on."""

    sets: Sequence[str] = ()
    """Settings, as for `--set`; they also apply to the replayed traffic before now."""
    faults: Sequence[str] = ()
    """Entries of `faults:` as YAML, with times relative to now."""
    traffic: float = 1.0
    """Factor on the number of requests."""


class Forecaster:
    """Forecasts with the servers and policies of a scenario file."""

    def __init__(self, text: str, file: str, spans_s: dict[str, float], past_s: float) -> None:
        self._document: Final = document_of(text, file, (), None)
        self.spans_s: Final = spans_s
        self.past_s: Final = past_s
        self.horizon_s: Final = max(spans_s.values())

    def check(self, others: Mapping[str, WhatIf]) -> None:
        """Raises InputError if the scenario cannot run, as it is or with other settings."""
        with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
            trace = Path(folder) / "traffic.jsonl"
            trace.write_bytes(line(TraceRequest(0.0, 1, 1, id="0")))
            for name, what_if in {"": WhatIf(), **others}.items():
                try:
                    load_document(self.document(trace, Present(0.0, [], [], None), what_if))
                except InputError as error:
                    if name:
                        error.say_of(f"--other {name}")
                    raise

    def forecasts(
        self, present: Present, step_scale: float, others: Mapping[str, WhatIf]
    ) -> TwinForecasts:
        """Forecasts with the current and with other settings, and how past decisions would have
        differed."""
        seen, now = self._run(present, step_scale, WhatIf())
        found, decisions = {}, {}
        for name, what_if in others.items():
            other, found[name] = self._run(present, step_scale, what_if)
            sides = (_until(self.past_s, one) for one in (seen, other))
            decisions[name] = {
                one.kind: DecisionCount(one.decided, one.differ, self._words(one.first))
                for one in decision_differences(*sides).kinds
                if one.decided
            }
        return TwinForecasts(now, found, decisions)

    def _words(self, first: FirstDifference | None) -> str:
        if first is None:
            return ""
        ago = format_duration(round(self.past_s - first.time_s))
        return f"{ago} ago, {first.subject}: {first.changed} in place of {first.base}"

    def forecast(
        self, present: Present, step_scale: float = 1.0, what_if: WhatIf | None = None
    ) -> TwinForecast:
        """Forecasts with one run of the twin; raises InputError if there is too little traffic."""
        return self._run(present, step_scale, what_if or WhatIf())[1]

    def _run(
        self, present: Present, step_scale: float, what_if: WhatIf
    ) -> tuple[Observation, TwinForecast]:
        start_s = present.now_s - self.past_s
        past = [one for one in present.ended if one.arrived_s >= start_s]
        _enough(past, self.past_s)
        rows = sorted(
            [*past, *_estimated(present, past)], key=lambda one: (one.arrived_s, one.id or "")
        )
        coming = self._coming(present, past, what_if.traffic)
        with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
            trace = Path(folder) / "traffic.jsonl"
            with trace.open("wb") as out:
                for number, one in enumerate((*rows, *coming)):
                    at_s = max(0.0, one.arrived_s - start_s)
                    out.write(line(_anonymous(one, number, at_s)))
            plan = load_document(self.document(trace, present, what_if))
            scales = {pool.name: step_scale for pool in plan.pools}
            seen = observe(plan, step_scales=scales)
        return seen, self._read(seen, rows, plan)

    def _coming(
        self, present: Present, past: Sequence[TraceRequest], traffic: float
    ) -> list[TraceRequest]:
        """Arrivals up to the horizon: the past ones repeated, each `traffic` times on average.

        Each span repeats as long a time before now: with spans of 1 and 5 minutes, the last minute
        comes first, then the four before it. A longer span repeats the whole past again, and at
        its end a part of it: evenly chosen requests in as much less time, so that every span has
        the mean rate of the past.

        The copies of a request arrive a little before or after it, in conversations of their own.
        """
        if not 0.0 < traffic <= MOST_TRAFFIC:
            what = f"traffic is {traffic:g} times what it was"
            raise InputError(what, allowed=f"more than 0, up to {MOST_TRAFFIC:.0f}")
        start_s = present.now_s - self.past_s
        known = [*past, *(one for one in present.in_flight if one.arrived_s >= start_s)]
        if present.gaps:  # traffic continued during the gap
            after = [one for one in known if one.arrived_s >= present.gaps[-1].to_s]
            known = after if len(after) >= FEWEST_PAST else known
        first_s = min(one.arrived_s for one in known)
        span_s = max(present.now_s - first_s, 1e-3)
        lasting = _lasting(known, span_s / 2.0)
        ends_s = [*sorted(one for one in self.spans_s.values() if one < span_s), span_s]
        most = math.ceil(traffic)
        laps = _laps(span_s, self.spans_s.values())
        found = []
        for (lap, (lap_s, part_s)), (number, one) in product(enumerate(laps), enumerate(known)):
            scale = part_s / span_s
            place = lap_s / span_s * len(known) + number * scale + ROUNDING
            for copied in range(int((place + scale) * traffic) - int(place * traffic)):
                ago_s = present.now_s - one.arrived_s
                part = bisect_left(ends_s, ago_s)
                from_s, to_s = ends_s[part - 1] if part else 0.0, ends_s[part]
                at_s = to_s - ago_s
                if copied:
                    spread_s = min(COPY_SPREAD_S, to_s - from_s)
                    at_s = abs(at_s + spread_s * (copied * GOLDEN % 1.0 - 0.5))
                    at_s = min(at_s, 2.0 * (to_s - from_s) - at_s)
                after_s = lap_s + scale * (from_s + at_s)
                if after_s < self.horizon_s:
                    again = msgspec.structs.replace(
                        one,
                        arrived_s=present.now_s + after_s,
                        output_tokens=one.output_tokens or UNKNOWN_OUTPUT,
                        prefix_keys=tuple(
                            key if key in lasting else _renamed(key, lap * most + copied + 1)
                            for key in one.prefix_keys
                        ),
                    )
                    found.append(again)
        return sorted(found, key=lambda one: one.arrived_s)

    def regrets(
        self, present: Present, step_scale: float, others: Mapping[str, WhatIf], span_s: float
    ) -> dict[str, PolicyRegret]:
        """Regret of each of the settings against foresight, on the traffic of the last `span_s`
        seconds."""
        start_s = present.now_s - span_s
        past = [one for one in present.ended if one.arrived_s >= start_s]
        _enough(past, span_s)
        with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
            trace = Path(folder) / "traffic.jsonl"
            with trace.open("wb") as out:
                for number, one in enumerate(past):
                    out.write(line(_anonymous(one, number, one.arrived_s - past[0].arrived_s)))

            def case(sets: Sequence[str]) -> ScenarioPlan:
                return load_document(self.document(trace, present, WhatIf(sets)))

            try:
                arena = Arena([case], [case], GOAL, lambda *_: None, step_scale)
            except InputError as error:  # the arena names --policies, which has the same limits
                where = "--regret"
                raise InputError(
                    error.what, where=where, allowed=error.allowed, hint=error.hint
                ) from None
            plans = {name: case(one.sets) for name, one in {AS_IT_IS: WhatIf(), **others}.items()}
            return arena.regret(plans, REGRET_JOBS)

    def document(self, trace: Path, present: Present, what_if: WhatIf) -> Document:
        """The scenario with this traffic, the current number of servers, and the requested
        changes."""
        document = copy.deepcopy(self._document)
        document.data["workload"] = [{"trace": {"path": str(trace), "format": "windtunnel"}}]
        document.data.pop("duration", None)
        _set_sizes(document.data, present)
        for override in what_if.sets:
            apply_override(document, override)
        if what_if.faults:
            entries = [_fault(text, self.past_s, self.horizon_s) for text in what_if.faults]
            written = document.data.get("faults")
            document.data["faults"] = [*(written if isinstance(written, list) else []), *entries]
            document.put_place(("faults",), "--fault")
        return document

    def _read(
        self, seen: Observation, rows: Sequence[TraceRequest], plan: ScenarioPlan
    ) -> TwinForecast:
        import numpy as np

        columns = seen.requests
        done = columns["outcome"] == OUTCOMES.index(COMPLETED)
        requests = np.column_stack(
            [columns[name][done] for name in ("arrived", "ttft", "e2e", "tokens")]
        )
        later = columns["arrived"] >= self.past_s
        parts = columns["attained"][later], columns["attained"][~later]
        attained, lately = (float(part.mean()) if len(part) else None for part in parts)
        times, spent = seen.costs
        end_s = self.past_s + self.horizon_s
        return TwinForecast(
            figures={
                name: figures_of(requests, self.past_s, self.past_s + span_s)
                for name, span_s in self.spans_s.items()
            },
            is_saturated=bool(seen.metrics["trust.saturated_seconds"]),
            step_ratio=_step_ratio(columns, rows),
            replicas=most_replicas(seen.control, plan, self.past_s, end_s),
            replicas_now=most_replicas(seen.control, plan, self.past_s, self.past_s),
            machines=most_machines(seen.machines, self.past_s, end_s),
            attained=attained,
            cost=_between(times, spent, self.past_s, end_s),
            attained_lately=lately,
            cost_lately=_between(times, spent, 0.0, self.past_s),
            control=self._control(seen.control),
        )

    def _control(self, made: Sequence[ControlDecision]) -> list[PolicyDecision]:
        decisions = [
            PolicyDecision(one.time_s - self.past_s, one.subject, one.decided, one.reason)
            for one in made
        ]
        before = sum(one.at_s <= 0.0 for one in decisions)
        return decisions[max(0, before - MOST_DECISIONS) : before + MOST_DECISIONS]


def _set_sizes(data: dict[str, Any], present: Present) -> None:
    """Sets servers to those ready now and machines to those present, where known, within bounds."""
    cluster = present.cluster
    replicas = {} if cluster is None else cluster.replicas
    match data:
        case {"serving": {"pools": list(pools)}}:
            for pool in pools:
                if isinstance(pool, dict):
                    names = (pool.get("name"), pool.get("clique"))
                    found = next((replicas[one] for one in names if one in replicas), None)
                    ready = None if found is None else found.ready
                    if ready is None and len(pools) == 1:
                        ready = present.servers
                    if ready:
                        pool["replicas"] = ready
    start_within_bounds(data)
    machines = None if cluster is None else cluster.machines
    match data:
        case {"fleet": {"pools": list(kinds)}} if machines is not None:
            for kind in kinds:
                match kind:
                    case {"name": str(name), "machines": {"max": int(most), **rest}}:
                        known = machines.get(name) or (
                            machines.get("") if len(kinds) == 1 else None
                        )
                        if known is not None:
                            least = rest.get("min", 0)
                            size = max(least if isinstance(least, int) else 0, known.total)
                            kind["machines"]["initial"] = min(most, size)


def _until(time_s: float, seen: Observation) -> Observation:
    """A run up to a time: the requests that had arrived and the decisions made."""
    arrived = seen.requests["arrived"] < time_s
    requests = {name: column[arrived] for name, column in seen.requests.items()}
    control = [one for one in seen.control if one.time_s <= time_s]
    return seen._replace(requests=requests, control=control)


def _enough(past: Sequence[TraceRequest], past_s: float) -> None:
    if len(past) < FEWEST_PAST:
        what = (
            f"{len(past)} requests have ended in the last {past_s:.0f} s, too few to forecast from"
        )
        raise InputError(what, where="traffic", hint=f"wait until {FEWEST_PAST} have")


def most_replicas(
    control: Sequence[ControlDecision], plan: ScenarioPlan, from_s: float, to_s: float
) -> int:
    """The most replicas over all pools that the autoscaler wants between two times."""
    sizes = {f"pool {pool.name}": pool.replicas for pool in plan.pools}
    most = 0
    for time_s, group in groupby(control, key=lambda one: one.time_s):
        if time_s > to_s:
            break
        if time_s > from_s:
            most = max(most, sum(sizes.values()))
        sizes.update((one.subject, one.target) for one in group if one.target is not None)
    return max(most, sum(sizes.values()))


def most_machines(
    sizes: Sequence[tuple[float, int]] | None, from_s: float, to_s: float
) -> int | None:
    """The most machines at any moment between two times."""
    if sizes is None:
        return None
    before = [count for time_s, count in sizes if time_s <= from_s]
    return max([*before[-1:], *(count for time_s, count in sizes if from_s < time_s <= to_s)])


def _estimated(present: Present, past: Sequence[TraceRequest]) -> list[TraceRequest]:
    """Requests in flight, with output lengths estimated from past requests that got at least as
    far."""
    per_token = [
        (one.e2e_s - one.ttft_s) / (one.output_tokens - 1)
        for one in past
        if one.e2e_s is not None and one.ttft_s is not None and one.output_tokens > 1
    ]
    tpot_s = median(per_token) if per_token else 0.05
    outputs = sorted(one.output_tokens for one in past)
    found = []
    for one in present.in_flight:
        written = (present.now_s - one.arrived_s) / tpot_s if tpot_s > 0.0 else 0.0
        longer = [tokens for tokens in outputs if tokens > written]
        tokens = int(median(longer)) if longer else int(written) + 1
        found.append(msgspec.structs.replace(one, output_tokens=max(1, tokens)))
    return found


def _laps(past_s: float, spans_s: Iterable[float]) -> list[tuple[float, float]]:
    """The repetitions of a past until the last of the spans: when each begins, and its length."""
    laps = [(0.0, past_s)]
    for end_s in sorted(spans_s):
        while (start_s := sum(laps[-1])) < end_s:
            laps.append((start_s, min(past_s, end_s - start_s)))
    return laps


def _lasting(requests: Sequence[TraceRequest], least_s: float) -> set[int]:
    """Prefixes that recur over a longer time, such as system prompts. Other prefixes belong to
    single conversations, which have ended when the traffic is repeated."""
    first_s: dict[int, float] = {}
    found = set()
    for one in requests:
        for key in one.prefix_keys:
            if abs(one.arrived_s - first_s.setdefault(key, one.arrived_s)) > least_s:
                found.add(key)
    return found


def _renamed(key: int, lap: int) -> int:
    """A prefix key of the same length that no server has cached."""
    return (key + lap * KEY_STRIDE) % LARGEST_KEY


def _anonymous(request: TraceRequest, number: int, at_s: float) -> TraceRequest:
    """A row for the twin, numbered in order, since gateway ids may repeat."""
    return msgspec.structs.replace(
        request, arrived_s=at_s, id=str(number), session=None, ttft_s=None, e2e_s=None, model=None
    )


def _fault(text: str, past_s: float, horizon_s: float) -> Any:
    place = f"--fault {text[:60]}"
    entry = parse_value(text, place)
    if not isinstance(entry, dict) or "kind" not in entry:
        allowed = "an entry of `faults:`, such as {kind: engine-crash, at: 30s}"
        raise InputError("this is not a fault", where=place, allowed=allowed)
    at = entry.get("at", 0.0)
    if isinstance(at, str | int | float) and not isinstance(at, bool):
        at_s = parse_duration(at)
        if not 0.0 <= at_s <= horizon_s:
            what = f"it is at {at}, and times count from now"
            raise InputError(what, where=place, allowed=f"0s to {horizon_s:g}s, the horizon")
        entry["at"] = f"{past_s + at_s}s"
    return entry


def _step_ratio(columns: Any, rows: Sequence[TraceRequest]) -> float | None:
    """Median ratio of observed to simulated time per output token, over the same requests."""
    import numpy as np

    observed = np.full(len(columns["id"]), np.nan)
    for number, one in enumerate(rows):
        if one.e2e_s is not None and one.ttft_s is not None and one.output_tokens > 1:
            observed[number] = (one.e2e_s - one.ttft_s) / (one.output_tokens - 1)
    ratios = observed / columns["tpot"]
    ratios = ratios[np.isfinite(ratios) & (ratios > 0.0)]
    return float(np.median(ratios)) if len(ratios) >= FEWEST_PAST else None


def _between(times: Any, spent: Any, from_s: float, to_s: float) -> float:
    import numpy as np

    low, high = np.interp([from_s, to_s], times, spent)
    return float(high - low)


def replayed(requests: Iterable[TraceRequest], shadow: Shadow, tick_s: float) -> dict[str, Any]:
    """Runs a shadow over a trace in the trace's own time; returns the shadow's accuracy figures.

    Each forecast uses only what was known at its time.
    """
    window = shadow.window
    ending: list[tuple[float, int, TraceRequest]] = []
    next_s = tick_s
    saturated = unable = 0

    def advance(until_s: float) -> None:
        nonlocal next_s, saturated, unable
        while next_s <= until_s:
            while ending and ending[0][0] <= next_s:
                window.end(heapq.heappop(ending)[2])
            window.see(next_s)
            tick = shadow.tick()
            saturated += tick.says == SATURATED
            unable += tick.forecast is None
            next_s += tick_s

    for number, one in enumerate(requests):
        if one.e2e_s is None:
            continue
        advance(one.arrived_s)
        named = msgspec.structs.replace(one, id=str(number))
        window.arrive(msgspec.structs.replace(named, output_tokens=0, ttft_s=None, e2e_s=None))
        heapq.heappush(ending, (one.arrived_s + one.e2e_s, number, named))
    if ending:
        advance(max(end_s for end_s, _, _ in ending))
    if not shadow.ticks:
        what = "no request of the trace has the times of its answer"
        raise InputError(what, allowed="a trace with ttft and e2e, longer than a tick")
    return {**shadow.data(), "saturated_ticks": saturated, "ticks_without_forecast": unable}


def shadow_of(
    forecaster: Forecaster,
    others: Mapping[str, WhatIf] | None = None,
    regret_s: float | None = None,
) -> Shadow:
    """A shadow that forecasts with the twin, and with other settings of it.

    With `regret_s`, it can also compare them with foresight on that much recent traffic.
    """
    window = TrafficWindow(max(forecaster.past_s + 2.0 * forecaster.horizon_s, regret_s or 0.0))
    forecast = partial(forecaster.forecasts, others=others or {})
    regret = None
    if regret_s is not None:
        regret = partial(forecaster.regrets, others=others or {}, span_s=regret_s)
    return Shadow(window, forecast, forecaster.spans_s, regret, regret_s or 0.0)

"""How far a result can be trusted: the `trust` section, a list of findings in plain sentences.

Each finding has a code from a closed set (`CODES`), a severity, a sentence with its figures, and
the figures themselves. Limits are named constants here; `docs/explanation/trust.md` says why they
have these values.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from windtunnel.analysis.saturation import NO_SERVER, RunSample, Stretch, stretches
from windtunnel.analysis.steadiness import Steadiness, steadiness
from windtunnel.core.statistics.distribution import PERCENTILES
from windtunnel.core.units import format_duration
from windtunnel.models.calibration.evidence import Evidence
from windtunnel.models.capacity import KvCapacity
from windtunnel.models.step_time.model import MeasuredBounds
from windtunnel.workload.moments import asked_mean, drawn_mean
from windtunnel.workload.settings.sources import SourceSettings
from windtunnel.workload.traces.reading import LeftOut

GOOD, CAUTION, DOUBT = "good", "caution", "doubt"
SEVERITIES = (GOOD, CAUTION, DOUBT)

CODES = {
    "partial": "the run ended before its time",
    "nothing-completed": "there is no latency to believe or not",
    "calibration": "how far the step-time model was off where it was measured",
    "extrapolation": "steps larger than any that was measured",
    "assumptions": "what a pool's settings ask for that was not measured there",
    "max-model-len": "servers that vLLM would refuse to start",
    "saturation": "servers that could not keep up",
    "queue-growth": "queues that grew to the end",
    "warm-up": "servers that were still filling",
    "unfinished": "requests that had not ended",
    "tail": "time after the last arrival, which rates and cost include",
    "sample-size": "percentiles of few requests",
    "lengths": "lengths whose bounds move their mean",
    "left-out": "what traces have that was not replayed",
    "repaired": "what was wrong with a trace that was replayed all the same",
    "latency-interval": "what errors of step times and chance do to the latencies",
}
"""Subjects of findings."""

SMALL_ERROR, FAIR_ERROR = 0.10, 0.15  # of step times, on average
LITTLE_BEYOND, MUCH_BEYOND = 0.01, 0.1  # of the time in steps
MUCH_SATURATED = 0.2  # of the run
BUSY_ENCODERS, FULL_ENCODERS = 0.8, 0.95  # of the encoders' time
LONG_WARM_UP = 0.1  # of the time in which requests arrive
SOME_UNFINISHED, MANY_UNFINISHED = 0.01, 0.1  # of the requests that arrived
MISLEADING_UNFINISHED = 0.05  # of them: attainment then reflects the cut, not the servers
LONG_TAIL = 0.1  # of the run
FAR_FROM_ASKED, VERY_FAR_FROM_ASKED = 0.05, 0.25  # of a mean length
FEWEST_BEYOND = 10  # requests needed beyond a percentile


class TrustFinding(msgspec.Struct, frozen=True):
    """One reason to trust a result, or not to."""

    code: str
    severity: str
    says: str
    figures: dict[str, Any]


class PoolFacts(msgspec.Struct, frozen=True):
    """What is known about the step times of a pool."""

    name: str
    model: str
    evidence: Evidence
    kernels_only: bool
    """Whether step times are of kernels alone, without the time between them."""
    bounds: MeasuredBounds | None
    """The largest steps that were measured."""
    extrapolated: dict[str, Any] | None
    """The share of time and the steps beyond them; None if there are no bounds."""
    assumptions: Sequence[str] = ()
    """Sentences about settings whose effect was not measured there."""
    capacity: KvCapacity | None = None
    """The KV cache of its servers; None if `kv_blocks` is not that of vLLM's memory."""

    def section(self) -> dict[str, Any]:
        """The facts as plain data, for the result."""
        measured = None
        if self.bounds is not None:
            names = ("tokens", "decodes", "context", "prompt")
            measured = {name: getattr(self.bounds, name) for name in names}
        return {
            "error": msgspec.structs.asdict(self.evidence),
            "measured": measured,
            "extrapolated": self.extrapolated,
        }


class RunFacts(msgspec.Struct, frozen=True):
    """The facts that a run is judged by."""

    seconds: float
    duration_s: float | None
    partial: str | None
    """Why the run ended early, in a sentence; None if it did not."""
    last_arrival_s: float
    outcomes: Mapping[str, int]
    arrived: int
    forsaken: bool
    """Whether it ended because nothing that was planned could serve the requests left."""
    empty_pools: Sequence[str]
    """Pools that should have no server at the end."""
    attained: int
    completed: Mapping[str, int]
    """Measured and completed requests, by SLO class."""
    pools: Sequence[PoolFacts]
    samples: Sequence[RunSample]
    slots: Sequence[int]
    """By server."""
    most_servers: int
    encoders_busy: float | None
    sources: Sequence[SourceSettings]
    traces: Sequence[LeftOut]


def trust_of(run: RunFacts) -> dict[str, Any]:
    """The `trust` section, as plain data."""
    saturated = stretches(run.samples, run.slots)
    findings = [
        *_partial(run),
        *_completed(run),
        *(_calibration(pool) for pool in run.pools),
        *_extrapolation(run.pools),
        *_assumptions(run.pools),
        *_max_model_len(run.pools),
        *_saturation(saturated, run.seconds),
        *_encoders(run.encoders_busy),
        *_steadiness(steadiness(run.samples, run.most_servers)),
        *_unfinished(run, kept_up=not saturated),
        *_tail(run),
        *_sample_sizes(run),
        *_lengths(run.sources),
        *_left_out(run.traces),
        *_repaired(run.traces),
    ]
    return {
        **as_section(findings),
        "pools": {pool.name: pool.section() for pool in run.pools},
        "saturated": {
            "seconds": sum(one.end_s - one.start_s for one in saturated),
            "stretches": [msgspec.structs.asdict(one) for one in saturated],
        },
        "latency_intervals": None,  # a single run has none
        "repeats": None,
    }


def as_section(findings: Sequence[TrustFinding]) -> dict[str, Any]:
    """Findings from the most severe to the least, and the highest severity."""
    ordered = sorted(findings, key=lambda one: -SEVERITIES.index(one.severity))
    assert all(one.code in CODES for one in findings)
    return {
        "verdict": ordered[0].severity,
        "findings": [msgspec.structs.asdict(one) for one in ordered],
    }


# The findings


def _partial(run: RunFacts) -> list[TrustFinding]:
    if run.partial is None:
        return []
    says = f"{run.partial[:1].upper()}{run.partial[1:]}."
    return [TrustFinding("partial", DOUBT, says, {"seconds": run.seconds})]


def _completed(run: RunFacts) -> list[TrustFinding]:
    if any(run.completed.values()):
        return []
    says = "No request was completed: there are no latencies."
    if run.outcomes["completed"]:
        says = "None of the requests that `measure` is for was completed: there are no latencies."
    return [TrustFinding("nothing-completed", DOUBT, says, {"arrived": run.arrived})]


def _calibration(pool: PoolFacts) -> TrustFinding:
    model, evidence = pool.model, pool.evidence
    figures = {"pool": pool.name, "mape": evidence.mape, "points": evidence.points}
    if evidence.mape is None:
        says = f"The step times of {pool.name} ({model}) were not measured: "
        says += f"{evidence.of.rstrip('.')}."
        unknown = model in ("roofline", "physics")  # hardware models, unlike own numbers
        return TrustFinding("calibration", DOUBT if unknown else CAUTION, says, figures)
    severity = _severity(evidence.mape, SMALL_ERROR, FAIR_ERROR)
    says = f"Step times of {pool.name} ({model}) are {evidence.mape:.1%} off on average, "
    says += f"over {evidence.points:,} {evidence.of}."
    if pool.kernels_only:
        says += " They are kernels alone: time between kernels is missing (per_step is 0)."
        severity = max(severity, CAUTION, key=SEVERITIES.index)
    return TrustFinding("calibration", severity, says, figures)


def _extrapolation(pools: Sequence[PoolFacts]) -> Iterator[TrustFinding]:
    within = True
    for pool in pools:
        found, bounds = pool.extrapolated, pool.bounds
        within = within and found is not None and not found["time_share"]
        if found is None or not found["time_share"]:
            continue
        assert bounds is not None, "it was counted against them"
        most, share = found["most"], found["time_share"]
        context = bounds.context if most["context"] > bounds.context else bounds.prompt
        limits = {"tokens": bounds.tokens, "decodes": bounds.decodes, "context": context}
        worst = [
            f"{BEYOND[name].format(most[name])} (measured to {limits[name]:,})"
            for name, steps in found["steps"].items()
            if steps
        ]
        says = f"{share:.1%} of the time in steps of {pool.name} was in larger steps than any that "
        says += f"was measured: {', '.join(worst)}."
        severity = _severity(share, LITTLE_BEYOND, MUCH_BEYOND)
        yield TrustFinding("extrapolation", severity, says, {"pool": pool.name, **found})
    if within:
        says = "Every step was within the sizes that were measured."
        yield TrustFinding("extrapolation", GOOD, says, {"time_share": 0.0})


def _assumptions(pools: Sequence[PoolFacts]) -> Iterator[TrustFinding]:
    for pool in pools:
        for says in pool.assumptions:
            yield TrustFinding("assumptions", CAUTION, says, {"pool": pool.name})


def _max_model_len(pools: Sequence[PoolFacts]) -> Iterator[TrustFinding]:
    for pool in pools:
        found = pool.capacity
        if found is None or found.starts:
            continue
        says = f"The KV cache of {pool.name} holds no request of max_model_len "
        says += f"({found.max_model_len:,} tokens): {found.refusal}."
        figures = {"pool": pool.name, "asked": found.max_model_len, "longest": found.longest}
        yield TrustFinding("max-model-len", CAUTION, says, figures)


BEYOND = {
    "tokens": "up to {:,} tokens",
    "decodes": "up to {:,} sequences that decode",
    "context": "contexts of up to {:,} tokens",
}


def _saturation(found: list[Stretch], seconds: float) -> Iterator[TrustFinding]:
    if not found:
        says = "No stretch of time was saturated."
        yield TrustFinding("saturation", GOOD, says, {"share": 0.0})
    none = [one for one in found if one.cause == NO_SERVER]
    if none:
        total_s, share = _time_of(none, seconds)
        says = f"Requests waited {format_duration(total_s)} ({share:.0%} of the run) for a server "
        says += (
            f"while none was ready, first from about {format_duration(none[0].start_s)} on: those "
        )
        says += "waits are of starts and losses, not of step times."
        figures = {"without_server": total_s, "share": share}
        yield TrustFinding("saturation", _severity_of(share), says, figures)
    full = [one for one in found if one.cause != NO_SERVER]
    if full:
        total_s, share = _time_of(full, seconds)
        causes = ", ".join(dict.fromkeys(one.cause for one in full))
        says = f"Servers were saturated for {format_duration(total_s)} ({share:.0%} of the run; "
        says += f"{causes}): there a small error in step times becomes a large error in waits."
        figures = {"seconds": total_s, "share": share}
        yield TrustFinding("saturation", _severity_of(share), says, figures)


def _time_of(found: list[Stretch], seconds: float) -> tuple[float, float]:
    total_s = sum(one.end_s - one.start_s for one in found)
    return total_s, total_s / seconds


def _severity_of(share: float) -> str:
    return DOUBT if share >= MUCH_SATURATED else CAUTION


def _encoders(busy: float | None) -> Iterator[TrustFinding]:
    if busy is not None and busy >= BUSY_ENCODERS:
        says = f"The encoders were busy {busy:.0%} of the time: what requests with media wait "
        says += "there hangs on small errors of what encoding takes."
        severity = DOUBT if busy >= FULL_ENCODERS else CAUTION
        yield TrustFinding("saturation", severity, says, {"encoders": busy})


def _steadiness(steady: Steadiness) -> Iterator[TrustFinding]:
    if steady.growing:
        rising = ", ".join(f"{mean:.0f}" for mean in steady.waiting)
        says = f"Queues still grew at the end: {rising} requests waited on average in the four "
        says += "quarters of the run. A longer run would have longer waits."
        yield TrustFinding("queue-growth", DOUBT, says, {"waiting": list(steady.waiting)})
    elif steady.filled_s is not None:
        share = steady.filled_s / steady.arrivals_end_s
        if share > LONG_WARM_UP:
            says = f"Servers started empty and filled for {format_duration(steady.filled_s)} "
            says += f"({share:.0%} of the arrival time); latencies include that warm-up."
            figures = {"seconds": steady.filled_s, "share": share}
            yield TrustFinding("warm-up", CAUTION, says, figures)


def _unfinished(run: RunFacts, *, kept_up: bool) -> Iterator[TrustFinding]:
    count = run.outcomes["unfinished"]
    share = count / run.arrived if run.arrived else 0.0
    if share < SOME_UNFINISHED:
        return
    of_all, ended = run.attained / run.arrived, run.arrived - count
    of_ended = run.attained / ended if ended else None
    says = f"{count:,} requests ({share:.0%}) had not ended when the run did; latencies "
    says += "exclude them, and slow requests are the most likely to be missing."
    if run.forsaken:
        says += " The run ended because nothing that was planned could serve them"
        says += f": no server was wanted for {', '.join(run.empty_pools)}." * bool(run.empty_pools)
        says = f"{says.rstrip('.')}."
    if share > MISLEADING_UNFINISHED and kept_up and of_ended is not None:
        says += f" Attainment counts them as missed, though the servers kept up: {of_all:.0%} of "
        says += f"all requests were in time, and {of_ended:.0%} of those that ended."
    figures = {
        "requests": count,
        "share": share,
        "attained": of_all,
        "attained_of_ended": of_ended,
    }
    yield TrustFinding("unfinished", DOUBT if share >= MANY_UNFINISHED else CAUTION, says, figures)


def _tail(run: RunFacts) -> Iterator[TrustFinding]:
    """Warns of a run that continues long after its traffic: rates and cost include the empty
    tail."""
    last_s, seconds = run.last_arrival_s, run.seconds
    tail_s = seconds - last_s
    if not run.arrived or tail_s <= LONG_TAIL * seconds:
        return
    share = tail_s / seconds
    last = format_duration(last_s)
    says = f"The last request arrived at {last}, and the run went on for {format_duration(tail_s)} "
    says += f"({share:.0%} of it). Requests/s and cost include that tail; "
    says += "a shorter duration" if run.duration_s is not None else "a duration"
    says += " ends the run with its arrivals." if last_s > 0.0 else " ends the run earlier."
    figures = {"last_arrival": last_s, "seconds": tail_s, "share": share}
    yield TrustFinding("tail", CAUTION, says, figures)


def _sample_sizes(run: RunFacts) -> Iterator[TrustFinding]:
    """Whether percentiles have enough requests beyond them: in total, and by class."""
    classes = {name: count for name, count in run.completed.items() if count}
    if not classes:
        return
    yield _sample_size(sum(classes.values()), "")
    for name, count in classes.items() if len(classes) > 1 else ():
        found = _sample_size(count, f" of {name}")
        if found.severity != GOOD:
            yield found


def _sample_size(completed: int, whose: str) -> TrustFinding:
    beyond = {name: completed * (1.0 - share) for name, share in PERCENTILES}
    few = [name for name, count in beyond.items() if round(count, 6) < FEWEST_BEYOND]
    figures = {"completed": completed, "beyond": round(beyond["p99"], 6)}
    noun = "request" if completed == 1 else "requests"
    requests = f"{completed:,} completed {noun}{whose}"
    if not few:
        says = f"The p99 of {requests} has {beyond['p99']:,.0f} beyond it."
        return TrustFinding("sample-size", GOOD, says, figures)
    names = few[0] if len(few) == 1 else f"{', '.join(few[:-1])} and {few[-1]}"
    least = FEWEST_BEYOND * 100
    says = f"The {names} of {requests} {'has' if len(few) == 1 else 'have'} fewer than "
    says += f"{FEWEST_BEYOND} requests beyond; a p99 needs {least:,}."
    severity = CAUTION if round(beyond["p99"], 6) >= 1.0 else DOUBT
    return TrustFinding("sample-size", severity, says, figures)


def _lengths(sources: Sequence[SourceSettings]) -> Iterator[TrustFinding]:
    """Distributions whose min and max move the mean far from the one requested."""
    for source in sources:
        for where, lengths in source.lengths().items():
            if lengths.path is not None:
                continue
            asked, drawn = asked_mean(lengths), drawn_mean(lengths)
            off = abs(drawn / asked - 1.0)
            if off > FAR_FROM_ASKED and not math.isinf(asked):
                says = f"The {where} of {source.name} were asked to have a mean of {asked:,.4g}; "
                says += f"within min and max it is {drawn:,.4g}."
                severity = DOUBT if off > VERY_FAR_FROM_ASKED else CAUTION
                figures = {"source": source.name, "lengths": where, "asked": asked, "drawn": drawn}
                yield TrustFinding("lengths", severity, says, figures)


def _left_out(traces: Sequence[LeftOut]) -> Iterator[TrustFinding]:
    for trace in traces:
        nouns = {
            "without a prompt or an output were not replayed": trace.empty,
            "that could not be read were not replayed": trace.bad,
            "for adapters that no pool has slots for went to the base model": trace.adapters,
            "tokens of prompts were found in caches, and a run's requests do not say which prompts "
            "share them, so that a replay finds none": trace.prefix_tokens,
        }
        parts = [f"{count:,} {noun}" for noun, count in nouns.items() if count]
        if not parts:
            continue
        says = f"Of {trace.path}, {', '.join(parts)}."
        figures = {"path": trace.path, "empty": trace.empty, "bad": trace.bad}
        figures |= {"adapters": trace.adapters, "prefix_tokens": trace.prefix_tokens}
        yield TrustFinding("left-out", CAUTION, says, figures)


def _repaired(traces: Sequence[LeftOut]) -> Iterator[TrustFinding]:
    for trace in traces:
        parts = trace.repairs.sentences()
        if parts:
            says = f"Of {trace.path}, {', and '.join(parts)}."
            figures = {"path": trace.path, **trace.repairs._asdict()}
            severity = CAUTION if trace.repairs.late else GOOD
            yield TrustFinding("repaired", severity, says, figures)


def _severity(share: float, small: float, fair: float) -> str:
    return GOOD if share <= small else CAUTION if share <= fair else DOUBT

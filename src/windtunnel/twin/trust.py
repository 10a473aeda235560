"""How far a result can be believed: the `trust` section, a list of findings in plain sentences.

Each finding has a code from a closed set (`CODES`), a severity, a sentence with its numbers, and
the numbers themselves. Limits have names here, and `docs/explanation/trust.md` says why they are
what they are.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from windtunnel.core.distribution import PERCENTILES
from windtunnel.core.units import format_duration
from windtunnel.engine.server import Server
from windtunnel.models.evidence import OPERATORS, Evidence
from windtunnel.models.table import Table
from windtunnel.twin.breakdown import per
from windtunnel.twin.pools import evidence_of, shape_of
from windtunnel.twin.recorder import COMPLETED, UNFINISHED, Recorder
from windtunnel.twin.replicas import Pool
from windtunnel.twin.saturation import Stretch, stretches
from windtunnel.twin.scenario.plan import PoolPlan, ScenarioPlan
from windtunnel.twin.simulation import Simulation
from windtunnel.twin.steadiness import Steadiness, steadiness
from windtunnel.workload.moments import asked_mean, drawn_mean
from windtunnel.workload.plan import lengths_of

GOOD, CAUTION, DOUBT = "good", "caution", "doubt"
SEVERITIES = (GOOD, CAUTION, DOUBT)

CODES = {
    "nothing-completed": "there is no latency to believe or not",
    "calibration": "how far the step-time model was off where it was measured",
    "extrapolation": "steps larger than any that was measured",
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
"""What a finding can be about."""

SMALL_ERROR, FAIR_ERROR = 0.05, 0.15  # of step times, on average
LITTLE_BEYOND, MUCH_BEYOND = 0.01, 0.1  # of the time in steps
MUCH_SATURATED = 0.2  # of the run
BUSY_ENCODERS, FULL_ENCODERS = 0.8, 0.95  # of the encoders' time
LONG_WARM_UP = 0.1  # of the time in which requests arrive
SOME_UNFINISHED, MANY_UNFINISHED = 0.01, 0.1  # of the requests that arrived
MISLEADING_UNFINISHED = 0.05  # of them: attainment is then about the cut, not the servers
LONG_TAIL = 0.1  # of the run
FAR_FROM_ASKED, VERY_FAR_FROM_ASKED = 0.05, 0.25  # of a mean length
FEWEST_BEYOND = 10  # requests beyond a percentile that is worth stating


class Finding(msgspec.Struct, frozen=True):
    """One reason to believe a result, or not to."""

    code: str
    severity: str
    says: str
    figures: dict[str, Any]


def trust_of(plan: ScenarioPlan, simulation: Simulation) -> dict[str, Any]:
    """The section, as plain data."""
    pools = list(_pools(plan, simulation.cluster.pools))
    slots = [server.limits.max_num_seqs for server in simulation.servers]
    samples = simulation.timeline.samples
    saturated = stretches(samples, slots)
    steady = steadiness(samples, sum(pool.most for pool in simulation.cluster.pools))
    findings = [
        *_completed(simulation.recorder),
        *(_calibration(*pool) for pool in pools),
        *_extrapolation(pools),
        _saturation(saturated, simulation.now_s),
        *_encoders(simulation),
        *_steadiness(steady),
        *_unfinished(simulation.recorder, kept_up=not saturated),
        *_tail(simulation, plan.duration_s),
        *_sample_sizes(simulation.recorder),
        *_lengths(plan),
        *_left_out(simulation),
        *_repaired(simulation),
    ]
    return {
        **as_section(findings),
        "pools": {pool.name: _pool_section(evidence, own) for pool, evidence, own in pools},
        "saturated": {
            "seconds": sum(one.end_s - one.start_s for one in saturated),
            "stretches": [msgspec.structs.asdict(one) for one in saturated],
        },
        "latency_intervals": None,  # one run has none
        "repeats": None,
    }


def as_section(findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings from the gravest to the best, and the gravest severity of all."""
    ordered = sorted(findings, key=lambda one: -SEVERITIES.index(one.severity))
    assert all(one.code in CODES for one in findings)
    return {
        "verdict": ordered[0].severity,
        "findings": [msgspec.structs.asdict(one) for one in ordered],
    }


PoolFacts = tuple[PoolPlan, Evidence, Pool]


def _pools(plan: ScenarioPlan, owned: Sequence[Pool]) -> Iterator[PoolFacts]:
    for pool, own in zip(plan.pools, owned, strict=True):
        yield pool, evidence_of(pool, shape_of(pool), own.step_time), own


def _pool_section(evidence: Evidence, own: Pool) -> dict[str, Any]:
    bounds = own.step_time.measured()
    measured = None
    if bounds is not None:
        names = ("tokens", "decodes", "context", "prompt")
        measured = {name: getattr(bounds, name) for name in names}
    return {
        "error": msgspec.structs.asdict(evidence),
        "measured": measured,
        "extrapolated": _extrapolated(own.servers),
    }


def _extrapolated(servers: list[Server]) -> dict[str, Any] | None:
    """How much of a pool's steps lay beyond what was measured; None: it has no such bounds."""
    counts = [server.extrapolation for server in servers if server.extrapolation is not None]
    if not counts:
        return None
    return {
        "step_share": per(
            sum(int(one.steps) for one in counts), sum(int(one.steps) for one in servers)
        ),
        "time_share": per(sum(one.time_s for one in counts), sum(one.busy_s for one in servers)),
        "steps": {
            "tokens": sum(int(one.over_tokens) for one in counts),
            "decodes": sum(int(one.over_decodes) for one in counts),
            "context": sum(int(one.over_context) for one in counts),
        },
        "most": {
            "tokens": max(int(one.most_tokens) for one in counts),
            "decodes": max(int(one.most_decodes) for one in counts),
            "context": max(int(one.most_context) for one in counts),
        },
    }


# The findings


def _completed(recorder: Recorder) -> list[Finding]:
    if recorder.outcomes[COMPLETED]:
        return []
    says = "No request was completed: there are no latencies."
    return [Finding("nothing-completed", DOUBT, says, {"arrived": recorder.arrived})]


def _calibration(pool: PoolPlan, evidence: Evidence, own: Pool) -> Finding:
    model = pool.step_time.model
    figures = {"pool": pool.name, "mape": evidence.mape, "points": evidence.points}
    if evidence.mape is None:
        says = f"No measurement stands behind the step times of {pool.name}: {model}"
        says += f"; {evidence.of.rstrip('.')}."
        return Finding("calibration", DOUBT if model == "roofline" else CAUTION, says, figures)
    severity = _severity(evidence.mape, SMALL_ERROR, FAIR_ERROR)
    says = f"Step times of {pool.name} ({model}) are {evidence.mape:.1%} off on average, "
    says += f"over {evidence.points:,} {evidence.of}."
    table = own.step_time
    if isinstance(table, Table) and table.tokens is not None and table.per_step_s == 0.0:
        says += " They are kernels alone: time between kernels is missing (per_step is 0)."
        severity = max(severity, CAUTION, key=SEVERITIES.index)
    if evidence.basis == OPERATORS:
        severity = max(severity, CAUTION, key=SEVERITIES.index)
    return Finding("calibration", severity, says, figures)


def _extrapolation(pools: Sequence[PoolFacts]) -> Iterator[Finding]:
    within = True
    for pool, _, own in pools:
        found = _extrapolated(own.servers)
        within = within and found is not None and not found["time_share"]
        if found is None or not found["time_share"]:
            continue
        bounds = own.step_time.measured()
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
        yield Finding("extrapolation", severity, says, {"pool": pool.name, **found})
    if within:
        says = "Every step was within the sizes that were measured."
        yield Finding("extrapolation", GOOD, says, {"time_share": 0.0})


BEYOND = {
    "tokens": "up to {:,} tokens",
    "decodes": "up to {:,} sequences that decode",
    "context": "contexts of up to {:,} tokens",
}


def _saturation(found: list[Stretch], seconds: float) -> Finding:
    if not found:
        says = "The servers kept up throughout: no stretch of time was saturated."
        return Finding("saturation", GOOD, says, {"share": 0.0})
    total_s = sum(one.end_s - one.start_s for one in found)
    share = total_s / seconds
    causes = ", ".join(dict.fromkeys(one.cause for one in found))
    says = f"Servers were saturated for {format_duration(total_s)} ({share:.0%} of the run; "
    says += f"{causes}): there a small error of step times becomes a large error of waits."
    severity = DOUBT if share >= MUCH_SATURATED else CAUTION
    return Finding("saturation", severity, says, {"seconds": total_s, "share": share})


def _encoders(simulation: Simulation) -> Iterator[Finding]:
    encoders = simulation.encoders
    if encoders is None:
        return
    busy = encoders.busy(simulation.now_s)
    if busy >= BUSY_ENCODERS:
        says = f"The encoders were busy {busy:.0%} of the time: what requests with media wait "
        says += "there hangs on small errors of what encoding takes."
        severity = DOUBT if busy >= FULL_ENCODERS else CAUTION
        yield Finding("saturation", severity, says, {"encoders": busy})


def _steadiness(steady: Steadiness) -> Iterator[Finding]:
    if steady.growing:
        rising = ", ".join(f"{mean:.0f}" for mean in steady.waiting)
        says = f"Queues still grew at the end: {rising} requests waited on average in the four "
        says += "quarters of the run. A longer run would have longer waits."
        yield Finding("queue-growth", DOUBT, says, {"waiting": list(steady.waiting)})
    elif steady.filled_s is not None:
        share = steady.filled_s / steady.arrivals_end_s
        if share > LONG_WARM_UP:
            says = f"Servers started empty and filled for {format_duration(steady.filled_s)} "
            says += f"({share:.0%} of the arrivals' time); latencies include that warm-up."
            figures = {"seconds": steady.filled_s, "share": share}
            yield Finding("warm-up", CAUTION, says, figures)


def _unfinished(recorder: Recorder, *, kept_up: bool) -> Iterator[Finding]:
    count = recorder.outcomes[UNFINISHED]
    share = count / recorder.arrived if recorder.arrived else 0.0
    if share < SOME_UNFINISHED:
        return
    attained = sum(int(account.attained) for account in recorder.classes)
    of_all, of_ended = per(attained, recorder.arrived), per(attained, recorder.arrived - count)
    says = f"{count:,} requests ({share:.0%}) had not ended when the run did; latencies are "
    says += "without them, and slow requests are most likely to be among them."
    if share > MISLEADING_UNFINISHED and kept_up and of_ended is not None:
        says += f" Attainment counts them as missed, though the servers kept up: {of_all:.0%} of "
        says += f"all requests were in time, and {of_ended:.0%} of those that ended."
    figures = {
        "requests": count,
        "share": share,
        "attained": of_all,
        "attained_of_ended": of_ended,
    }
    yield Finding("unfinished", DOUBT if share >= MANY_UNFINISHED else CAUTION, says, figures)


def _tail(simulation: Simulation, duration_s: float | None) -> Iterator[Finding]:
    """A run that goes on long after its traffic has rates and costs of an emptying cluster."""
    last_s, seconds = simulation.last_arrival_s, simulation.now_s
    tail_s = seconds - last_s
    if not simulation.recorder.arrived or tail_s <= LONG_TAIL * seconds:
        return
    share = tail_s / seconds
    last = format_duration(last_s)
    says = f"The last request arrived at {last}, and the run went on for {format_duration(tail_s)} "
    says += f"({share:.0%} of it). Requests/s and cost include that tail; "
    says += "a shorter duration" if duration_s is not None else "a duration"
    says += " ends the run with its arrivals." if last_s > 0.0 else " ends the run earlier."
    figures = {"last_arrival": last_s, "seconds": tail_s, "share": share}
    yield Finding("tail", CAUTION, says, figures)


def _sample_sizes(recorder: Recorder) -> Iterator[Finding]:
    """Whether percentiles have enough requests beyond them: in all, and class by class."""
    completed = recorder.outcomes[COMPLETED]
    if not completed:
        return
    yield _sample_size(completed, "")
    several = len([account for account in recorder.classes if account.completed]) > 1
    for account in recorder.classes if several else ():
        if account.completed:
            found = _sample_size(int(account.completed), f" of {account.name}")
            if found.severity != GOOD:
                yield found


def _sample_size(completed: int, whose: str) -> Finding:
    beyond = {name: completed * (1.0 - share) for name, share in PERCENTILES}
    few = [name for name, count in beyond.items() if round(count, 6) < FEWEST_BEYOND]
    figures = {"completed": completed, "beyond": round(beyond["p99"], 6)}
    noun = "request" if completed == 1 else "requests"
    requests = f"{completed:,} completed {noun}{whose}"
    if not few:
        says = f"The p99 of {requests} has {beyond['p99']:,.0f} beyond it."
        return Finding("sample-size", GOOD, says, figures)
    names = few[0] if len(few) == 1 else f"{', '.join(few[:-1])} and {few[-1]}"
    least = FEWEST_BEYOND * 100
    says = f"The {names} of {requests} {'has' if len(few) == 1 else 'have'} fewer than "
    says += f"{FEWEST_BEYOND} requests beyond; a p99 needs {least:,}."
    severity = CAUTION if round(beyond["p99"], 6) >= 1.0 else DOUBT
    return Finding("sample-size", severity, says, figures)


def _lengths(plan: ScenarioPlan) -> Iterator[Finding]:
    """Distributions whose min and max move the mean far from what was asked for."""
    for source in plan.sources:
        for where, lengths in lengths_of(source).items():
            if lengths.path is not None:
                continue
            asked, drawn = asked_mean(lengths), drawn_mean(lengths)
            off = abs(drawn / asked - 1.0)
            if off > FAR_FROM_ASKED and not math.isinf(asked):
                says = f"The {where} of {source.name} were asked to have a mean of {asked:,.4g}; "
                says += f"within min and max it is {drawn:,.4g}."
                severity = DOUBT if off > VERY_FAR_FROM_ASKED else CAUTION
                figures = {"source": source.name, "lengths": where, "asked": asked, "drawn": drawn}
                yield Finding("lengths", severity, says, figures)


def _left_out(simulation: Simulation) -> Iterator[Finding]:
    for trace in simulation.traffic.left_out():
        nouns = {
            "without a prompt or an output were not replayed": trace.empty,
            "that could not be read were not replayed": trace.bad,
            "for adapters that no pool has slots for went to the base model": trace.adapters,
            "tokens of prompts were found in caches, and a run's requests do not say which prompts "
            "share them, so that a replay finds none": trace.prefix_tokens,
        }
        told = [f"{count:,} {noun}" for noun, count in nouns.items() if count]
        if not told:
            continue
        says = f"Of {trace.path}, {', '.join(told)}."
        figures = {"path": trace.path, "empty": trace.empty, "bad": trace.bad}
        figures |= {"adapters": trace.adapters, "prefix_tokens": trace.prefix_tokens}
        yield Finding("left-out", CAUTION, says, figures)


def _repaired(simulation: Simulation) -> Iterator[Finding]:
    for trace in simulation.traffic.left_out():
        told = trace.repairs.sentences()
        if told:
            says = f"Of {trace.path}, {', and '.join(told)}."
            figures = {"path": trace.path, **trace.repairs._asdict()}
            severity = CAUTION if trace.repairs.late else GOOD
            yield Finding("repaired", severity, says, figures)


def _severity(share: float, small: float, fair: float) -> str:
    return GOOD if share <= small else CAUTION if share <= fair else DOUBT

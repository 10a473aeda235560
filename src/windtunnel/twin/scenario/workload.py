"""What arrives: what the sections of a workload come to, and what is wrong with them."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from windtunnel.core.errors import InputError
from windtunnel.settings.document import KeyPath
from windtunnel.settings.limits import MOST_TOKENS
from windtunnel.twin.scenario import arrivals_spec, lengths_spec
from windtunnel.twin.scenario.arrivals_spec import (
    ClosedArrivals,
    ConstantArrivals,
    CurveSpec,
    GammaArrivals,
    RateCurve,
    WeibullArrivals,
)
from windtunnel.twin.scenario.lengths_spec import (
    ConstantLengths,
    ConstantPause,
    EmpiricalLengths,
    LognormalLengths,
    LognormalPause,
    NormalLengths,
    ParetoLognormalLengths,
    Pauses,
    UniformLengths,
    UniformPause,
)
from windtunnel.twin.scenario.lora import adapters_plan
from windtunnel.twin.scenario.plan import SloPlan
from windtunnel.twin.scenario.workload_spec import (
    ExtraSpec,
    ReplaySpec,
    SessionSpec,
    SourceSpec,
    WorkloadEntry,
)
from windtunnel.workload.arrivals import weibull_cv
from windtunnel.workload.empirical import read_lengths
from windtunnel.workload.plan import (
    Arrivals,
    Conversation,
    Curve,
    Entry,
    Extra,
    Lengths,
    Prefix,
    Source,
    Times,
    TraceReplay,
    lengths_of,
)
from windtunnel.workload.sessions import MOST_TURNS
from windtunnel.workload.traces.formats import named


def entry_plan(
    entry: WorkloadEntry,
    slos: Mapping[str, SloPlan],
    *,
    model: str | None,
    slots: bool,
) -> Entry:
    """The plan of an entry; `model` is the scenario's.

    `slots` is whether every server that may get its requests has some for LoRA adapters.
    """
    own = entry.model or model
    if isinstance(entry, ReplaySpec):
        return _replay(entry, model=own, slots=slots)
    return _source(entry, slos, model=own)


def file_faults(entries: Sequence[Entry]) -> list[tuple[KeyPath, InputError]]:
    """What is wrong with the files that a workload names, as far as opening them tells."""
    faults: list[tuple[KeyPath, InputError]] = []
    for index, entry in enumerate(entries):
        for path, opened in _files(("workload", index), entry):
            try:
                opened()
            except InputError as fault:
                faults.append((path, fault))
    return faults


def _files(path: KeyPath, entry: Entry) -> list[tuple[KeyPath, Callable[[], object]]]:
    """The files of one entry, each with what opens it."""
    if isinstance(entry, TraceReplay):
        return [((*path, "trace", "path"), partial(named, entry.format, Path(entry.path)))]
    return [
        ((*path, *where.split("."), "path"), partial(read_lengths, lengths.path))
        for where, lengths in lengths_of(entry).items()
        if lengths.path is not None
    ]


def _replay(entry: ReplaySpec, *, model: str | None, slots: bool) -> TraceReplay:
    trace = entry.trace
    return TraceReplay(
        path=trace.path,
        format=trace.format,
        speedup=trace.speedup,
        skip_bad=trace.skip_bad,
        sort=trace.sort,
        name=entry.name,
        tenant=entry.tenant,
        slo=entry.slo,
        timeout_s=entry.timeout,
        count=entry.count,
        adapters=slots,
        closed=trace.sessions == "closed",
        think=pauses_plan(trace.think) if trace.think is not None else None,
        model=model,
        models=trace.models or {},
    )


def _source(source: SourceSpec, slos: Mapping[str, SloPlan], *, model: str | None) -> Source:
    prefix, population = source.prefix, source.population
    own_prefixes = population is not None and population.prefixes == "per-member"
    return Source(
        name=source.name,
        tenant=source.tenant,
        slo=source.slo,
        priority=slos[source.slo].priority,
        count=source.count,
        arrivals=arrivals_plan(source.arrivals),
        prompt=lengths_plan(source.prompt_tokens),
        output=lengths_plan(source.output_tokens),
        prefix=Prefix(prefix.tokens, prefix.groups, own_prefixes) if prefix else None,
        curve=curve_plan(source.rate_curve) if source.rate_curve is not None else None,
        timeout_s=source.timeout,
        conversation=_conversation(source.session),
        population=population.members if population else 1,
        tenant_per_member=population is not None and population.tenants == "per-member",
        media=_extra(source.media),
        reasoning=_extra(source.reasoning),
        adapters=adapters_plan(source.adapters),
        model=model,
    )


def _conversation(session: SessionSpec | None) -> Conversation | None:
    if session is None:
        return None
    turns = lengths_plan(session.turns, most=MOST_TURNS)
    return Conversation(turns, pauses_plan(session.think), session.context == "accumulate")


def _extra(extra: ExtraSpec | None) -> Extra | None:
    return Extra(lengths_plan(extra.tokens), extra.share) if extra is not None else None


def arrivals_plan(arrivals: arrivals_spec.Arrivals) -> Arrivals:
    """Whatever it was written by, a process is its rate and the variation of its gaps."""
    if isinstance(arrivals, ClosedArrivals):
        think = pauses_plan(arrivals.think)
        return Arrivals("closed", 0.0, 0.0, users=arrivals.users, think=think)
    if isinstance(arrivals, GammaArrivals | WeibullArrivals):
        if arrivals.rate is not None and arrivals.cv is not None:
            return Arrivals(arrivals.process, arrivals.rate, arrivals.cv)
        assert arrivals.shape is not None
        assert arrivals.scale is not None
        if isinstance(arrivals, GammaArrivals):
            mean_s, cv = arrivals.shape * arrivals.scale, 1.0 / math.sqrt(arrivals.shape)
        else:
            mean_s = arrivals.scale * math.gamma(1.0 + 1.0 / arrivals.shape)
            cv = weibull_cv(arrivals.shape)
        return Arrivals(arrivals.process, 1.0 / mean_s, cv)
    cv = 0.0 if isinstance(arrivals, ConstantArrivals) else 1.0
    return Arrivals(arrivals.process, arrivals.rate, cv)


def curve_plan(curve: RateCurve) -> Curve:
    """Points stay points, a jump is two of one time, and a day is a wave."""
    if not isinstance(curve, CurveSpec):
        return Curve(points=curve)
    if curve.diurnal is not None:
        day = curve.diurnal
        return Curve(period_s=day.period, peak_s=day.peak, ratio=day.ratio)
    if curve.spike is not None:
        spike = curve.spike
        end_s = spike.at + spike.duration
        rise, fall = (spike.at, spike.factor), (end_s, spike.factor)
        return Curve(points=((spike.at, 1.0), rise, fall, (end_s, 1.0)))
    ramp = curve.ramp_down
    assert ramp is not None
    return Curve(points=((ramp.at, 1.0), (ramp.at + ramp.over, ramp.to)))


def lengths_plan(lengths: lengths_spec.Lengths, most: int = MOST_TOKENS) -> Lengths:
    """What is drawn is at most `most`, whatever the distribution allows."""
    assert not isinstance(lengths, int), "a bare number becomes a constant when it is checked"
    if isinstance(lengths, ConstantLengths):
        return Lengths("constant", float(lengths.value), 0.0, lengths.value, lengths.value)
    if isinstance(lengths, UniformLengths):
        mean = (lengths.min + lengths.max) / 2
        stddev = math.sqrt(((lengths.max - lengths.min + 1) ** 2 - 1) / 12)
        return Lengths("uniform", mean, stddev / mean, lengths.min, lengths.max)
    if isinstance(lengths, EmpiricalLengths):
        return _empirical(lengths, most)
    cv = 1.0
    if isinstance(lengths, LognormalLengths | ParetoLognormalLengths):
        cv = lengths.cv
    elif isinstance(lengths, NormalLengths):
        cv = lengths.cv if lengths.cv is not None else (lengths.stddev or 0.0) / lengths.mean
    low, high = lengths.min, min(lengths.max, most)
    if not isinstance(lengths, ParetoLognormalLengths):
        return Lengths(lengths.distribution, lengths.mean, cv, low, high)
    tail = lengths.tail
    return Lengths(
        lengths.distribution,
        lengths.mean,
        cv,
        low,
        high,
        tail_alpha=tail.alpha,
        tail_start=tail.start,
        tail_share=tail.share,
    )


def _empirical(lengths: EmpiricalLengths, most: int) -> Lengths:
    if lengths.path is not None:
        return Lengths("empirical", 0.0, 0.0, 1, most, path=lengths.path)
    assert lengths.values is not None
    values, weights = zip(*lengths.values, strict=True)
    return Lengths("empirical", 0.0, 0.0, 1, most, values=values, weights=weights)


def pauses_plan(pauses: Pauses) -> Times:
    assert not isinstance(pauses, float), "a bare duration becomes a constant when it is checked"
    if isinstance(pauses, ConstantPause):
        return Times("constant", pauses.value, 0.0, pauses.value, pauses.value)
    if isinstance(pauses, UniformPause):
        mean_s = (pauses.min + pauses.max) / 2
        stddev_s = (pauses.max - pauses.min) / math.sqrt(12)
        cv = stddev_s / mean_s if mean_s else 0.0
        return Times("uniform", mean_s, cv, pauses.min, pauses.max)
    cv = pauses.cv if isinstance(pauses, LognormalPause) else 1.0
    return Times(pauses.distribution, pauses.mean, cv, pauses.min, pauses.max)

"""The rules of a workload: what is wrong with it although each value is right by itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.core.errors import nearest
from windtunnel.core.units import format_duration, parse_rate
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.limits import FASTEST_RATE, LONGEST_TRAFFIC_S, SLOWEST_RATE
from windtunnel.twin.scenario import lengths_spec
from windtunnel.twin.scenario.arrivals_spec import ClosedArrivals, CurveSpec, ShapedArrivals
from windtunnel.twin.scenario.lengths_spec import (
    BoundedLengths,
    BoundedPause,
    ConstantLengths,
    EmpiricalLengths,
    NormalLengths,
    ParetoLognormalLengths,
    Pauses,
    UniformLengths,
    UniformPause,
)
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.workload import arrivals_plan, curve_plan, pauses_plan
from windtunnel.twin.scenario.workload_spec import ReplaySpec, SourceSpec, TraceSpec, WorkloadEntry
from windtunnel.workload.arrivals import curve_of
from windtunnel.workload.sessions import MOST_TURNS
from windtunnel.workload.traces.lines import unpacked_name

BUILT_IN_PRIORITIES = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
"""The classes of service that every scenario has; higher goes first, below 0 may be shed."""

PARTNERS = {"rate": "cv", "cv": "rate", "shape": "scale", "scale": "shape"}


def workload_faults(spec: Scenario) -> Iterator[Fault]:
    yield from _name_faults(spec.workload)
    for index, entry in enumerate(spec.workload):
        path = ("workload", index)
        if entry.slo is not None:
            yield from _class_faults((*path, "slo"), entry.slo, spec)
        if isinstance(entry, SourceSpec):
            yield from _source_faults(path, entry, spec)
        elif entry.trace.think is not None:
            yield from _think_faults((*path, "trace"), entry.trace)


def _name_faults(entries: Sequence[WorkloadEntry]) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        name = entry.name
        if name is None:
            assert isinstance(entry, ReplaySpec)
            name = unpacked_name(Path(entry.trace.path)).stem
        if name in first:
            what = f"{name!r} is already the name of {dotted(('workload', first[name]))}"
            hint = "give it a name" if entry.name is None else None
            yield Fault(("workload", index, "name"), what, hint=hint)
        first.setdefault(name, index)


def _think_faults(path: KeyPath, trace: TraceSpec) -> Iterator[Fault]:
    if trace.sessions == "open":
        what = "turns come at the trace's times, and nobody thinks"
        because = _beside(path, "sessions")
        yield Fault((*path, "think"), what, hint="add sessions: closed", because_of=because)
    if trace.think is not None:
        yield from _pause_faults((*path, "think"), trace.think)


def _class_faults(path: KeyPath, name: str, spec: Scenario) -> Iterator[Fault]:
    known = [*BUILT_IN_PRIORITIES, *(one for one in spec.slo if one not in BUILT_IN_PRIORITIES)]
    if name not in known:
        what = f"{name!r} is not a class of service"
        yield Fault(path, what, ", ".join(known), nearest(name, known))


def _source_faults(path: KeyPath, source: SourceSpec, spec: Scenario) -> Iterator[Fault]:
    wrong = [
        *_arrival_faults((*path, "arrivals"), source),
        *_curve_faults((*path, "rate_curve"), source),
    ]
    yield from wrong
    if not wrong:
        yield from _end_faults(path, source, spec)
    yield from _population_faults(path, source)
    for key, lengths in (
        ("prompt_tokens", source.prompt_tokens),
        ("output_tokens", source.output_tokens),
    ):
        yield from _length_faults((*path, key), lengths)
    for key, extra in (("media", source.media), ("reasoning", source.reasoning)):
        if extra is not None:
            yield from _length_faults((*path, key, "tokens"), extra.tokens)
    if source.session is not None:
        yield from _length_faults((*path, "session", "turns"), source.session.turns)
        yield from _turn_faults((*path, "session", "turns"), source.session.turns)
        yield from _pause_faults((*path, "session", "think"), source.session.think)


def _arrival_faults(path: KeyPath, source: SourceSpec) -> Iterator[Fault]:
    arrivals = source.arrivals
    if isinstance(arrivals, ClosedArrivals):
        yield from _pause_faults((*path, "think"), arrivals.think)
    if not isinstance(arrivals, ShapedArrivals):
        return
    keys = ("rate", "cv", "shape", "scale")
    given = [key for key in keys if getattr(arrivals, key) is not None]
    beside = _beside(path, "process", *keys)
    if given not in (["rate", "cv"], ["shape", "scale"]):
        missing = PARTNERS[given[0]] if len(given) == 1 else "rate"
        what = f"missing, but {given[0]} is given" if len(given) == 1 else "missing"
        if len(given) > 1:
            missing, what = given[-1], f"{' and '.join(given)} are given"
        allowed = "rate and cv, or shape and scale"
        yield Fault((*path, missing), what, allowed, because_of=beside)
        return
    rate = arrivals_plan(arrivals).rate_per_s
    if not parse_rate(SLOWEST_RATE) <= rate <= parse_rate(FASTEST_RATE):
        what = f"shape and scale come to {rate:.3g} requests per second"
        yield Fault(path, what, f"{SLOWEST_RATE} to {FASTEST_RATE}", because_of=beside)


def _curve_faults(path: KeyPath, source: SourceSpec) -> Iterator[Fault]:
    curve = source.rate_curve
    if curve is None:
        return
    if isinstance(source.arrivals, ClosedArrivals):
        what = "users in a closed loop have no rate that it could change"
        because = ((*path[:-1], "arrivals", "process"),)
        yield Fault(path, what, hint="leave it out, or use an open process", because_of=because)
    if isinstance(curve, CurveSpec):
        names = tuple(CurveSpec.model_fields)
        given = [name for name in names if getattr(curve, name) is not None]
        if len(given) != 1:
            what = f"{' and '.join(given)} are given" if given else "no curve is given"
            yield Fault(path, what, f"one of {', '.join(names)}", because_of=_beside(path, *names))


def _end_faults(path: KeyPath, source: SourceSpec, spec: Scenario) -> Iterator[Fault]:
    """Traffic must end, and must be able to come to its count."""
    curve = curve_of(curve_plan(source.rate_curve)) if source.rate_curve is not None else None
    total = curve.total() if curve is not None else float("inf")
    if source.count is None:
        if spec.duration is None and total == float("inf"):
            what = (
                "missing, and the scenario has no duration either, so that traffic would never end"
            )
            hint = "give one of the two"
            yield Fault((*path, "count"), what, hint=hint, because_of=(("duration",),))
        return
    because = _beside(path, "arrivals", "rate_curve")
    if isinstance(source.arrivals, ClosedArrivals):
        think_s = pauses_plan(source.arrivals.think).mean_s
        lasts_s = source.count / source.arrivals.users * think_s
    else:
        even_s = source.count / arrivals_plan(source.arrivals).rate_per_s
        if even_s > total:
            comes = int(total * arrivals_plan(source.arrivals).rate_per_s)
            what = f"the rate falls to 0 after about {comes} requests, so {source.count} never come"
            hint = "leave it out: traffic ends by itself"
            yield Fault((*path, "count"), what, hint=hint, because_of=because)
            return
        lasts_s = curve.time_of(even_s) if curve is not None else even_s
    if spec.duration is None and lasts_s > LONGEST_TRAFFIC_S:
        what = f"{source.count} requests at this rate take {format_duration(lasts_s)}"
        allowed = f"up to {format_duration(LONGEST_TRAFFIC_S)}, or a duration that ends the run"
        yield Fault((*path, "count"), what, allowed, because_of=because)


def _population_faults(path: KeyPath, source: SourceSpec) -> Iterator[Fault]:
    population, prefix = source.population, source.prefix
    here = (*path, "population")
    if population is None:
        return
    if population.tenants == population.prefixes == "shared":
        what = "its members have nothing of their own, so that it changes nothing"
        hint = "set tenants or prefixes to per-member, or leave it out"
        yield Fault(here, what, hint=hint, because_of=_beside(here, "tenants", "prefixes"))
    if population.prefixes == "shared":
        return
    if prefix is None:
        what = "'per-member', but the source has no prefix"
        hint = "prefix: {tokens: 600} would give each member 600 tokens"
        yield Fault((*here, "prefixes"), what, hint=hint, because_of=((*path, "prefix"),))
    elif "groups" in prefix.model_fields_set:
        what = "every member of the population has a prefix of its own, so there are no groups"
        because = ((*here, "prefixes"),)
        yield Fault((*path, "prefix", "groups"), what, hint="leave it out", because_of=because)


def _length_faults(path: KeyPath, lengths: lengths_spec.Lengths) -> Iterator[Fault]:
    if isinstance(lengths, EmpiricalLengths) and (lengths.path is None) == (lengths.values is None):
        what = "missing, and so are values" if lengths.path is None else "both path and values"
        because = _beside(path, "values", "distribution")
        yield Fault((*path, "path"), what, "either path or values", because_of=because)
    if not isinstance(lengths, UniformLengths | BoundedLengths):
        return
    if lengths.min > lengths.max:
        what = f"{lengths.min} is more than max, which is {lengths.max}"
        yield Fault((*path, "min"), what, because_of=_beside(path, "max"))
    elif isinstance(lengths, BoundedLengths) and not lengths.min <= lengths.mean <= lengths.max:
        what = f"{lengths.mean:g} is not between min and max"
        allowed = f"a number from {lengths.min} to {lengths.max}"
        because = _beside(path, "mean", "min", "max")
        yield Fault((*path, "mean"), what, allowed, because_of=because)
    if isinstance(lengths, NormalLengths) and (lengths.stddev is None) == (lengths.cv is None):
        found = (
            "both stddev and cv are given" if lengths.cv is not None else "missing, and so is cv"
        )
        because = _beside(path, "cv", "distribution")
        yield Fault((*path, "stddev"), found, "either stddev or cv", because_of=because)
    if isinstance(lengths, ParetoLognormalLengths) and lengths.tail.start >= lengths.max:
        what = f"{lengths.tail.start:g} is not below max, so that all of the tail would be max"
        because = _beside(path, "max")
        yield Fault((*path, "tail", "start"), what, f"below {lengths.max}", because_of=because)


def _turn_faults(path: KeyPath, turns: lengths_spec.Lengths) -> Iterator[Fault]:
    """A conversation has only so many turns; what is merely left open is bounded by itself."""
    allowed = f"up to {MOST_TURNS}"
    if isinstance(turns, ConstantLengths) and turns.value > MOST_TURNS:
        yield Fault(path, f"{turns.value} are too many", allowed)
    elif isinstance(turns, UniformLengths) and turns.max > MOST_TURNS:
        yield Fault((*path, "max"), f"{turns.max} is too large", allowed)
    elif isinstance(turns, BoundedLengths):
        for key in ("mean", "min", "max"):
            if key in turns.model_fields_set and getattr(turns, key) > MOST_TURNS:
                yield Fault((*path, key), f"{getattr(turns, key):g} is too large", allowed)


def _pause_faults(path: KeyPath, pauses: Pauses) -> Iterator[Fault]:
    if not isinstance(pauses, UniformPause | BoundedPause):
        return
    if pauses.min > pauses.max:
        low, high = format_duration(pauses.min), format_duration(pauses.max)
        what = f"{low} is more than max, which is {high}"
        yield Fault((*path, "min"), what, because_of=_beside(path, "max"))
    elif isinstance(pauses, BoundedPause) and not pauses.min <= pauses.mean <= pauses.max:
        what = f"{format_duration(pauses.mean)} is not between min and max"
        because = _beside(path, "mean", "min", "max")
        yield Fault((*path, "mean"), what, because_of=because)


def _beside(path: KeyPath, *keys: str) -> tuple[KeyPath, ...]:
    return tuple((*path, key) for key in keys)

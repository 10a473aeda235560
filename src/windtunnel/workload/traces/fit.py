"""Fits synthetic traffic to a trace: a `workload:` section, and how close its requests come."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.histogram import GROWTH, Histogram
from windtunnel.core.random import Streams
from windtunnel.workload.arrivals import weibull_shape
from windtunnel.workload.plan import Arrivals, Prefix, Source
from windtunnel.workload.traces.lengths import LARGEST_CV, fit_lengths, rounded
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traces.summary import Distinct, Moments, TraceSummary
from windtunnel.workload.traffic import Traffic

FEWEST_TO_FIT = 20
MOST_DRAWN = 100_000
"""Requests that are generated to see how close a fit is."""
MOST_LENGTHS = 100_000
"""Different token counts that are kept exactly; beyond it they are kept to three digits."""
FASTEST_PER_S = 1e6
SMALLEST_CV = 0.01
POISSON_WITHIN = 0.05
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class LengthCounts:
    """How often each token count came."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._digits = 0

    def add(self, tokens: int) -> None:
        if self._digits:
            tokens = int(float(f"{tokens:.{self._digits}g}"))
        self.counts[tokens] = self.counts.get(tokens, 0) + 1
        if len(self.counts) > MOST_LENGTHS:
            self._digits = 3
            kept, self.counts = self.counts, {}
            for old, times in kept.items():
                short = int(float(f"{old:.3g}"))
                self.counts[short] = self.counts.get(short, 0) + times


class Observed:
    """What a fit needs to know of a trace; takes its requests in order."""

    def __init__(self) -> None:
        self.summary = TraceSummary()
        self.prompt, self.output = LengthCounts(), LengthCounts()
        self.gaps = Histogram()
        self._groups = Distinct()
        self._system_prompt: int | None = None
        self._plain = True

    def add(self, request: TraceRequest) -> None:
        if self.summary.requests:
            self.gaps.add(request.arrived_s - self.summary.end_s, 1)
        self.summary.add(request)
        self.prompt.add(request.prompt_tokens)
        self.output.add(request.output_tokens)
        ends = request.prefix_ends
        if len(ends) != 1 or self._system_prompt not in (None, ends[0]):
            self._plain = False
        elif ends[0] < request.prompt_tokens:
            self._system_prompt = ends[0]
            self._groups.add(str(request.prefix_keys[0]))
        else:
            self._plain = False

    def prefix(self) -> Prefix | None:
        """System prompts of one length that all requests start with; None for any other sharing."""
        if not self._plain or self._system_prompt is None or self._groups.full:
            return None
        return Prefix(self._system_prompt, self._groups.count)


class TrafficFit(msgspec.Struct, frozen=True):
    """Traffic that is like a trace, and how like."""

    source: Source
    figures: dict[str, Any]

    def section(self) -> str:
        """The `workload:` section of a scenario."""
        source = self.source
        lines = [f"  - name: {source.name}"]
        lines.append(f"    count: {source.count}")
        arrivals = {"process": source.arrivals.process, "rate": f"{source.arrivals.rate_per_s}/s"}
        if source.arrivals.process in ("gamma", "weibull"):
            arrivals["cv"] = f"{source.arrivals.cv}"
        lines.append(f"    arrivals: {_flow(arrivals)}")
        for name, lengths in (("prompt_tokens", source.prompt), ("output_tokens", source.output)):
            lines.append(f"    {name}: {_lengths(lengths)}")
        if source.prefix is not None:
            prefix = {"tokens": source.prefix.tokens, "groups": source.prefix.groups}
            lines.append(f"    prefix: {_flow(prefix)}")
        return "\n".join(["workload:", *lines, ""])


def _flow(fields: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"


def _lengths(lengths: Any) -> str:
    kind, bounds = lengths.distribution, {"min": lengths.low, "max": lengths.high}
    if kind == "constant":
        return str(lengths.low)
    fields: dict[str, object] = {"distribution": kind}
    if kind != "uniform":
        fields["mean"] = lengths.mean
    if kind in ("normal", "lognormal"):
        fields["cv"] = lengths.cv
    return _flow(fields | bounds)


def fit_trace(requests: Iterable[TraceRequest], name: str, *, seed: int = 0) -> TrafficFit:
    """Fits one source to the requests of a trace."""
    observed = Observed()
    for request in requests:
        observed.add(request)
    summary = observed.summary
    if summary.requests < FEWEST_TO_FIT or summary.rate_per_s is None:
        what = f"{summary.requests} requests over {summary.span_s:g} s are too few to fit"
        raise InputError(what, allowed=f"{FEWEST_TO_FIT} or more, not all at the same time")
    if summary.rate_per_s > FASTEST_PER_S:
        what = f"{summary.rate_per_s:.3g} requests per second are too many to fit"
        raise InputError(what, allowed=f"up to {FASTEST_PER_S:.0f}, the most of a scenario")
    prefix = observed.prefix()
    shared = prefix.tokens if prefix else 0
    prompts = {tokens - shared: times for tokens, times in observed.prompt.counts.items()}
    prompt, output = fit_lengths(prompts), fit_lengths(observed.output.counts)
    arrivals, gap_ks = fit_arrivals(observed.gaps, summary.gaps)
    source = Source(
        name=_valid_name(name),
        tenant="default",
        slo="standard",
        priority=0,
        count=summary.requests,
        arrivals=arrivals,
        prompt=prompt.lengths,
        output=output.lengths,
        prefix=prefix,
    )
    drawn = Observed()
    for request in generated(source, seed):
        drawn.add(request)
    ks = {"prompt_tokens": prompt.ks, "output_tokens": output.ks, "gaps": gap_ks}
    return TrafficFit(source, _closeness(observed, drawn, ks, prefix))


def _valid_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:64] or "trace"


def fit_arrivals(gaps: Histogram, moments: Moments) -> tuple[Arrivals, float]:
    """The process with the mean and variation of the gaps that is closest, and its distance."""
    rate, cv = rounded(1.0 / moments.mean_x), moments.cv() or 0.0
    if cv < SMALLEST_CV:
        return Arrivals("constant", rate, 0.0), 0.0
    cv = rounded(min(cv, LARGEST_CV))
    near_poisson = abs(cv - 1.0) <= POISSON_WITHIN
    processes = ("poisson",) if near_poisson else ("gamma", "weibull")
    fits = [Arrivals(process, rate, 1.0 if near_poisson else cv) for process in processes]
    judged = [(_gap_ks(gaps, fit), at) for at, fit in enumerate(fits)]
    ks, best = min(judged)
    return fits[best], ks


def _gap_ks(gaps: Histogram, arrivals: Arrivals) -> float:
    import numpy as np
    from scipy.special import gammainc

    buckets = sorted(gaps.buckets)
    edges = np.exp((np.array(buckets) + 1.0) * math.log(GROWTH))
    upto = (gaps.zeros + np.cumsum([gaps.buckets[at] for at in buckets])) / gaps.count
    mean_s = 1.0 / arrivals.rate_per_s
    if arrivals.process == "weibull":
        shape = weibull_shape(arrivals.cv)
        model = -np.expm1(-((edges / (mean_s / math.gamma(1 + 1 / shape))) ** shape))
    else:
        shape = 1.0 / arrivals.cv**2
        model = gammainc(shape, edges * shape / mean_s)
    return float(max(np.abs(upto - model).max(), gaps.zeros / gaps.count))


def generated(source: Source, seed: int) -> Iterator[TraceRequest]:
    """Requests as a simulation would draw them, up to a limit."""
    traffic = Traffic((source,), Streams(seed), math.inf)
    for _ in range(min(source.count or MOST_DRAWN, MOST_DRAWN)):
        request = traffic.take()
        yield TraceRequest(request.arrived_s, request.prompt_tokens, request.output_tokens)


def _closeness(
    observed: Observed, drawn: Observed, ks: dict[str, float], prefix: Prefix | None
) -> dict[str, Any]:
    """The trace beside what was generated, figure by figure."""
    there, here = observed.summary.figures(), drawn.summary.figures()
    lengths = {}
    for name, wanted, found in (
        ("prompt_tokens", observed.prompt, drawn.prompt),
        ("output_tokens", observed.output, drawn.output),
    ):
        figures = {key: _beside(there[name][key], here[name][key]) for key in ("mean", *SHARES)}
        generated_ks = _two_sample_ks(wanted.counts, found.counts)
        lengths[name] = {"ks": ks[name], "generated_ks": generated_ks, **figures}
    prefix_figures = there["prefix"]
    return {
        "requests": there["requests"],
        "generated": here["requests"],
        "rate_per_s": _beside(there["rate_per_s"], here["rate_per_s"]),
        "gap_cv": _beside(there["gap_cv"], here["gap_cv"]),
        "gap_ks": ks["gaps"],
        "dispersion_by_minute": _beside(
            there["by_minute"]["dispersion"], here["by_minute"]["dispersion"]
        ),
        **lengths,
        "left_out": [
            *(["length_correlation"] if abs(there["length_correlation"] or 0) >= 0.2 else []),
            *(["prefix"] if prefix_figures["segments"] and prefix is None else []),
            *(["session"] if there["sessions"] else []),
            *(["slo"] if there["slos"] else []),
            *(["tenant"] if there["tenants"] else []),
        ],
    }


def _beside(trace: float | None, fitted: float | None) -> dict[str, float | None]:
    error = fitted / trace - 1.0 if trace and fitted is not None else None
    return {"trace": trace, "fitted": fitted, "error": error}


def _two_sample_ks(first: Mapping[int, int], second: Mapping[int, int]) -> float:
    totals = sum(first.values()), sum(second.values())
    most, upto = 0.0, [0, 0]
    for value in sorted({*first, *second}):
        upto[0] += first.get(value, 0)
        upto[1] += second.get(value, 0)
        most = max(most, abs(upto[0] / totals[0] - upto[1] / totals[1]))
    return most

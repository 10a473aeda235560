"""Fits synthetic traffic to a trace: a `workload:` section, and how well it matches the trace."""

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.random import Streams
from windtunnel.workload.settings.sources import PrefixSettings, SourceSettings
from windtunnel.workload.traces.fitting.lengths import AUTO, fit_lengths
from windtunnel.workload.traces.fitting.rates import (
    dispersion,
    fit_arrivals,
    rate_steps,
    spread_out,
    step_of,
)
from windtunnel.workload.traces.fitting.section import section_of
from windtunnel.workload.traces.record import TraceRequest
from windtunnel.workload.traces.summary import Distinct, TraceSummary
from windtunnel.workload.traffic import Traffic

FEWEST_TO_FIT = 20
MOST_DRAWN = 100_000
"""Requests that are generated to measure how close a fit is."""
MOST_LENGTHS = 100_000
"""Distinct token counts that are kept exactly; beyond that, they are rounded to three digits."""
MOST_TIMES = 50_000_000
FASTEST_PER_S = 1e6
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class LengthCounts:
    """How often each token count occurred."""

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
    """The statistics of a trace that a fit needs; takes its requests in order."""

    def __init__(self) -> None:
        self.summary = TraceSummary()
        self.prompt, self.output = LengthCounts(), LengthCounts()
        self._times = array("d")
        self._groups = Distinct()
        self._system_prompt: int | None = None
        self._plain = True

    def add(self, request: TraceRequest) -> None:
        if len(self._times) == MOST_TIMES:
            hint = "fit a part of it, as `windtunnel trace convert --end` cuts one out"
            raise InputError(f"more than {MOST_TIMES} requests are too many to fit", hint=hint)
        self._times.append(request.arrived_s)
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

    def times(self) -> Any:
        """The arrival times, counted from the first."""
        import numpy as np

        times = np.array(self._times)
        return times - times[0]

    def prefix(self) -> PrefixSettings | None:
        """The system prompts, if all requests start with one of the same length; else None."""
        if not self._plain or self._system_prompt is None or self._groups.full:
            return None
        return PrefixSettings(tokens=self._system_prompt, groups=self._groups.count)


class TrafficFit(msgspec.Struct, frozen=True):
    """Traffic fitted to a trace, and how close it is."""

    section: str
    """The `workload:` section of a scenario."""
    source: SourceSettings
    """The source as a scenario reads it from the section; the figures describe it."""
    figures: dict[str, Any]


def fit_trace(
    requests: Iterable[TraceRequest],
    name: str,
    *,
    seed: int = 0,
    curve: bool = False,
    window_s: float | None = None,
    lengths: str = AUTO,
) -> TrafficFit:
    """Fits one source to the requests of a trace.

    With `curve` its rate follows the trace's, window by window. `lengths` selects a formula, the
    lengths that were `seen`, or (`auto`) a formula if one fits closely.
    """
    import yaml

    observed = Observed()
    for request in requests:
        observed.add(request)
    _refuse(observed.summary)
    times = observed.times()
    step_s = step_of(times)
    if step_s is not None:
        times = spread_out(times, step_s, seed)
    steps = rate_steps(times, window_s) if curve else None
    even = steps.even(times) if steps is not None else times
    arrivals, gap_ks = fit_arrivals(_gaps(even), (len(times) - 1) / float(times[-1]))
    prefix = observed.prefix()
    shared = prefix.tokens if prefix else 0
    prompts = {tokens - shared: times for tokens, times in observed.prompt.counts.items()}
    prompt, output = (fit_lengths(one, lengths) for one in (prompts, observed.output.counts))
    section = section_of(
        _valid_name(name),
        observed.summary.requests,
        arrivals,
        {"prompt_tokens": prompt.lengths, "output_tokens": output.lengths},
        prefix,
        steps.curve() if steps is not None else None,
    )
    (written,) = yaml.safe_load(section)["workload"]
    source = SourceSettings.read(written)
    drawn = Observed()
    for request in generated(source, seed):
        drawn.add(request)
    ks = {"prompt_tokens": prompt.ks, "output_tokens": output.ks}
    figures = {
        "requests": observed.summary.requests,
        "generated": drawn.summary.requests,
        **_rates(times, drawn.times(), whole=steps is None),
        "gap_ks": gap_ks,
        "rounded_to_s": step_s,
        "window_s": steps.width_s if steps is not None else None,
        **_lengths(observed, drawn, ks),
        "left_out": _left_out(observed, prefix),
    }
    return TrafficFit(section, source, figures)


def _refuse(summary: TraceSummary) -> None:
    if summary.requests < FEWEST_TO_FIT or summary.rate_per_s is None:
        what = f"{summary.requests} requests over {summary.span_s:g} s are too few to fit"
        raise InputError(what, allowed=f"{FEWEST_TO_FIT} or more, not all at the same time")
    if summary.rate_per_s > FASTEST_PER_S:
        what = f"{summary.rate_per_s:.3g} requests per second are too many to fit"
        raise InputError(what, allowed=f"up to {FASTEST_PER_S:.0f}, the most of a scenario")


def _gaps(times: Any) -> Any:
    import numpy as np

    return np.diff(times)


def _valid_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:64] or "trace"


def generated(source: SourceSettings, seed: int) -> Iterator[TraceRequest]:
    """Requests as a simulation would generate them, up to MOST_DRAWN."""
    traffic = Traffic((source,), Streams(seed), math.inf)
    for _ in range(min(source.count or MOST_DRAWN, MOST_DRAWN)):
        request = traffic.take()
        yield TraceRequest(request.arrived_s, request.prompt_tokens, request.output_tokens)


def _rates(trace: Any, fitted: Any, *, whole: bool) -> dict[str, Any]:
    """Arrival figures of the trace and of the generated requests.

    Unless `whole`, the trace is first cut to the number of requests that were generated.
    """
    if not whole:
        trace = trace[: len(fitted)]
    there, here = _paces(trace), _paces(fitted)
    return {key: _beside(there[key], here[key]) for key in there}


def _paces(times: Any) -> dict[str, float | None]:
    gaps = _gaps(times)
    return {
        "rate_per_s": len(gaps) / float(times[-1]),
        "gap_cv": float(gaps.std() / gaps.mean()),
        "dispersion_by_minute": dispersion(times, 60.0),
    }


def _lengths(observed: Observed, drawn: Observed, ks: dict[str, float]) -> dict[str, Any]:
    there, here = observed.summary.figures(), drawn.summary.figures()
    lengths = {}
    for name, wanted, found in (
        ("prompt_tokens", observed.prompt, drawn.prompt),
        ("output_tokens", observed.output, drawn.output),
    ):
        figures = {key: _beside(there[name][key], here[name][key]) for key in ("mean", *SHARES)}
        generated_ks = _two_sample_ks(wanted.counts, found.counts)
        lengths[name] = {"ks": ks[name], "generated_ks": generated_ks, **figures}
    return lengths


def _left_out(observed: Observed, prefix: PrefixSettings | None) -> list[str]:
    """The properties of a trace that the section does not express."""
    there = observed.summary.figures()
    return [
        *(["length_correlation"] if abs(there["length_correlation"] or 0) >= 0.2 else []),
        *(["prefix"] if there["prefix"]["segments"] and prefix is None else []),
        *(["session"] if there["sessions"] else []),
        *(["slo"] if there["slos"] else []),
        *(["tenant"] if there["tenants"] else []),
        *(["adapter"] if there["adapters"] else []),
    ]


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

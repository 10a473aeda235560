"""Writes a source as the `workload:` section of a scenario."""

from collections.abc import Iterable, Mapping
from textwrap import fill

from windtunnel.workload.distributions import Arrivals, Curve, Lengths
from windtunnel.workload.settings.sources import PrefixSettings

WIDEST = 100


def section_of(
    name: str,
    count: int,
    arrivals: Arrivals,
    lengths: Mapping[str, Lengths],
    prefix: PrefixSettings | None = None,
    curve: Curve | None = None,
) -> str:
    """The section of one source; `lengths` has its distributions by key."""
    lines = [f"  - name: {name}", f"    count: {count}"]
    process = {"process": arrivals.process, "rate": f"{arrivals.rate_per_s}/s"}
    if arrivals.process in ("gamma", "weibull"):
        process["cv"] = f"{arrivals.cv}"
    lines.append(f"    arrivals: {_flow(process)}")
    if curve is not None:
        points = _pairs((f"{time_s:.10g}", factor) for time_s, factor in curve.points)
        lines.append(_wrapped(f"    rate_curve: {points}"))
    for key, drawn in lengths.items():
        lines.append(_wrapped(f"    {key}: {_lengths(drawn)}"))
    if prefix is not None:
        shared = {"tokens": prefix.tokens, "groups": prefix.groups}
        lines.append(f"    prefix: {_flow(shared)}")
    return "\n".join(["workload:", *lines, ""])


def _flow(fields: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"


def _pairs(pairs: Iterable[tuple[object, object]]) -> str:
    return "[" + ", ".join(f"[{first}, {second}]" for first, second in pairs) + "]"


def _wrapped(line: str) -> str:
    """Wraps a long line between values."""
    return fill(line, WIDEST, subsequent_indent="      ", break_long_words=False,
                break_on_hyphens=False, drop_whitespace=True)  # fmt: skip


def _lengths(lengths: Lengths) -> str:
    kind = lengths.distribution
    if kind == "constant":
        return str(lengths.low)
    fields: dict[str, object] = {"distribution": kind}
    if kind == "empirical":
        values = _pairs(zip(lengths.values, lengths.weights, strict=True))
        return _flow(fields | {"values": values})
    if kind != "uniform":
        fields["mean"] = lengths.mean
    if kind in ("normal", "lognormal"):
        fields["cv"] = lengths.cv
    return _flow(fields | {"min": lengths.low, "max": lengths.high})

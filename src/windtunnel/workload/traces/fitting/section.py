"""Writes a source as the `workload:` section that a scenario reads."""

from collections.abc import Iterable, Mapping
from textwrap import fill

from windtunnel.workload.distributions import Lengths
from windtunnel.workload.settings.sources import SourceSettings

WIDEST = 100


def section_of(source: SourceSettings) -> str:
    """The section of one source, of the kinds that a fit makes."""
    lines = [f"  - name: {source.name}"]
    lines.append(f"    count: {source.count}")
    drawn = source.arrivals.drawn()
    arrivals = {"process": drawn.process, "rate": f"{drawn.rate_per_s}/s"}
    if drawn.process in ("gamma", "weibull"):
        arrivals["cv"] = f"{drawn.cv}"
    lines.append(f"    arrivals: {_flow(arrivals)}")
    curve = source.curve
    if curve is not None:
        points = _pairs((f"{time_s:.10g}", factor) for time_s, factor in curve.points)
        lines.append(_wrapped(f"    rate_curve: {points}"))
    for name, lengths in source.lengths().items():
        lines.append(_wrapped(f"    {name}: {_lengths(lengths)}"))
    if source.prefix is not None:
        prefix = {"tokens": source.prefix.tokens, "groups": source.prefix.groups}
        lines.append(f"    prefix: {_flow(prefix)}")
    return "\n".join(["workload:", *lines, ""])


def _flow(fields: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"


def _pairs(pairs: Iterable[tuple[object, object]]) -> str:
    return "[" + ", ".join(f"[{first}, {second}]" for first, second in pairs) + "]"


def _wrapped(line: str) -> str:
    """A line that may be long, broken between values."""
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

"""The traffic that autoscalers compete on: synthetic shapes, and stretches of traces.

A shape is twenty minutes on a 70-billion model; a replica is four H100s, carries about 9 requests/s
within the SLO (first token in 2 s, then 60 ms per token) and takes 75 s to load. Levels, times and
lengths of a shape are drawn from its seed, so that another seed is another day and not only other
arrivals. Its peak hardly differs, except where its height is drawn, too. A trace is cut into
stretches; requests, lengths and times are the trace's own.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from windtunnel.core.random import Stream
from windtunnel.search.arena.arena import Case
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan

MINUTES: Final = 20
TRACES: Final = Path(__file__).parents[3] / "shared" / "data" / "traces"
STRETCH_MINUTES: Final = 18
"""Length of a trace's stretches: the first is for tuning, the second and third for evaluation."""

Points = list[tuple[float, float]]
"""Pairs of a minute and requests per second, joined by straight lines."""


class Traffic(NamedTuple):
    """A kind of traffic: a scenario for each seed or stretch."""

    name: str
    case: Callable[[int], Case]
    sudden: bool
    """Whether it rises faster than a replica starts."""
    recorded: bool = False
    """Whether its cases are stretches of a trace rather than seeds."""
    known_peak: bool = False
    """Whether all cases have nearly the same peak, so that those for tuning tell that of others."""


def _steady(draw: Stream) -> Points:
    return [(0.0, draw.between(20, 32))]


def _ramp(draw: Stream) -> Points:
    start, low, high = draw.between(1, 3), draw.between(6, 10), draw.between(38, 52)
    return [(start, low), (start + draw.between(10, 13), high), (MINUTES, high)]


def _monday_morning(draw: Stream) -> Points:
    start, night, day = draw.between(4, 6), draw.between(4, 7), draw.between(36, 46)
    full = start + draw.between(2.5, 4)
    lunch = full + draw.between(3, 4)
    return [(start, night), (full, day), (lunch, day), (lunch + 2, 0.7 * day), (lunch + 4, day)]


def _flash_crowd(draw: Stream) -> Points:
    base, start = draw.between(9, 13), draw.between(6, 9)
    high = base * draw.between(3.3, 4.3)
    full = start + draw.between(0.3, 0.7)
    end = full + draw.between(4, 6)
    return [(start, base), (full, high), (end, high), (end + 2, base)]


def _diurnal(draw: Stream) -> Points:
    period, low, high = draw.between(6, 8), draw.between(6, 10), draw.between(34, 44)
    points: Points = []
    for number in range(int(MINUTES / period) + 1):
        start = number * period
        points += [(start, low), (start + 0.3 * period, high), (start + 0.6 * period, high)]
        points.append((start + 0.95 * period, low))
    return points


def _bursts(draw: Stream) -> Points:
    base = draw.between(11, 15)
    points: Points = [(0.0, base)]
    at = draw.between(1, 2)
    while at < MINUTES - 1:
        high, lasts = base * draw.between(1.8, 3.0), draw.between(0.3, 0.8)
        points += [(at, base), (at + 0.05, high), (at + lasts, high), (at + lasts + 0.05, base)]
        at += lasts + draw.between(1.0, 2.5)
    return points


def _model_launch(draw: Stream) -> Points:
    start, high = draw.between(2, 4), draw.between(32, 44)
    doubled = [(start + 0.9 * step, high * 2.0 ** (step - 5)) for step in range(6)]
    return [(start - 0.2, 0.05), *doubled, (MINUTES, 0.8 * high)]


def _failover(draw: Stream) -> Points:
    base, start = draw.between(16, 21), draw.between(6, 9)
    both, end = base * draw.between(1.8, 2.2), start + draw.between(5, 7)
    return [(start, base), (start + 0.05, both), (end, both), (end + 0.05, base)]


SHAPES: Final[dict[str, tuple[Callable[[Stream], Points], str, bool]]] = {
    # the curve, the arrival process, whether it is sudden
    "steady": (_steady, "poisson", False),
    "ramp": (_ramp, "poisson", False),
    "Monday morning": (_monday_morning, "poisson", False),
    "flash crowd": (_flash_crowd, "poisson", True),
    "diurnal with noise": (_diurnal, "gamma, cv: 3", False),
    "short bursts": (_bursts, "poisson", True),
    "model launch": (_model_launch, "poisson", True),
    "regional failover": (_failover, "poisson", True),
}

_SYNTHETIC: Final = """\
name: benchmark
seed: {seed}
duration: {minutes}m
model: llama-3.1-70b
workload:
  - name: chat
    slo: critical
    arrivals: {{process: {process}, rate: 1/s}}
    rate_curve: [{curve}]
    prompt_tokens: {{distribution: lognormal, mean: 800, cv: 0.8, min: 16, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: 250, cv: 0.7, min: 1, max: 2048}}
slo: {{critical: {{ttft: 2s, tpot: 60ms}}}}
serving:
  pools: [{{name: main, replicas: {replicas}, accelerator: h100, tensor_parallel: 4}}]
  router: {{policy: least-loaded}}
  startup: {{load: {{mean: 75s, stddev: 8s}}}}
"""
HEIGHTS: Final = (0.5, 2.0)
"""Range of a factor on all rates, drawn from the seed, so that no seed tells another's peak."""
OF_ANY_HEIGHT: Final = ("flash crowd", "diurnal with noise", "short bursts", "regional failover")
"""Shapes that also run with it: those where a pool of a fixed size does well once its peak is
known."""
ANY_HEIGHT: Final = ", any height"
CARRIED: Final = 8.0
"""Approximate requests per second of one replica, to choose the initial replicas of a run."""


def _shaped(name: str, seed: int, *, any_height: bool = False) -> Case:
    curve, process, _ = SHAPES[name]
    points = curve(Stream(seed, f"shape.{name}"))
    if any_height:
        low, high = HEIGHTS
        factor = low * (high / low) ** Stream(seed, f"height.{name}").uniform()
        points = [(minute, factor * rate) for minute, rate in points]
    written = ", ".join(f"[{60 * minute:.1f}s, {rate:.2f}]" for minute, rate in points)
    replicas = max(1, round(points[0][1] / (0.9 * CARRIED) + 0.4))
    text = _SYNTHETIC.format(
        seed=seed, minutes=MINUTES, process=process, curve=written, replicas=replicas
    )
    return partial(_loaded, text)


def _loaded(text: str, sets: Sequence[str]) -> ScenarioPlan:
    return load_text(text, "benchmark.yaml", sets)


_REPLAYED: Final = """\
name: benchmark
duration: {minutes}m
model: {model}
workload:
  - {{slo: critical, trace: {{path: {path}, start: {start}m}}}}
slo: {{critical: {{ttft: {ttft}, tpot: {tpot}}}}}
serving:
  pools: [{{name: main, replicas: {replicas}, {hardware}}}]
  router: {{policy: least-loaded}}
  startup: {{load: {{mean: 75s, stddev: 8s}}}}
"""


class Recording(NamedTuple):
    """A trace, and servers small enough that it needs several."""

    path: Path
    model: str = "llama-3.1-8b"
    hardware: str = "accelerator: l4, tensor_parallel: 1"
    replicas: int = 10
    ttft: str = "4s"
    tpot: str = "120ms"


RECORDINGS: Final = {
    "Azure conversation": Recording(TRACES / "azure_2023_conv.csv"),
    "Azure code": Recording(TRACES / "azure_2023_code.csv"),
    "Mooncake": Recording(
        TRACES / "mooncake_conversation.jsonl",
        "llama-3.1-70b",
        "accelerator: h100, tensor_parallel: 4",
        14,
        ttft="10s",
        tpot="100ms",
    ),
}


def _replayed(recording: Recording, stretch: int) -> Case:
    text = _REPLAYED.format(
        minutes=STRETCH_MINUTES, start=stretch * STRETCH_MINUTES, **recording._asdict()
    )
    return partial(_loaded, text)


def traffic_of(wanted: Sequence[str]) -> list[Traffic]:
    """All kinds of traffic, or the named ones; a path is a user's own trace."""
    found = [
        Traffic(name, partial(_shaped, name), sudden, known_peak=True)
        for name, (_, _, sudden) in SHAPES.items()
    ]
    for name in OF_ANY_HEIGHT:
        case = partial(_shaped, name, any_height=True)
        found.append(Traffic(name + ANY_HEIGHT, case, SHAPES[name][2]))
    for name, recording in RECORDINGS.items():
        if recording.path.is_file():
            sudden = name == "Azure code"
            found.append(Traffic(name, partial(_replayed, recording), sudden, recorded=True))
    if not wanted:
        return found
    kept = [one for one in found if one.name in wanted]
    for name in wanted:
        if name not in [one.name for one in found]:
            own = partial(_replayed, Recording(Path(name)))
            kept.append(Traffic(Path(name).stem, own, sudden=True, recorded=True))
    return kept

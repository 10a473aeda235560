"""The shapes of traffic: half an hour each on a 70-billion model, two to twelve replicas of it.

A replica is four H100s, carries about 8 requests/s of the usual lengths within the SLO (first
token in 2 s, then 60 ms a token) and takes 75 s to load.
"""

MINUTES = 30

SLO = "slo:\n  critical: {ttft: 2s, tpot: 60ms}\n"
USUAL = (
    "    prompt_tokens: {distribution: lognormal, mean: 800, cv: 0.8, min: 16, max: 8192}\n"
    "    output_tokens: {distribution: lognormal, mean: 250, cv: 0.7, min: 1, max: 2048}\n"
)
PROMPTS = (
    "    prompt_tokens: {distribution: lognormal, mean: 2500, cv: 0.6, min: 16, max: 8192}\n"
    "    output_tokens: {distribution: lognormal, mean: 80, cv: 0.7, min: 1, max: 2048}\n"
)
ANSWERS = (
    "    prompt_tokens: {distribution: lognormal, mean: 250, cv: 0.6, min: 16, max: 8192}\n"
    "    output_tokens: {distribution: lognormal, mean: 600, cv: 0.7, min: 1, max: 2048}\n"
)


def _source(name: str, rate: str, lengths: str, curve: str = "", process: str = "poisson") -> str:
    text = (
        f"  - name: {name}\n    slo: critical\n    arrivals: {{process: {process}, rate: {rate}}}\n"
    )
    if curve:
        text += f"    rate_curve: {curve}\n"
    return text + lengths


def _points(*points: tuple[float, float]) -> str:
    return "[" + ", ".join(f"[{minute * 60:g}s, {value:g}]" for minute, value in points) + "]"


def _bursts() -> str:
    """Bursts as real traces have them: now and then, of unequal height and length."""
    points = [(0.0, 1.0)]
    for start, height, length in (
        (3, 2.2, 1.5),
        (7, 3.0, 0.8),
        (9.5, 1.6, 3),
        (15, 3.4, 1.2),
        (19, 2.0, 0.6),
        (21, 2.6, 2.5),
        (27, 3.0, 1.0),
    ):
        points += [(start, 1.0), (start + 0.3, height), (start + length, height)]
        points += [(start + length + 0.3, 1.0)]
    return _points(*points, (MINUTES, 1.0))


def _waves(period: float, low: float, high: float) -> str:
    """Days of `period` minutes: up and down in straight lines, a plateau by day."""
    points: list[tuple[float, float]] = []
    start = 0.0
    while start < MINUTES:
        points += [(start, low), (start + 0.3 * period, high), (start + 0.6 * period, high)]
        start += period
        points.append((start - 0.05 * period, low))
    return _points(*points)


SHAPES: dict[str, tuple[str, int, str]] = {
    # name: (sources, replicas at the start, season of the traffic)
    "steady": (_source("chat", "30/s", USUAL), 4, "0s"),
    "spike": (
        _source(
            "chat",
            "15/s",
            USUAL,
            _points((0, 1), (8, 1), (9, 4.5), (15, 4.5), (17, 1), (MINUTES, 1)),
        ),
        3,
        "0s",
    ),
    "diurnal": (_source("chat", "1/s", USUAL, _waves(10, 10, 60)), 3, "10m"),
    "ramp": (
        _source("chat", "1/s", USUAL, _points((0, 10), (20, 75), (24, 75), (MINUTES, 20))),
        3,
        "0s",
    ),
    "prompts to answers": (
        _source("ask", "12/s", PROMPTS, _points((0, 1), (12, 1), (16, 0.1), (MINUTES, 0.1)))
        + _source("write", "20/s", ANSWERS, _points((0, 0.1), (12, 0.1), (16, 1), (MINUTES, 1))),
        6,
        "0s",
    ),
    "bursts": (_source("chat", "15/s", USUAL, _bursts()), 4, "0s"),
    "cold start": (
        _source("chat", "1/s", USUAL, _points((0, 0), (4, 0), (4.5, 35), (20, 35), (20.5, 0))),
        1,
        "0s",
    ),
    "noisy": (_source("chat", "30/s", USUAL, process="gamma, cv: 4"), 5, "0s"),
}


def scenario(shape: str, scaling: str, seed: int, floor: int) -> str:
    """A scenario of this shape, scaled as this section says; it starts with the floor at least."""
    sources, replicas, _ = SHAPES[shape]
    return (
        f"name: contest\nseed: {seed}\nduration: {MINUTES}m\nmodel: llama-3.1-70b\n"
        f"workload:\n{sources}{SLO}"
        "serving:\n  pools:\n    - name: main\n"
        f"      replicas: {max(replicas, floor)}\n"
        "      accelerator: h100\n      tensor_parallel: 4\n"
        "  router: {policy: least-loaded}\n"
        "  startup: {load: {mean: 75s, stddev: 8s}}\n"
        f"{scaling}"
    )

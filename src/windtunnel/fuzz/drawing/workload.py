"""Draws `workload:` and `slo:`: sources, arrivals, lengths, timeouts, and a replayed trace."""

import json
from typing import Any, NamedTuple

from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.settings.drawing import Dice, Values
from windtunnel.workload.settings.sources import BUILT_IN_PRIORITIES

MOST_ASKED = 120
"""Most requests of a source: enough for them to interact, few enough to run quickly."""

LASTS_S = "lasts_s"
"""Temporary key of a source while it is drawn: the duration of its traffic."""

TENANTS = ("default", "acme", "zen")
OWN_CLASSES = ("gold", "lead")

MOST_ROWS = 60
"""Most requests of a trace."""
COLUMNS = ("arrived", "prompt_tokens", "output_tokens", "session", "tenant", "deadline")


class TrafficDraw(NamedTuple):
    """The drawn sources and classes, and what other sections need to know about them."""

    sources: list[Values]
    classes: Values
    lasts_s: float
    """About, until the last request comes."""

    def priorities(self) -> set[int]:
        """The priorities of the requests that will arrive."""
        own = {name: slo["priority"] for name, slo in self.classes.items() if "priority" in slo}
        known = {**BUILT_IN_PRIORITIES, **own}
        return {known[source.get("slo", "standard")] for source in self.sources}

    def has_ttft(self) -> bool:
        """Whether any request has a TTFT target."""
        used = {source.get("slo", "standard") for source in self.sources}
        return any("ttft" in slo for name, slo in self.classes.items() if name in used)

    def tenants(self) -> list[str]:
        """Names of tenants that a budget may use."""
        names: dict[str, None] = {}
        for source in self.sources:
            tenant = source.get("tenant", "default")
            each = source.get("population", {}).get("tenants") == "per-member"
            names[f"{tenant}-0" if each else tenant] = None
        return list(names)

    def tokens(self) -> int:
        """Approximate tokens of a large request, to draw caches that barely hold one."""
        return max(_tokens(source) for source in self.sources)

    def answer_tokens_per_s(self) -> float:
        """Approximate demand for output tokens, to draw servers that barely keep up."""
        asked = 0
        for source in self.sources:
            asked += source.get("count", MOST_ASKED) * _mean(source["output_tokens"])
        return asked / self.lasts_s

    def asks(self, key: str) -> bool:
        return any(key in source for source in self.sources)


def draw_traffic(swarm: Swarm, duration_s: float | None) -> TrafficDraw:
    dice = swarm.dice("workload")
    classes = _classes(swarm.dice("slo"), swarm)
    count = dice.few(1, 3) if swarm.has("several-sources") else 1
    names = [*BUILT_IN_PRIORITIES, *(name for name in OWN_CLASSES if name in classes)]
    sources = []
    lasts_s = 1.0
    for number in range(count):
        source = _source(swarm.dice(f"workload.{number}"), swarm, duration_s, names)
        lasts_s = max(lasts_s, source.pop(LASTS_S))
        sources.append({"name": f"s{number}", **source})
    return TrafficDraw(sources, classes, lasts_s)


def _classes(dice: Dice, swarm: Swarm) -> Values:
    classes: Values = {}
    if swarm.has("own-classes"):
        for name in dice.some(OWN_CLASSES):
            classes[name] = {"priority": dice.whole(-6, 9)}
    if swarm.has("targets"):
        for name in dice.some([*BUILT_IN_PRIORITIES, *classes]):
            slo = classes.setdefault(name, {})
            for key in dice.some(("ttft", "tpot", "e2e")):
                slo[key] = dice.span(0.001, 5.0)
    return classes


def _source(dice: Dice, swarm: Swarm, duration_s: float | None, classes: list[str]) -> Values:
    source: Values = {
        "prompt_tokens": lengths(dice, 400),
        "output_tokens": lengths(dice, 90),
    }
    if swarm.has("tenants"):
        source["tenant"] = dice.pick(*TENANTS)
    if swarm.has("classes"):
        source["slo"] = dice.pick(*classes)
    source.update(_arrivals(dice, swarm, duration_s))
    if swarm.has("timeouts") and dice.chance(0.7):
        source["timeout"] = dice.span(0.02, 30.0)
    _contents(source, dice, swarm)
    _people(source, dice, swarm)
    return source


def _arrivals(dice: Dice, swarm: Swarm, duration_s: float | None) -> Values:
    count = dice.few(1, MOST_ASKED)
    counted = duration_s is None or dice.chance(0.5)
    if swarm.has("closed-loop") and dice.chance(0.6):
        users = dice.few(1, 8)
        think_s = dice.span(0.01, 8.0)
        if duration_s is not None:
            think_s = max(think_s, users * duration_s / MOST_ASKED)
        arrivals = {"process": "closed", "users": users, "think": pauses(dice, think_s)}
        lasts_s = duration_s or count * think_s / users
        return {"arrivals": arrivals, LASTS_S: lasts_s, **({"count": count} if counted else {})}
    rate = dice.span(0.5, 60.0)
    if duration_s is not None and not counted:
        rate = min(rate, MOST_ASKED / duration_s)
    lasts_s = duration_s or count / rate
    drawn: Values = {"arrivals": _process(dice, rate), LASTS_S: lasts_s}
    if swarm.has("curves") and dice.chance(0.7):
        drawn["rate_curve"], ends = _curve(dice, lasts_s)
        counted = counted and not ends
    if counted:
        drawn["count"] = count
    return drawn


def _process(dice: Dice, rate: float) -> Values:
    process = dice.pick("poisson", "constant", "gamma", "weibull")
    if process in ("poisson", "constant"):
        return {"process": process, "rate": f"{rate:.3g}/s"}
    if dice.chance(0.3):
        return {"process": process, "shape": dice.span(0.3, 8.0), "scale": 1.0 / rate}
    return {"process": process, "rate": rate, "cv": dice.span(0.1, 4.0)}


def _curve(dice: Dice, lasts_s: float) -> tuple[object, bool]:
    """A rate curve, and whether it ends the traffic."""
    at_s = dice.span(0.05, 1.0) * lasts_s
    kind = dice.pick("points", "recorded", "diurnal", "spike", "ramp_down", "end")
    if kind == "points":
        times = sorted(dice.span(0.01, 1.5) * lasts_s for _ in range(dice.few(1, 4)))
        points = [[time_s, dice.pick(0, 0.5, 1, 3)] for time_s in times]
        return [*points, [times[-1], dice.pick(0.5, 1, 2)]], False
    if kind == "recorded":  # as a curve that was fitted to a trace: many points, empty stretches
        step_s, count = dice.span(0.005, 0.1) * lasts_s, dice.few(2, 60)
        factors = [dice.pick(0, 0.2, 1, 1, 4) for _ in range(count)]
        points = [[step_s * number, factor] for number, factor in enumerate(factors)]
        return [*points, [step_s * count, 1]], False
    if kind == "diurnal":
        peak_s, period_s = dice.span(0.01, 1.0) * lasts_s, dice.span(0.2, 3.0) * lasts_s
        return {"diurnal": {"ratio": dice.span(1, 30), "peak": peak_s, "period": period_s}}, False
    if kind == "spike":
        spike = {"at": at_s, "duration": lasts_s * dice.span(0.05, 0.5)}
        return {"spike": {**spike, "factor": dice.pick(0, 0.2, 3, 8)}}, False
    ramp: Values = {"at": at_s, "over": lasts_s * dice.span(0.05, 1.0)}
    if kind == "ramp_down":
        ramp["to"] = dice.pick(0.1, 0.5)
    return {"ramp_down": ramp}, kind == "end"


def _contents(source: Values, dice: Dice, swarm: Swarm) -> None:
    """Draws the prefixes, media, reasoning and adapters of a source's requests."""
    if (swarm.has("prefixes") or swarm.has("offload")) and dice.chance(0.8):
        source["prefix"] = {"tokens": dice.few(1, 300)}
        if dice.chance(0.7):
            source["prefix"]["groups"] = dice.few(1, 12)
    for key in ("media", "reasoning"):
        if swarm.has(key) and dice.chance(0.7):
            source[key] = {"tokens": lengths(dice, 80)}
            if dice.chance(0.6):
                source[key]["share"] = dice.span(0.05, 1.0)
    if swarm.has("adapters") and dice.chance(0.8):
        source["adapters"] = (
            {"count": dice.few(1, 6), **({"skew": dice.span(0.1, 3)} if dice.chance(0.5) else {})}
            if dice.chance(0.6)
            else {"weights": {name: dice.span(0.1, 9) for name in dice.some(("sql", "law", "bio"))}}
        )


def _people(source: Values, dice: Dice, swarm: Swarm) -> None:
    """Draws the conversations and the population of a source."""
    if swarm.has("sessions") and dice.chance(0.8):
        if "count" in source:
            source["count"] = max(1, source["count"] // 3)
        source["session"] = {
            "turns": lengths(dice, 4),
            "think": pauses(dice, dice.span(0.001, 10.0)),
            "context": dice.pick("accumulate", "accumulate", "fresh"),
        }
    if swarm.has("population") and dice.chance(0.7):
        population: Values = {"members": dice.few(1, 6)}
        prefix = source.get("prefix")
        if prefix is not None and dice.chance(0.6):
            population["prefixes"] = "per-member"
            prefix.pop("groups", None)
        if prefix is None or "prefixes" not in population or dice.chance(0.5):
            population["tenants"] = "per-member"
        source["population"] = population


def _tokens(source: Values) -> int:
    """Approximate tokens of a request that is somewhat larger than the mean, extras included."""
    own = 2 * (_mean(source["prompt_tokens"]) + _mean(source["output_tokens"]))
    for key in ("media", "reasoning"):
        own += _mean(source[key]["tokens"]) if key in source else 0
    session = source.get("session", {"context": "fresh"})
    turns = _mean(session["turns"]) if session["context"] == "accumulate" else 1
    prefix: int = source.get("prefix", {"tokens": 0})["tokens"]
    return prefix + own * turns


def _mean(drawn: Any) -> int:
    if not isinstance(drawn, dict):
        return int(drawn)
    if "values" in drawn:
        return max(int(value) for value, _ in drawn["values"])
    return int(drawn["max"] if "min" in drawn else drawn.get("mean") or drawn["value"])


def lengths(dice: Dice, most: int) -> object:
    """Token counts or turns, rarely above `most` and never above twice that."""
    mean = dice.few(1, max(1, most // 2))
    kind = dice.pick("bare", "constant", "uniform", "normal", "lognormal", "tail", "seen", "exp")
    bounds = {"mean": mean, "max": max(2 * most, mean)}
    if kind == "bare":
        return mean
    if kind == "constant":
        return {"distribution": "constant", "value": mean}
    if kind == "uniform":
        return {"distribution": "uniform", "min": mean, "max": mean + dice.few(0, most)}
    if kind == "normal":
        spread = {"cv": dice.span(0.01, 2)} if dice.chance(0.5) else {"stddev": dice.span(0.1, 90)}
        return {"distribution": "normal", **bounds, **spread}
    if kind == "lognormal":
        return {"distribution": "lognormal", **bounds, "cv": dice.span(0.01, 3)}
    if kind == "tail":
        tail = {"share": dice.span(0.01, 0.9), "start": mean, "alpha": dice.span(0.3, 4)}
        return {"distribution": "pareto-lognormal", **bounds, "cv": dice.span(0.1, 2), "tail": tail}
    if kind == "seen":
        values = [[dice.few(1, most), dice.pick(1, 2, 0.1)] for _ in range(dice.few(1, 4))]
        return {"distribution": "empirical", "values": values}
    return {"distribution": "exponential", **bounds}


def pauses(dice: Dice, mean_s: float) -> object:
    """A distribution of think times."""
    kind = dice.pick("bare", "constant", "uniform", "exponential", "lognormal")
    if kind == "bare":
        return mean_s
    if kind == "constant":
        return {"distribution": "constant", "value": mean_s}
    if kind == "uniform":
        return {"distribution": "uniform", "min": 0.5 * mean_s, "max": 1.5 * mean_s}
    bounds: Values = {"mean": mean_s, "max": 10 * mean_s}
    if kind == "lognormal":
        bounds["cv"] = dice.span(0.1, 2)
    return {"distribution": kind, **bounds}


def draw_trace(
    swarm: Swarm, traffic: TrafficDraw, models: list[str], file: str
) -> tuple[Values, str] | None:
    """An entry of `workload:` and the text of its file; `models` are the served models."""
    if not swarm.has("traces"):
        return None
    dice = swarm.dice("traces")
    rows = _rows(dice, traffic)
    csv = dice.chance(0.5)
    path = f"{file}.csv" if csv else f"{file}.jsonl"
    trace: Values = {"path": path}
    if dice.chance(0.3):
        trace["speedup"] = dice.span(0.3, 5.0)
    if dice.chance(0.2):
        trace["start"] = dice.span(0.01, 0.5) * traffic.lasts_s
    if dice.chance(0.3):
        trace["sort"] = True
    if dice.chance(0.5):
        trace["sessions"] = "closed"
        if dice.chance(0.6):
            trace["think"] = dice.span(0.001, 5.0)
    entry: Values = {"name": "replayed", "trace": trace}
    if models:
        entry["model"] = dice.pick(*models)
    entry["slo"] = dice.pick(*sorted({one.get("slo", "standard") for one in traffic.sources}))
    if dice.chance(0.3):
        entry["count"] = dice.few(1, MOST_ROWS)
    if dice.chance(0.3):
        entry["timeout"] = dice.span(0.02, 30.0)
    return entry, _csv(rows) if csv else "".join(f"{json.dumps(row)}\n" for row in rows)


def _rows(dice: Dice, traffic: TrafficDraw) -> list[Values]:
    """Requests in bursts, some at the same time, some out of order; a few have no output."""
    count = dice.few(1, MOST_ROWS)
    gap_s = traffic.lasts_s / count
    talks = dice.few(1, 6) if dice.chance(0.6) else 0
    time_s = 0.0
    rows = []
    for number in range(count):
        time_s += gap_s * dice.pick(0.0, 0.0, 0.5, 1.0, 2.0)
        late_s = gap_s * dice.pick(0.0, 0.0, 0.0, 0.3)
        row: Values = {
            "arrived": round(max(0.0, time_s - late_s), 3),
            "prompt_tokens": dice.few(1, 400),
            "output_tokens": 0 if dice.chance(0.03) else dice.few(1, 90),
        }
        if talks:
            row["session"] = f"s{number % talks}"
        if dice.chance(0.1):
            row["deadline"] = dice.span(0.1, 20.0)
        rows.append(row)
    return rows


def _csv(rows: list[Values]) -> str:
    lines = [",".join(COLUMNS)]
    lines += [",".join(str(row.get(name, "")) for name in COLUMNS) for row in rows]
    return "\n".join(lines) + "\n"

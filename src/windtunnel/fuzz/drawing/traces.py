"""Draws a trace that is replayed beside the other sources: a file of requests, as text."""

import json

from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.fuzz.drawing.workload import TrafficDraw
from windtunnel.settings.drawing import Dice, Values

MOST_ROWS = 60
COLUMNS = ("arrived", "prompt_tokens", "output_tokens", "session", "tenant", "deadline")


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

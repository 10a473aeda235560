"""The first part of a report: verdict, figures, SLO attainment and trust; and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windtunnel.analysis.figures import (
    DOLLARS,
    LATENCIES,
    NOTHING,
    OUTCOMES,
    PER_S,
    TARGETS,
    TOKENS_PER_S,
    figure,
    has_target,
    share_text,
    text_of,
)
from windtunnel.analysis.saturation import NO_SERVER, Stretch
from windtunnel.analysis.trust import CAUTION, DOUBT, GOOD
from windtunnel.core.units import format_count, format_duration, format_rate
from windtunnel.report.page.axes import brief
from windtunnel.report.terminal.run_details import prefix_share
from windtunnel.report.terminal.trust import FIGURES, interval_rows, intervals_are

WELL_ATTAINED, FAIRLY_ATTAINED = 0.99, 0.9
LEAST_LINK = 0.01
"""A link that is full for a smaller share of the run is not mentioned."""


HEADLINES = {
    GOOD: "These figures can be trusted",
    CAUTION: "Take these figures with caution",
    DOUBT: "Doubt these figures",
}
MARKS = {GOOD: "\N{CHECK MARK}", CAUTION: "!", DOUBT: "\N{MULTIPLICATION SIGN}"}


class Tile(msgspec.Struct, frozen=True):
    """A large figure with a name and a note."""

    name: str
    figure: str
    note: str


class Attainment(msgspec.Struct, frozen=True):
    """An SLO class with its attainment, and how good that is."""

    name: str
    share: float | None
    requests: int
    targets: str
    state: str


def verdict(
    result: dict[str, Any], found: list[Stretch], link_full_s: float, cause: str, lost: str = ""
) -> list[str]:
    """Sentences about what happened, for people who read nothing else.

    `cause`: what cost the slowest requests most, and `lost`: what took most of those that were
    lost; empty if nothing did.
    """
    requests = result["requests"]
    arrived, completed = requests["arrived"], requests["completed"]
    early = [f"The run ended early: {result['partial']}."] if result.get("partial") else []
    if not arrived:
        return [*early, "No request arrived."]
    if not completed:
        first = f"None of the {arrived:,} requests that arrived was completed."
    elif completed == arrived:
        first = f"All {arrived:,} requests were completed."
    else:
        first = f"{completed:,} of {arrived:,} requests were completed."
    others = [f"{requests[key]:,} {name}" for key, name in OUTCOMES.items() if requests[key]]
    if not completed:
        first += f" Outcomes: {', '.join(others)}."
    elif completed != arrived:
        first += f" The rest: {', '.join(others[1:])}."
    missed = _missed(result)
    why = [f"{cause.rstrip('.')}."] if cause and (missed or found) else []
    taken = [f"{lost.rstrip('.')}."] if lost else []
    said = [*early, first, *taken, *missed, *why, _saturated(result, found, good=not missed)]
    share = link_full_s / result["simulated_seconds"] if result["simulated_seconds"] else 0.0
    if share >= LEAST_LINK:
        said.append(
            f"The link between servers was full for {format_duration(link_full_s)} ({share:.0%} of "
            "the run): transfers shared its bandwidth and waited for each other."
        )
    return said


def _missed(result: dict[str, Any]) -> list[str]:
    """The classes that missed their SLO in more than a hundredth of the requests that ended, and
    the targets that were missed."""
    said = []
    for name, slo in result["slo"].items():
        ended = slo["requests"] - slo["unfinished"]
        if slo["attained"] is None or not ended:
            continue
        scale = slo["requests"] / ended
        missed = 1.0 - slo["attained"] * scale
        targets = [
            f"{LATENCIES[key][0]} in {share_text(1.0 - share * scale)}"
            for key, share in slo["attained_by"].items()
            if share is not None and share * scale < WELL_ATTAINED
        ]
        if missed > 1.0 - WELL_ATTAINED:
            which = f": {', '.join(targets)}" if targets else ""
            which = which.removesuffix(f" in {share_text(missed)}") if len(targets) == 1 else which
            whose = f"{'ended ' * bool(slo['unfinished'])}requests of {name}"
            said.append(f"{share_text(missed)} of the {whose} missed their SLO{which}.")
    return said


def _saturated(result: dict[str, Any], found: list[Stretch], *, good: bool) -> str:
    if not found:
        return "The servers kept up throughout." if good else "No stretch of time was saturated."
    said = []
    none = [one for one in found if one.cause == NO_SERVER]
    if none:
        said.append(f"Requests waited for a server while none was ready {_when(result, none)}.")
    full = [one for one in found if one.cause != NO_SERVER]
    if full:
        causes = ", ".join(dict.fromkeys(stretch.cause for stretch in full))
        said.append(
            f"Servers were saturated {_when(result, full)}: {causes}. Waits in those stretches say "
            "how long the overload lasted more than how fast the servers are."
        )
    return " ".join(said)


def _when(result: dict[str, Any], found: list[Stretch]) -> str:
    total_s = sum(stretch.end_s - stretch.start_s for stretch in found)
    share = total_s / result["simulated_seconds"]
    first, last = format_duration(found[0].start_s), format_duration(found[-1].end_s)
    return f"for {format_duration(total_s)} ({share:.0%} of the run), between {first} and {last}"


def tiles(result: dict[str, Any]) -> list[Tile]:
    """The figures that people ask for first."""
    latency, speed = result["latency"], result["throughput"]
    requests, cost = result["requests"], result["cost"]
    share = requests["completed"] / requests["arrived"] if requests["arrived"] else None
    shown = [
        Tile(
            "completed", share_text(share), f"{requests['completed']:,} of {requests['arrived']:,}"
        ),
        *_attained(result),
        _latency("ttft", latency),
        _latency("tpot", latency),
        _latency("e2e", latency),
        Tile(
            "throughput",
            text_of(PER_S, speed["requests_per_s"]),
            f"{text_of(PER_S, speed['goodput_requests_per_s'])} within SLO",
        ),
        Tile(
            "output tokens",
            text_of(TOKENS_PER_S, speed["output_tokens_per_s"]),
            f"{format_count(result['tokens']['output'])} in all",
        ),
    ]
    spared = prefix_share(result)
    if spared:
        note = f"of {format_count(result['tokens']['prompt'])} prompt tokens"
        shown.append(Tile("prefix hits", share_text(spared), note))
    if cost["total"]:
        each = cost["per_million_output_tokens"]
        note = f"{text_of(DOLLARS, each)} per million output tokens" if each else "no output tokens"
        shown.append(Tile("cost", text_of(DOLLARS, cost["total"]), note))
    return shown


def _latency(key: str, latency: dict[str, dict[str, float | None]]) -> Tile:
    p50, p95, p99 = (latency[key][stat] for stat in ("p50", "p95", "p99"))
    name = figure(f"latency.{key}.p99").label
    if p50 is None or p95 is None or p99 is None:
        return Tile(name, NOTHING, "never seen")
    return Tile(name, brief(p99), f"p50 {brief(p50)}, p95 {brief(p95)}")


def _attained(result: dict[str, Any]) -> list[Tile]:
    """SLO attainment of all classes with targets together, and of the worst of them."""
    found = {name: one for name, one in result["slo"].items() if has_target(one)}
    requests = sum(one["requests"] for one in found.values())
    if not requests:
        return []
    share = sum(one["attained"] * one["requests"] for one in found.values()) / requests
    worst = min(found, key=lambda name: (found[name]["attained"], name))
    note = f"{share_text(found[worst]['attained'])} of {worst}" if len(found) > 1 else worst
    return [Tile("SLO attainment", share_text(share), note)]


def attainments(result: dict[str, Any], scenario: dict[str, Any]) -> list[Attainment]:
    """The attainment of every SLO class that requests had."""
    found = []
    for name, slo in result["slo"].items():
        share, plan = slo["attained"], scenario["slos"].get(name, {})
        targets = [
            f"{label} {format_duration(plan[f'{key}_s'])}"
            for key, label in TARGETS.items()
            if plan.get(f"{key}_s") is not None
        ]
        if not targets:
            share = None
        if share is None:
            state = "none"
        elif share >= WELL_ATTAINED:
            state = "good"
        else:
            state = "fair" if share >= FAIRLY_ATTAINED else "bad"
        found.append(
            Attainment(
                name,
                share,
                slo["requests"],
                ", ".join(targets) or "no target",
                state,
            )
        )
    return found


class TrustBox(msgspec.Struct, frozen=True):
    """The contents of the trust box: a headline, and findings as (severity, mark, sentence)."""

    verdict: str
    headline: str
    findings: list[tuple[str, str, str]]
    figures: tuple[str, ...]
    whose: str  # what the intervals cover
    may_repeat: bool  # other seeds would change figures, and none was tried
    intervals: list[tuple[str, list[str]]]  # a row for each latency; empty for a single run


def trust_box(result: Mapping[str, Any], scenario: Mapping[str, Any]) -> TrustBox:
    trust = result["trust"]
    findings = [(one["severity"], MARKS[one["severity"]], one["says"]) for one in trust["findings"]]
    return TrustBox(
        verdict=trust["verdict"],
        headline=HEADLINES[trust["verdict"]],
        findings=findings,
        figures=FIGURES[0],
        whose=intervals_are(trust),
        may_repeat=trust["repeats"] is None and scenario.get("by_chance", True),
        intervals=interval_rows(trust),
    )


def settings(
    scenario: dict[str, Any], result: dict[str, Any]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """All settings in effect, by part: (part, [(key, value)])."""
    scenario = {k: v for k, v in scenario.items() if k not in ("sha256", "by_chance")}
    plain = {k: v for k, v in scenario.items() if not isinstance(v, dict | list)}
    parts = [("run", _flat(plain))]
    entries = scenario["workload"]
    parts += [
        (f"source {entry['name'] or entry['trace']['path']}", _flat(entry)) for entry in entries
    ]
    used = [name for name in result["slo"] if name in scenario["slos"]]
    parts += [(f"class {name}", _flat(scenario["slos"][name])) for name in used]
    parts += [(f"pool {pool['name']}", _flat(pool)) for pool in scenario["serving"]["pools"]]
    rest = {
        k: v
        for k, v in scenario.items()
        if k not in ("workload", "slos", "serving") and k not in plain
    }
    rest["serving"] = {k: v for k, v in scenario["serving"].items() if k != "pools"}
    parts += [
        (key, _flat({key: value} if not isinstance(value, dict) else value))
        for key, value in rest.items()
    ]
    return [(title, pairs) for title, pairs in parts if pairs]


def _flat(value: Any, key: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [
            pair for name, item in value.items() for pair in _flat(item, f"{key}.{name}".strip("."))
        ]
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return [pair for n, item in enumerate(value) for pair in _flat(item, f"{key}[{n}]")]
    return [_setting(key, value)]


def _setting(key: str, value: Any) -> tuple[str, str]:
    """A setting as people write it; a unit in the key's suffix moves to the value."""
    if value is None:
        return key.removesuffix("_s"), NOTHING
    if isinstance(value, bool):
        return key, "yes" if value else "no"
    if isinstance(value, float | int):
        if key.endswith("_per_s"):
            return key.removesuffix("_per_s"), format_rate(value)
        if key.endswith("_s"):
            return key.removesuffix("_s"), format_duration(value)
        return key, f"{value:,}" if isinstance(value, int) and key != "seed" else f"{value:g}"
    if isinstance(value, list):
        return key, ", ".join(str(item) for item in value)
    return key, str(value)

"""`python -m benchmarks.autoscalers [NAME | TRACE]...`: the cost of attaining the SLO, by policy.

Every policy runs with its defaults, and with one setting tuned on a seed of a shape or on the first
stretch of a trace; all are evaluated on seeds and stretches not seen while they were built. Prints
a table and writes a page with a chart for each kind of traffic, and reports for ours whether

- it attains the goal,
- no other policy is cheaper at equal attainment, nor a fixed pool where tuning does not tell the
  peak, and
- its cost over that of perfect foresight at equal attainment is within a limit.
"""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.autoscalers.traffic import Traffic, traffic_of
from benchmarks.claim import Claim, report
from windtunnel.report.page.searches.arena import arena_page
from windtunnel.report.terminal.layout import screen
from windtunnel.report.terminal.progress import bar
from windtunnel.report.terminal.searches.arena import show_arena
from windtunnel.search.arena.arena import EQUAL, TUNED, Arena
from windtunnel.search.arena.contestants import CONTESTANTS, FIXED, OURS

TUNED_ON = {False: (1, 411), True: (0,)}
JUDGED_ON = {False: tuple(range(13001, 13007)), True: (1, 2)}
"""Seeds of shapes, or stretches of traces."""
GOAL = 0.95
MOST_REGRET = {False: 1.25, True: 1.6}
"""Largest cost over the optimum, by whether traffic rises faster than a replica starts."""
FOLDER = Path("build/benchmarks/autoscalers")


def contest(traffic: Traffic) -> dict[str, Any]:
    tune = [traffic.case(number) for number in TUNED_ON[traffic.recorded]]
    judge = [traffic.case(number) for number in JUDGED_ON[traffic.recorded]]
    with bar(traffic.name, sys.stderr) as update:
        arena = Arena(tune, judge, GOAL, lambda done, all_, what: update(done, all_, 0, what))
        return {**arena.contest(CONTESTANTS, None), "name": traffic.name}


def claims_of(traffic: Traffic, found: dict[str, Any]) -> list[Claim]:
    rows = {row["name"]: row for row in found["contestants"]}
    (ours,) = [one for one in rows[OURS]["judged"] if one["kind"] == TUNED]
    attained, cost = ours["attained"]["mean"], ours["cost"]["mean"]
    equal = [
        (one["cost"]["mean"], name, one["attained"]["mean"])
        for name, row in rows.items()
        if not (name.startswith(OURS) or (name == FIXED and traffic.known_peak))
        for one in row["judged"]
        if one["attained"]["mean"] >= attained - EQUAL
    ]
    cheapest = min(equal, default=(cost, "no other", attained))
    shares = f"{attained:.2%} SLO attainment against {cheapest[2]:.2%}"
    return [
        Claim(
            f"{traffic.name}: missed SLOs, beside those that the goal allows",
            ours=1.0 - attained,
            baseline=1.0 - GOAL,
            most=1.0,
            unit="of requests",
            against="the goal",
        ),
        Claim(
            f"{traffic.name}: cost beside the cheapest at equal attainment, {shares}",
            ours=cost,
            baseline=cheapest[0],
            most=1.0,
            unit=found["unit"],
            against=cheapest[1],
        ),
        Claim(
            f"{traffic.name}: cost over that of foresight at equal attainment",
            ours=ours["regret"]["mean"],
            baseline=1.0,
            most=MOST_REGRET[traffic.sudden],
            unit="x",
            against="foresight",
        ),
    ]


def main(wanted: list[str]) -> None:
    contests, claims = [], []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for traffic in traffic_of(wanted):
        found = contest(traffic)
        show_arena(found, None, screen())
        contests.append(found)
        claims += claims_of(traffic, found)
        (FOLDER / "contests.json").write_text(json.dumps(contests, indent=1))
        (FOLDER / "contests.html").write_text(arena_page("Autoscalers", contests))
    for each in claims:
        report(each)


if __name__ == "__main__":
    main(sys.argv[1:])

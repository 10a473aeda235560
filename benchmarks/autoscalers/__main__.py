"""`python -m benchmarks.autoscalers`: who holds the promise for the least money.

Every contestant's knob is tuned on some seeds, over all shapes together: the cheapest value with
which it keeps as much of the promise as it should, or else the one that keeps most. Then all run
again on seeds that nobody has seen. Ours must beat each of the others: less money for as much of
the promise, or more of the promise for as much money.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count

from benchmarks.autoscalers.contestants import CONTESTANTS, OURS
from benchmarks.autoscalers.shapes import SHAPES, scenario
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

TUNED_ON = (1, 2)
HELD_OUT = (101, 102, 103)
WANTED = 0.95
"""The share of requests for which the promise should be kept."""
EQUAL_SHARE = 0.002
"""Shares of kept promises that differ by less are equal."""
EQUAL_COST = 0.005

Outcome = tuple[float, float, int]
"""The share of promises kept, dollars, and changes of size."""


def play(contestant: str, knob: float, shape: str, seed: int) -> Outcome:
    make, _ = CONTESTANTS[contestant]
    section = make(knob).replace("SEASON", SHAPES[shape][2])
    result = simulate(load_text(scenario(shape, section, seed), "contest"))
    attained = result["slo"]["critical"]["attained"] or 0.0
    return attained, result["cost"]["total"], result["decisions"]["scaling"]


def mean(outcomes: list[Outcome]) -> Outcome:
    count = len(outcomes)
    return (
        sum(each[0] for each in outcomes) / count,
        sum(each[1] for each in outcomes) / count,
        round(sum(each[2] for each in outcomes) / count),
    )


def beats(ours: Outcome, theirs: Outcome) -> bool:
    as_good = ours[0] >= theirs[0] - EQUAL_SHARE
    as_cheap = ours[1] <= theirs[1] * (1 + EQUAL_COST)
    cheaper = ours[1] < theirs[1] * (1 - EQUAL_COST)
    better = ours[0] > theirs[0] + EQUAL_SHARE
    return (as_good and cheaper) or (as_cheap and better)


def tuned(pool: ProcessPoolExecutor, names: list[str], shapes: list[str]) -> dict[str, float]:
    tasks = {
        (name, knob): [
            pool.submit(play, name, knob, shape, seed) for shape in shapes for seed in TUNED_ON
        ]
        for name in names
        for knob in CONTESTANTS[name][1]
    }
    best: dict[str, float] = {}
    for name in names:
        outcomes = {
            knob: mean([task.result() for task in tasks[name, knob]])
            for knob in CONTESTANTS[name][1]
        }
        good = [knob for knob, outcome in outcomes.items() if outcome[0] >= WANTED]
        if good:
            best[name] = min(good, key=lambda knob: outcomes[knob][1])
        else:
            best[name] = max(outcomes, key=lambda knob: outcomes[knob][0])
        tried = ", ".join(f"{k:g}: {o[0]:.1%} ${o[1]:.0f}" for k, o in outcomes.items())
        print(f"{name:16} {best[name]:g} of {tried}", flush=True)
    return best


def main(arguments: list[str]) -> None:
    names = [name for name in CONTESTANTS if not arguments or name in (*arguments, OURS)]
    shapes = list(SHAPES)
    with ProcessPoolExecutor(cpu_count()) as pool:
        best = tuned(pool, names, shapes)
        tasks = {
            (name, shape): [pool.submit(play, name, best[name], shape, seed) for seed in HELD_OUT]
            for name in names
            for shape in shapes
        }
        table = {key: mean([task.result() for task in of]) for key, of in tasks.items()}
    print(f"\n{'':16}" + "".join(f"{shape:>19}" for shape in [*shapes, "all"]))
    totals = {name: mean([table[name, shape] for shape in shapes]) for name in names}
    for name in names:
        cells = [table[name, shape] for shape in shapes] + [totals[name]]
        print(f"{name:16}" + "".join(f"{c[0]:8.1%} ${c[1]:5.0f} {c[2]:3d}" for c in cells))
    print()
    for name in names:
        if name != OURS:
            wins = sum(beats(table[OURS, shape], table[name, shape]) for shape in shapes)
            losses = sum(beats(table[name, shape], table[OURS, shape]) for shape in shapes)
            whole = "beaten" if beats(totals[OURS], totals[name]) else "NOT BEATEN"
            print(f"{name:16} {whole} over all shapes; ours wins {wins}, loses {losses} of 8")


if __name__ == "__main__":
    main(sys.argv[1:])

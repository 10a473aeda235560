"""`python -m benchmarks.autoscalers`: who holds the promise for the least money.

Everyone's knobs are tuned on some seeds, over all shapes together: the cheapest values with which
it keeps the promise as often as it should, or else those that keep it most often. Against each of
the others ours takes the cheapest of its values that broke fewer promises on those seeds, by a
margin. Then all run again on seeds that nobody has seen: the same promise for how much of the
money?

`fixed` is no autoscaler but somebody who knew all of the traffic beforehand and chose one size for
it: a figure to hold the others against, and not a claim.
"""

import re
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count

from benchmarks.autoscalers.contestants import CONTESTANTS, FIXED, OURS, Knob
from benchmarks.autoscalers.shapes import SHAPES, scenario
from benchmarks.claim import Claim, report
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

TUNED_ON = (1, 2)
HELD_OUT = (201, 202, 203)
GOAL = 0.95
"""The share of requests for which the promise should be kept."""
EQUAL = 1.1
"""Who breaks at most so many times the promises that another breaks keeps as many."""
MARGIN = 0.9
"""Of the promises that another breaks, ours may break so many when it is tuned: seeds differ."""

Outcome = tuple[float, float, int]
"""The share of promises kept, dollars, and changes of size."""
Played = dict[tuple[str, Knob], list[Outcome]]
"""By contestant and knob: an outcome for each shape, over the seeds."""


def play(contestant: str, knob: Knob, shape: str, seed: int) -> Outcome:
    make, _ = CONTESTANTS[contestant]
    floor = int(knob[-1])
    section = make(*knob).replace("SEASON", SHAPES[shape][2])
    text = scenario(shape, section, seed, floor)
    if contestant == FIXED:
        text = re.sub(r"replicas: \d+", f"replicas: {floor}", text)
    result = simulate(load_text(text, "contest"))
    attained = result["slo"]["critical"]["attained"] or 0.0
    return attained, result["cost"]["total"], result["decisions"]["scaling"]


def mean(outcomes: list[Outcome]) -> Outcome:
    kept, cost, changes = (sum(values) / len(outcomes) for values in zip(*outcomes, strict=True))
    return kept, cost, round(changes)


def play_all(
    pool: ProcessPoolExecutor, entries: Iterable[tuple[str, Knob]], seeds: Iterable[int]
) -> Played:
    tasks = {
        (name, knob): [[pool.submit(play, name, knob, each, s) for s in seeds] for each in SHAPES]
        for name, knob in entries
    }
    played: Played = {}
    for (name, knob), shapes in tasks.items():
        played[name, knob] = [mean([task.result() for task in shape]) for shape in shapes]
        print(f"{len(played)} of {len(tasks)}: {name}", file=sys.stderr, flush=True)
    return played


def tuned(name: str, played: Played, wanted: float) -> Knob:
    """The cheapest that keeps the promise as often as wanted, or the one that does most often."""
    whole = {knob: mean(played[name, knob]) for knob in CONTESTANTS[name][1]}
    good = [knob for knob, outcome in whole.items() if outcome[0] >= wanted]
    if good:
        return min(good, key=lambda knob: whole[knob][1])
    return max(whole, key=lambda knob: whole[knob][0])


def show(played: Played) -> None:
    print(f"{'':30}" + "".join(f"{shape:>20}" for shape in [*SHAPES, "all"]))
    for (name, knob), outcomes in played.items():
        cells = "".join(f"{c[0]:8.1%} ${c[1]:6.2f} {c[2]:3d}" for c in [*outcomes, mean(outcomes)])
        print(f"{name + ' ' + '/'.join(f'{value:g}' for value in knob):30}{cells}")


def against(theirs: float) -> float:
    """The share of promises that ours must keep on the seeds of the tuning."""
    return 1.0 - MARGIN * (1.0 - theirs)


def claim(name: str, theirs: Outcome, ours: Outcome) -> Claim:
    equal = 1.0 - ours[0] <= EQUAL * (1.0 - theirs[0])
    kept = f"{ours[0]:.2%} of promises kept against {theirs[0]:.2%}"
    return Claim(
        f"dollars for as many promises kept as {name} keeps, {kept}",
        ours=ours[1] if equal else float("inf"),
        baseline=theirs[1],
        most=1.0,
        unit="$",
        against=f"{name}, tuned",
    )


def main(wanted: list[str]) -> None:
    names = [name for name in CONTESTANTS if not wanted or name in (*wanted, OURS)]
    with ProcessPoolExecutor(cpu_count()) as pool:
        every = [(name, knob) for name in names for knob in CONTESTANTS[name][1]]
        trained = play_all(pool, every, TUNED_ON)
        print("tuned:")
        show(trained)
        best = {name: tuned(name, trained, GOAL) for name in names}
        ours = {
            name: tuned(OURS, trained, against(mean(trained[name, best[name]])[0]))
            for name in names
            if name not in (OURS, FIXED)
        }
        entries = dict.fromkeys([*best.items(), *((OURS, knob) for knob in ours.values())])
        seen = play_all(pool, entries, HELD_OUT)
    print("held out (promise kept, dollars, changes of size):")
    show(seen)
    for name, knob in ours.items():
        report(claim(name, mean(seen[name, best[name]]), mean(seen[OURS, knob])))


if __name__ == "__main__":
    main(sys.argv[1:])

"""`python -m benchmarks.autoscalers`: who attains the SLO for the least money.

Everyone is tuned on some seeds, over all shapes together: on each floor from lax to strict, until
SLO attainment is as high as it should be; of those the cheapest counts, and where there is none,
the one with the highest attainment. Against each of the others ours is tuned in the same way until
fewer requests miss the SLO on those seeds, by a margin. Then all run again on seeds that nobody has
seen: the same attainment for how much of the money?

`fixed` is no autoscaler but somebody who knew all of the traffic beforehand and chose one size for
it: a figure to hold the others against, and not a claim.
"""

import re
import sys
from collections.abc import Sequence
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
"""The SLO attainment that is wanted."""
EQUAL = 1.1
"""Attainment counts as equal when at most so many times as many requests miss the SLO."""
MARGIN = 0.9
"""Of the requests that miss the SLO with another, so many may when ours is tuned: seeds differ."""

Outcome = tuple[float, float, int]
"""SLO attainment, dollars, and changes of size."""


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


class Contest:
    """All that has been played, on these seeds: an outcome for each shape."""

    def __init__(self, pool: ProcessPoolExecutor, seeds: Sequence[int]) -> None:
        self._pool = pool
        self._seeds = seeds
        self._played: dict[tuple[str, Knob], list[Outcome]] = {}

    def outcome(self, name: str, knob: Knob) -> Outcome:
        """Over all shapes."""
        if (name, knob) not in self._played:
            tasks = [
                [self._pool.submit(play, name, knob, each, seed) for seed in self._seeds]
                for each in SHAPES
            ]
            self._played[name, knob] = [mean([task.result() for task in shape]) for shape in tasks]
            print(f"{name} {knob}", file=sys.stderr, flush=True)
        return mean(self._played[name, knob])

    def tuned(self, name: str, wanted: float) -> Knob:
        """The cheapest with the SLO attainment that is wanted, or else the highest attainment."""
        tried: list[Knob] = []
        good: list[Knob] = []
        for from_lax_to_strict in CONTESTANTS[name][1]:
            for knob in from_lax_to_strict:
                tried.append(knob)
                if self.outcome(name, knob)[0] >= wanted:
                    good.append(knob)
                    break
        if good:
            return min(good, key=lambda knob: self.outcome(name, knob)[1])
        return max(tried, key=lambda knob: self.outcome(name, knob)[0])

    def show(self) -> None:
        print(f"{'':30}" + "".join(f"{shape:>20}" for shape in [*SHAPES, "all"]))
        for (name, knob), outcomes in self._played.items():
            cells = [*outcomes, mean(outcomes)]
            line = "".join(
                f"{kept:8.1%} ${cost:6.2f} {changes:3d}" for kept, cost, changes in cells
            )
            print(f"{name + ' ' + '/'.join(f'{value:g}' for value in knob):30}{line}")


def against(theirs: float) -> float:
    """The SLO attainment that ours must reach on the seeds of the tuning."""
    return 1.0 - MARGIN * (1.0 - theirs)


def claim(name: str, theirs: Outcome, ours: Outcome) -> Claim:
    equal = 1.0 - ours[0] <= EQUAL * (1.0 - theirs[0])
    kept = f"{ours[0]:.2%} SLO attainment against {theirs[0]:.2%}"
    return Claim(
        f"dollars at the attainment of {name}, {kept}",
        ours=ours[1] if equal else float("inf"),
        baseline=theirs[1],
        most=1.0,
        unit="$",
        against=f"{name}, tuned",
    )


def main(wanted: list[str]) -> None:
    names = [name for name in CONTESTANTS if not wanted or name in (*wanted, OURS)]
    with ProcessPoolExecutor(cpu_count()) as pool:
        tuning, held_out = Contest(pool, TUNED_ON), Contest(pool, HELD_OUT)
        claims = []
        for name in names:
            best = tuning.tuned(name, GOAL)
            theirs = held_out.outcome(name, best)
            if name not in (OURS, FIXED):
                ours = tuning.tuned(OURS, against(tuning.outcome(name, best)[0]))
                claims.append(claim(name, theirs, held_out.outcome(OURS, ours)))
    print("tuning (SLO attainment, dollars, changes of size):")
    tuning.show()
    print("held out:")
    held_out.show()
    for each in claims:
        report(each)


if __name__ == "__main__":
    main(sys.argv[1:])

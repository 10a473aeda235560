"""`python -m benchmarks.idle [--real] [--html FILE] [CASE...]` runs the idle suite.

It runs in virtual time, exact and repeatable; with `--real` also on this machine's clock, with
fewer rows. `--stretch 10` makes calls ten times as long, so that late timers matter less.
"""

import argparse
import sys
from pathlib import Path

import msgspec

from benchmarks.claim import Claim, report
from benchmarks.idle.cases import BEYOND, CASES, Case
from benchmarks.idle.clocks import run
from benchmarks.idle.drive import bare_effective, measure
from benchmarks.idle.meter import Measured
from benchmarks.idle.page import page
from benchmarks.idle.table import show
from benchmarks.idle.verdicts import EFFECTIVE_LEAST, Row, judge
from windtunnel.core.clock import cpu_s


def main() -> None:
    parser = argparse.ArgumentParser("benchmarks.idle", description="The idle suite.")
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="only these; all when none is named"
    )
    parser.add_argument("--real", action="store_true", help="also in real time, with fewer rows")
    parser.add_argument("--shorter", type=int, default=4, metavar="N", help="rows/N in real time")
    parser.add_argument(
        "--stretch", type=int, default=1, metavar="N", help="calls N times as long in real time"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report there")
    asked = parser.parse_args()
    names = [case.name for case in CASES + BEYOND]
    unknown = [name for name in asked.cases if name not in names]
    if unknown:
        sys.exit(f"there is no case {unknown[0]!r}; there are: {', '.join(names)}")
    wanted = [case for case in CASES + BEYOND if not asked.cases or case.name in asked.cases]
    virtual = judge(wanted, {case.name: measured(case) for case in wanted})
    show(virtual, is_real=False)
    runs = [(False, virtual)]
    if asked.real:
        # Cases beyond the others' suite take minutes of service: in real time they show nothing.
        shorter = [
            case.shorter(asked.shorter).stretched(asked.stretch)
            for case in wanted
            if case.reported is not None
        ]
        real = {case.name: measured(case, is_real=True) for case in shorter}
        runs.append((True, judge(shorter, real, is_real=True)))
        show(runs[-1][1], is_real=True)
    if asked.html is not None:
        asked.html.write_text(page(runs), encoding="utf-8")
        print(f"the report is {asked.html}")
    claim(virtual)


def measured(case: Case, *, is_real: bool = False) -> Measured:
    if not is_real:
        return run(lambda: measure(case))
    bare = run(lambda: bare_effective(case), is_real=True)
    start_s = cpu_s()
    got = run(lambda: measure(case), is_real=True)
    return msgspec.structs.replace(got, bare=bare, cpu_s=cpu_s() - start_s)


def claim(rows: list[Row]) -> None:
    """Reports the suite as three claims."""
    held = [row for row in rows if row.case.reported is not None]
    wide = [row.measured.effective for row in rows if row.case.is_wide]
    report(
        Claim(
            f"idle suite, virtual time: of {len(rows)} cases, those below their figures",
            ours=sum(1 for row in rows if row.faults),
            baseline=1.0,
            most=0.0,
            unit="cases",
            against="none may be",
        )
    )
    if held:
        slowest = max(held, key=_time_ratio)
        report(
            Claim(
                f"idle suite, virtual time: the slowest case, {slowest.case.name}",
                ours=_time_ratio(slowest),
                baseline=1.0,
                most=1.005,
                unit="times as long",
                against="the others' policy alone, whole generations/s",
            )
        )
    if wide:
        report(
            Claim(
                "idle suite, virtual time: most capacity not served, wide frontiers",
                ours=1.0 - min(wide),
                baseline=1.0 - EFFECTIVE_LEAST,
                most=1.0,
                unit="of the capacity",
                against="the target",
            )
        )


def _time_ratio(row: Row) -> float:
    assert row.case.reported is not None
    return row.case.reported.policy_per_s / row.measured.per_s


if __name__ == "__main__":
    main()

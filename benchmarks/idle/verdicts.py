"""Whether a case is at least as good as the other scheduler's figures, and meets its targets."""

from collections.abc import Sequence

import msgspec

from benchmarks.idle.cases import Case
from benchmarks.idle.meter import Measured

EFFECTIVE_LEAST = 0.90
"""Least effective use if far more work is ready than there are slots: of the capacity, or in real
time of what sleepers reach without a scheduler, because timers are late."""
ROUNDING = 0.5
"""The other scheduler's generations per second are whole numbers."""
SHARE_ROUNDING = 0.0005
FLOAT_ROUNDING = 1e-9
"""In one case their rounded figure is just above the upper bound of any schedule."""
LEASED_WAIT_SAVED_S = 0.005
MORE_WAIT_MOST = 1.1
"""If nothing can be saved, real time may show slightly more waiting."""
BEYOND_LEAST = {
    "refusals": 0.90 * 6 / 8,
    "failures": 0.90,
    "cancelled": 0.95,
    "tenants-3-to-1": 0.99,
}
"""Least effective use of the cases beyond the other suite; with refusals, 6 of 8 can be served."""


class Row(msgspec.Struct, frozen=True):
    """A case, its measurements, and where they fall short."""

    case: Case
    measured: Measured
    faults: list[str]


def reported_effective(case: Case) -> float:
    """The other scheduler's effective use, from its generations per second."""
    assert case.reported is not None
    return case.reported.per_s * case.service_s / case.slots


def judge(
    cases: Sequence[Case], results: dict[str, Measured], *, is_real: bool = False
) -> list[Row]:
    """Judges all cases in order; cases may be compared with each other."""
    rows = []
    for case in cases:
        measured = results[case.name]
        faults = _own(case, measured) + _against_reported(case, measured, is_real=is_real)
        rows.append(Row(case, measured, faults + _against_others(case, results)))
    return rows


def _own(case: Case, got: Measured) -> list[str]:
    faults = []
    if got.left_over:
        faults.append(f"{got.left_over} leases or waiters are left over")
    if got.in_flight_most > case.slots:
        faults.append(f"{got.in_flight_most} in flight on {case.slots} slots")
    least = EFFECTIVE_LEAST if case.is_wide else BEYOND_LEAST.get(case.name, 0.0)
    if got.effective < least * got.bare:
        of_bare = f", {got.effective / got.bare:.1%} of what bare sleepers reach"
        faults.append(f"effective use {got.effective:.1%}{of_bare}; the target is {least:.0%}")
    if case.adaptive and got.target_most <= 1:
        faults.append("the target of row groups never rose")
    if len(case.tenants) > 1:
        for share, weight in zip(got.half_time_shares, case.tenants, strict=True):
            if abs(share - weight / sum(case.tenants)) > 0.01:
                faults.append(f"a tenant of weight {weight} got {share:.1%}")
    return faults


def _against_reported(case: Case, got: Measured, *, is_real: bool) -> list[str]:
    """Idle time is compared in slot-seconds per generation; otherwise less starvation would make a
    run shorter and so its horizon share larger. In real time the horizon is left out: it is a
    matter of policy, and the end of a run with fewer rows weighs more."""
    theirs = case.reported
    if theirs is None:
        return []
    least = max(theirs.per_s, theirs.latest_per_s) if is_real else theirs.policy_per_s
    enough = min(least - ROUNDING, case.most_per_s * (1.0 - FLOAT_ROUNDING))
    checks = [
        (got.per_s >= enough, f"{got.per_s:.0f} generations/s against {least:.0f}"),
        (
            got.utilisation >= theirs.utilisation - SHARE_ROUNDING,
            f"utilisation {got.utilisation:.1%} against {theirs.utilisation:.1%}",
        ),
    ]
    idle = {
        "idle": (got.idle, theirs.starved + theirs.horizon),
        "starved": (got.starved, theirs.starved),
        "horizon": (got.horizon, theirs.horizon),
    }
    if is_real:
        del idle["horizon"]
    for name, (ours, their) in idle.items():
        ours_s = ours * case.slots / got.per_s
        their_s = (their + SHARE_ROUNDING) * case.slots / theirs.per_s
        checks.append((ours_s <= their_s, f"{name} {ours_s:.2g} slot-s each against {their_s:.2g}"))
    return [what for holds, what in checks if not holds]


def _against_others(case: Case, results: dict[str, Measured]) -> list[str]:
    """Checks that an adaptation is better than its control."""
    got = results[case.name]
    control = results.get(case.name.replace("-advisory", "-control"))
    faults = []
    if case.advisory and control is not None:
        if got.skips == 0 or got.first_column != "z_open":
            faults.append("the advisory passed over nothing")
        if got.leased_wait_s > MORE_WAIT_MOST * control.leased_wait_s:
            faults.append("more waiting with a lease than without the advisory")
        saved_s = control.leased_wait_s - got.leased_wait_s
        if case.name == "pressure-advisory" and saved_s < LEASED_WAIT_SAVED_S:
            faults.append(f"the advisory saved {saved_s * 1e3:.1f} ms of waiting with a lease")
    low, high = results.get("fixed-low"), results.get("fixed-high")
    if case.name == "adaptive" and low is not None and high is not None:
        if got.utilisation < low.utilisation + 0.10:
            faults.append("no better than one row group at a time")
        if got.utilisation < high.utilisation - 0.10:
            faults.append("much worse than eight row groups from the start")
    return faults

"""Half an hour of 50,000 machines with failures: the slowest cycles, the verdict, the cost gap."""

from benchmarks.claim import Claim, report
from windtunnel.core.clock import cpu_s
from windtunnel.twin.fleet.bound import fleet_gap
from windtunnel.twin.fleet.soak import PROFILES, Soak, SoakLimits, SoakSettings, has_passed, judge

PROFILE = "50k"
GATE_S = 5.0
"""Limit that a fleet controller in Go sets for its p99 cycle: half a roll-up interval."""
MOST_GAP = 0.05


def main() -> None:
    soak = Soak(SoakSettings(PROFILES[PROFILE]), cpu_s)
    seen = soak.run()
    checks = judge(seen, SoakLimits())
    assert has_passed(checks), [one for one in checks if not one.passed]
    report(
        Claim(
            f"half an hour of {seen.machines:,} machines, {seen.losses} lost, "
            f"{seen.actions:,} actions, none twice: p99 of {seen.cycles} cycles, "
            "lists, roll-ups and execution included",
            ours=seen.whole_s_p99,
            baseline=GATE_S,
            most=1.0,
            unit="CPU s",
            against="the gate of a fleet in Go",
        )
    )
    gap = fleet_gap(soak.shard.planner)
    report(
        Claim(
            f"what {gap.machines:,} machines cost after it, above the best there could be",
            ours=gap.gap,
            baseline=MOST_GAP,
            most=1.0,
            unit="of the bound",
            against="the target",
        )
    )


if __name__ == "__main__":
    main()

"""Duration of a campaign: 1,000 seeds with every invariant in at most 5 minutes on two cores."""

import tempfile
from pathlib import Path

from benchmarks.claim import Claim, report
from windtunnel.core.clock import monotonic_s
from windtunnel.fuzz.campaign import Campaign

SEEDS = 1000
JOBS = 2
LIMIT_S = 300.0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder, "failures"), Path(folder, "corpus"))
        started_s = monotonic_s()
        campaign.run(range(SEEDS), JOBS, lambda _done, _broken: None)
        passed_s = monotonic_s() - started_s
    result = campaign.result()
    assert result["broken"] == 0, result["failures"]
    report(
        Claim(
            f"{SEEDS:,} fuzz seeds on {JOBS} cores",
            ours=passed_s,
            baseline=LIMIT_S,
            most=1.0,
            unit="s",
            against="five minutes",
        )
    )


if __name__ == "__main__":
    main()

"""The result of a benchmark: ours, a baseline, their ratio, and whether the target was met."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from windtunnel.core.clock import cpu_s


class Claim:
    """One measured claim. It is met if ours is at most `most` times the baseline."""

    def __init__(
        self, name: str, *, ours: float, baseline: float, most: float, unit: str, against: str
    ) -> None:
        self.name = name
        self.ours = ours
        self.baseline = baseline
        self.most = most
        self.unit = unit
        self.against = against

    @property
    def ratio(self) -> float:
        return self.ours / self.baseline

    @property
    def met(self) -> bool:
        return self.ratio <= self.most

    def line(self) -> str:
        return (
            f"{self.name}: ours {self.ours:.4g} {self.unit}, "
            f"baseline {self.baseline:.4g} {self.unit} ({self.against}), ratio {self.ratio:.3g}, "
            f"target at most {self.most:g}: {'met' if self.met else 'MISSED'}"
        )

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "ours": self.ours,
            "baseline": self.baseline,
            "against": self.against,
            "unit": self.unit,
            "ratio": self.ratio,
            "target": self.most,
            "met": self.met,
        }


def report(claim: Claim) -> None:
    """Prints a claim, and appends it to the file named by BENCHMARK_RESULTS, if set."""
    print(claim.line(), flush=True)
    path = os.environ.get("BENCHMARK_RESULTS")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(claim.as_json()) + "\n")


def least_cpu_s(work: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of a few tries: noise only ever adds."""
    best = float("inf")
    for _ in range(repeats):
        start = cpu_s()
        work()
        best = min(best, cpu_s() - start)
    return best


def insist_on_compiled() -> None:
    """Exits with a sentence if the compiled form is missing."""
    import windtunnel

    if windtunnel.FORM != "compiled":
        print("skipped: the modules are not compiled here (make compile)")
        sys.exit(0)

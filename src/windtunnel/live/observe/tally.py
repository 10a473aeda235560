"""The figures of an observation, for its progress display and summary."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from windtunnel.core.statistics.distribution import Distribution, summary
from windtunnel.workload.traces.measured import COMPLETED, OUTCOMES, Measured


class ClassTargets(NamedTuple):
    """Latency targets of an SLO class; infinity if there is none."""

    ttft_s: float = math.inf
    tpot_s: float = math.inf
    e2e_s: float = math.inf


NO_TARGETS = ClassTargets()


class ObservationTally:
    """The figures of an observation, named as in a simulated result."""

    def __init__(self, targets: Mapping[str, ClassTargets]) -> None:
        self._targets = targets
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.errors: dict[str, int] = {}
        self.lag = Distribution()
        self._ttft = Distribution()
        self._tpot = Distribution()
        self._e2e = Distribution()
        self._gaps = Distribution()
        self._prompt_tokens = 0
        self._output_tokens = 0
        self._cached_tokens = 0
        self._good = 0
        self.has_targets = False
        """Whether the class of any request has a target."""

    def add(self, measured: Measured) -> None:
        request = measured.request
        self.outcomes[measured.outcome] += 1
        self.lag.add(request.arrived_s - measured.due_s)
        targets = self._targets.get(request.slo or "", NO_TARGETS)
        self.has_targets |= targets != NO_TARGETS
        if measured.outcome != COMPLETED:
            self._blame(measured)
            return
        assert request.ttft_s is not None
        assert request.e2e_s is not None
        self._ttft.add(request.ttft_s)
        self._e2e.add(request.e2e_s)
        tpot_s = 0.0
        if request.output_tokens > 1:
            tpot_s = (request.e2e_s - request.ttft_s) / (request.output_tokens - 1)
            self._tpot.add(tpot_s)
        for gap_s in measured.gaps_s:
            self._gaps.add(gap_s)
        self._prompt_tokens += request.prompt_tokens
        self._output_tokens += request.output_tokens
        self._cached_tokens += measured.cached_tokens or 0
        self._good += (
            request.ttft_s <= targets.ttft_s
            and tpot_s <= targets.tpot_s
            and request.e2e_s <= targets.e2e_s
        )

    def _blame(self, measured: Measured) -> None:
        said = f"{measured.status} " if measured.status and measured.error else ""
        error = f"{said}{measured.error or measured.outcome}"
        if error in self.errors or len(self.errors) < MOST_ERRORS:
            self.errors[error] = self.errors.get(error, 0) + 1

    def figures(self, seconds: float) -> dict[str, Any]:
        """All figures as plain data; `seconds` is the duration in the scenario's time."""
        per_s = (lambda count: count / seconds) if seconds > 0 else (lambda _: 0.0)
        return {
            "seconds": seconds,
            "requests": {"sent": sum(self.outcomes.values()), **self.outcomes},
            "tokens": {
                "prompt": self._prompt_tokens,
                "output": self._output_tokens,
                "prefix_hit": self._cached_tokens,
            },
            "latency": {
                "ttft": summary(self._ttft),
                "tpot": summary(self._tpot),
                "itl": summary(self._gaps),
                "e2e": summary(self._e2e),
            },
            "throughput": {
                "requests_per_s": per_s(self.outcomes[COMPLETED]),
                "output_tokens_per_s": per_s(self._output_tokens),
                "goodput_requests_per_s": per_s(self._good),
            },
            "lag": summary(self.lag),
            "errors": dict(sorted(self.errors.items(), key=lambda one: (-one[1], one[0]))),
        }


MOST_ERRORS = 20
"""Distinct errors that are listed, each with its count."""

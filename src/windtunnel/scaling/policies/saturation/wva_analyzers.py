"""The other analyzers of llm-d's workload variant autoscaler: token throughput, and queueing.

Both learn the speed of replicas from observations. They vote along with `saturation`: one that asks
for more is enough to grow, and all with a known finding must agree to shrink. Neither distinguishes
prefill from decode.
"""

from typing import Any, Final

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, unknown
from windtunnel.scaling.snapshot import Objective, Variant

_FULL: Final = 0.85
"""Share of the KV cache in use at which throughput is computed."""
_LEAST_ITL_S: Final = 0.006
"""Time per token of an idle replica, until a line is fitted."""
_SAMPLES: Final = 10
_SPREAD: Final = 0.3
"""Required range of KV use among the samples (at least `_SAMPLES`) for fitting a line."""
_KEPT: Final = 200
_GATE: Final = 7.378
"""Maximum squared innovation over its variance; observations beyond it are rejected."""
_DRIFT: Final = 0.1
_NOISE: Final = 0.05
"""Relative standard deviation of observations; `_DRIFT` is that of parameters per tick."""
_SLOWER: Final = 3.0
"""Without an SLO: how many times longer an iteration may take than without load."""
_SMALLEST: Final = 1e-9


def _arrival_rate(group: Group) -> float:
    flow = group.model.flow
    return flow.arrived / flow.interval_s if flow.interval_s > 0.0 else 0.0


def _capacity(group: Group, per_replica: list[float]) -> tuple[float, float]:
    """The capacity of the ready replicas that will stay, and of those still starting."""
    supply = coming = 0.0
    for variant, each in zip(group.variants, per_replica, strict=True):
        supply += min(variant.ready, variant.target) * each
        coming += variant.coming * each
    return supply, coming


def _judged(
    group: Group,
    per_replica: list[float],
    demand: float,
    up: float,
    down: float,
    evidence: dict[str, float],
    what: str,
) -> Finding:
    supply, coming = _capacity(group, per_replica)
    required = max(0.0, demand / up - supply - coming)
    return Finding(
        demand=demand,
        supply=supply,
        required=required,
        spare=max(0.0, supply - demand / down) if required == 0.0 else 0.0,
        per_replica=per_replica,
        evidence={**evidence, "demand": demand, "supply": supply, "coming": coming},
        sentence=f"Demand is {demand:.3g} {what}/s; capacity is {supply:.3g} ready and "
        f"{coming:.3g} starting.",
    )


class Throughput(Analyzer):
    """Output tokens per second, compared with what replicas produce with full KV caches.

    Time per token is modelled as linear in KV use, fitted to observations.
    """

    def __init__(self, up: float, down: float) -> None:
        super().__init__("throughput")
        self._up: Final = up
        self._down: Final = down
        self._samples: Final = self.remember("samples")  # by variant: [KV use, time per token]

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        lengths = group.model.flow.lengths
        if group.role == "prefill" or lengths.output_tokens <= 0.0:
            return unknown(group, "No request completed.")
        per_request = lengths.prompt_tokens * (1.0 - lengths.prefix_hit)
        per_request += lengths.output_tokens / 2.0
        per_replica = []
        full_s = 0.0
        for variant in group.variants:
            self._learn(variant)
            itl_s = self._itl_s(variant)
            kv_tokens = max((one.kv_tokens for one in variant.replicas), default=0.0)
            kv_tokens = kv_tokens or variant.spec.kv_tokens
            known = itl_s > 0.0 and kv_tokens > 0.0 and per_request > 0.0
            per_replica.append(_FULL * kv_tokens / per_request / itl_s if known else 0.0)
            full_s = max(full_s, itl_s)
        if not any(per_replica):
            return unknown(group, "No time per token was observed.")
        queued = group.model.queued + sum(
            replica.waiting for variant in group.variants for replica in variant.replicas
        )
        demand = _arrival_rate(group) * lengths.output_tokens + queued / (2.0 * full_s)
        evidence = {"queued": float(queued), "itl_full": full_s}
        return _judged(group, per_replica, demand, self._up, self._down, evidence, "tokens")

    def _learn(self, variant: Variant) -> None:
        seen: list[list[float]] = self._samples.setdefault(variant.name, [])
        seen.extend(
            [replica.kv_used, replica.tpot_s]
            for replica in variant.replicas
            if replica.tpot_s > 0.0 and replica.kv_used > 0.0
        )
        del seen[:-_KEPT]

    def _itl_s(self, variant: Variant) -> float:
        """Time per token with a full cache; 0: unknown."""
        seen: list[list[float]] = self._samples[variant.name]
        if not seen:
            return 0.0
        uses = [use for use, _ in seen]
        use, itl_s = sum(uses) / len(seen), sum(itl for _, itl in seen) / len(seen)
        if len(seen) >= _SAMPLES and max(uses) - min(uses) >= _SPREAD:
            over = sum((one - use) * (itl - itl_s) for one, itl in seen)
            slope = over / sum((one - use) ** 2 for one in uses)
        else:
            slope = (itl_s - _LEAST_ITL_S) / use
        return max(itl_s, itl_s + max(0.0, slope) * (_FULL - use))


class Queueing(Analyzer):
    """Arrivals, compared with the rate at which a queueing model still meets the SLO.

    An iteration takes T = alpha / (1 - load), where load is the arrival rate of a replica times
    beta (i + o) + gamma (o + 1) (i + o / 2) for prompts of i and outputs of o tokens. A Kalman
    filter tracks alpha, beta and gamma from mean TTFT and time per token.
    """

    def __init__(self) -> None:
        super().__init__("queueing")
        self._filters: Final = self.remember("filters")  # by variant: parameters, covariance

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        lengths = group.model.flow.lengths
        if group.role != "both" or lengths.output_tokens <= 0.0:
            return unknown(group, "No request completed.")
        rate = _arrival_rate(group)
        work = _Work(lengths.prompt_tokens, lengths.output_tokens)
        per_replica = []
        evidence: dict[str, float] = {}
        for variant in group.variants:
            parameters = self._followed(variant, work, rate / max(1, group.ready))
            carried = 0.0
            if parameters is not None:
                carried = work.carried(parameters, group.model.objective)
                evidence |= dict(zip(("alpha", "beta", "gamma"), parameters, strict=True))
            per_replica.append(carried)
        if not any(per_replica):
            return unknown(group, "By its model, no request rate meets the SLO.", evidence)
        return _judged(group, per_replica, rate, 1.0, 1.0, evidence, "requests")

    def _followed(self, variant: Variant, work: "_Work", rate: float) -> list[float] | None:
        """The parameters of a variant after the latest observation; None: none so far."""
        shown = [one for one in variant.replicas if one.ttft_s > 0.0 and one.tpot_s > 0.0]
        kept: dict[str, Any] | None = self._filters.get(variant.name)
        if not shown or rate <= 0.0:
            return None if kept is None else list(kept["parameters"])
        ttft_s = sum(one.ttft_s for one in shown) / len(shown)
        itl_s = sum(one.tpot_s for one in shown) / len(shown)
        if kept is None:
            first = work.guess(ttft_s, itl_s, rate)
            covariance = _diagonal([(_DRIFT * value) ** 2 for value in first])
            kept = self._filters[variant.name] = {"parameters": first, "covariance": covariance}
        else:
            _update(kept, work, rate, [ttft_s, itl_s])
        return list(kept["parameters"])


class _Work:
    """Requests of mean lengths, in the queueing model."""

    def __init__(self, prompt: float, answer: float) -> None:
        self._prompt: Final = prompt
        self._middle: Final = prompt + (answer + 1.0) / 2.0
        self._beta: Final = prompt + answer  # factors of beta and of gamma per request
        self._gamma: Final = (answer + 1.0) * (prompt + answer / 2.0)

    def latencies(self, parameters: list[float], rate: float) -> tuple[list[float], list[Any]]:
        """TTFT and time per token, and their derivatives with respect to the parameters."""
        alpha, beta, gamma = parameters
        free = max(0.02, 1.0 - rate * (beta * self._beta + gamma * self._gamma))
        step_s = alpha / free
        by = [1.0 / free, step_s / free * rate * self._beta, step_s / free * rate * self._gamma]
        shown = [
            step_s + (beta + gamma) * self._prompt,
            step_s + beta + gamma * self._middle,
        ]
        return shown, [
            [by[0], by[1] + self._prompt, by[2] + self._prompt],
            [by[0], by[1] + 1.0, by[2] + self._middle],
        ]

    def guess(self, ttft_s: float, itl_s: float, rate: float) -> list[float]:
        """Parameters that fit these observations, if the context costs as much as one new token."""
        beta = max(ttft_s - itl_s, 0.01 * itl_s) / self._prompt
        gamma = beta / self._middle
        load = min(0.9, rate * (beta * self._beta + gamma * self._gamma))
        alpha = max(0.1 * itl_s, itl_s - beta - gamma * self._middle) * (1.0 - load)
        return [alpha, beta, gamma]

    def carried(self, parameters: list[float], objective: Objective) -> float:
        """The rate at which a replica still meets the SLO; 0: none does."""
        alpha, beta, gamma = parameters
        longest = []
        if objective.ttft_s > 0.0:
            longest.append(objective.ttft_s - (beta + gamma) * self._prompt)
        if objective.tpot_s > 0.0:
            longest.append(objective.tpot_s - beta - gamma * self._middle)
        step_s = min(longest, default=_SLOWER * alpha)
        if step_s <= alpha:
            return 0.0
        return (1.0 - alpha / step_s) / (beta * self._beta + gamma * self._gamma)


def _update(kept: dict[str, Any], work: _Work, rate: float, observed: list[float]) -> None:
    """One step of an extended Kalman filter of three parameters and two observations."""
    parameters: list[float] = kept["parameters"]
    before: list[list[float]] = kept["covariance"]
    drift = _diagonal([(_DRIFT * value) ** 2 for value in parameters])
    p = [[before[i][j] + drift[i][j] for j in range(3)] for i in range(3)]
    expected, h = work.latencies(parameters, rate)
    error = [seen - value for seen, value in zip(observed, expected, strict=True)]
    ph = [[sum(p[i][k] * h[j][k] for k in range(3)) for j in range(2)] for i in range(3)]
    s = [[sum(h[i][k] * ph[k][j] for k in range(3)) for j in range(2)] for i in range(2)]
    for number, value in enumerate(observed):
        s[number][number] += (_NOISE * value) ** 2
    area = s[0][0] * s[1][1] - s[0][1] * s[1][0]
    if area <= 0.0:
        return
    inverse = [[s[1][1] / area, -s[0][1] / area], [-s[1][0] / area, s[0][0] / area]]
    scaled = [sum(inverse[i][j] * error[j] for j in range(2)) for i in range(2)]
    if sum(error[i] * scaled[i] for i in range(2)) > _GATE:
        return
    gain = [[sum(ph[i][k] * inverse[k][j] for k in range(2)) for j in range(2)] for i in range(3)]
    kept["parameters"] = [
        max(_SMALLEST, parameters[i] + sum(ph[i][j] * scaled[j] for j in range(2)))
        for i in range(3)
    ]
    kept["covariance"] = [
        [p[i][j] - sum(gain[i][k] * ph[j][k] for k in range(2)) for j in range(3)] for i in range(3)
    ]


def _diagonal(values: list[float]) -> list[list[float]]:
    return [
        [value if row == column else 0.0 for column in range(len(values))]
        for row, value in enumerate(values)
    ]

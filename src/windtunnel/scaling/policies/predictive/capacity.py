"""The load that a replica carries within the SLO, from the engine's step times.

In a steady state an engine with `rate` requests per second decodes n of them at once with a step
time of T, where n = rate * output * T and T = step(rate * prompt * T, n, n * context). That has one
solution below the engine's limit and none above it. From it follow the time per token (T), the KV
cache in use and, with the queueing delay before prefills, the time to the first token. The capacity
is the largest rate that still meets all limits.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from windtunnel.scaling.snapshot import Objective, StepTimes, Variant

_BISECTIONS: Final = 40
_CLOSE: Final = 1e-3
"""Relative precision of a rate."""
_KV_SHARE: Final = 0.95
"""Usable share of the KV cache; above it sequences are preempted."""
_BUSY_SHARE: Final = 0.95
"""Usable share of an engine's time, so that queues stay finite even without an SLO."""


class RequestMix:
    """The requests of a period: their mean lengths, and the variation of their prompts."""

    def __init__(
        self,
        prompt_tokens: float,
        output_tokens: float,
        prefix_hit: float = 0.0,
        prompt_cv: float = 0.8,
    ) -> None:
        self.prompt_tokens: Final = max(1.0, prompt_tokens)
        self.output_tokens: Final = max(1.0, output_tokens)
        self.prefix_hit: Final = min(max(prefix_hit, 0.0), 1.0)
        self.prompt_cv: Final = max(0.0, prompt_cv)  # standard deviation of prompts over their mean

    @property
    def new_tokens(self) -> float:
        """Prompt tokens that are not in the prefix cache."""
        return max(1.0, self.prompt_tokens * (1.0 - self.prefix_hit))

    def long_prompt(self, deviations: float) -> float:
        """New tokens of a prompt this many deviations above the median, if lognormal."""
        variance = math.log1p(self.prompt_cv**2)
        return self.new_tokens * math.exp(deviations * math.sqrt(variance) - variance / 2.0)

    @property
    def context(self) -> float:
        """The mean context of a decoding sequence, half way through its output."""
        return self.prompt_tokens + self.output_tokens / 2.0


@dataclass(frozen=True)
class SteadyState:
    """A steady state: decoding sequences, step time and TTFT."""

    decoding: float
    step_s: float
    ttft_s: float


@dataclass(frozen=True)
class Carried:
    """The largest rate that a replica carries, and what limits it."""

    rate: float
    decoding: float
    """Sequences that decode at that rate."""
    bound: str
    """One of tpot, ttft, e2e, kv, sequences, busy."""


class Carrier:
    """The steady states of one variant under one mix of requests."""

    def __init__(self, variant: Variant, shape: RequestMix, objective: Objective) -> None:
        if variant.spec.step_times is None:
            raise ValueError(f"The step times of {variant.name} are unknown.")
        self._times: Final[StepTimes] = variant.spec.step_times
        self._role: Final = variant.role
        self._seqs: Final = float(variant.spec.max_num_seqs or 256)
        self._budget: Final = float(variant.spec.max_num_batched_tokens or 8192)
        self._kv: Final = variant.spec.kv_tokens or math.inf
        self._shape: Final = shape
        self._objective: Final = objective
        self._late: Final = NormalDist().inv_cdf(min(max(objective.attained, 0.5), 0.999))

    def carried(self, replicas: float = 1.0) -> Carried:
        """The largest sustainable rate per replica, when this many share fluctuations."""
        high = 1.0 / max(1e-9, self._prompt_s(1.0))
        while self._broken(high, replicas) == "" and high < 1e6:
            high *= 2.0
        low = 0.0
        bound = self._broken(high, replicas)
        for _ in range(_BISECTIONS):
            if high - low <= _CLOSE * high:
                break
            middle = (low + high) / 2.0
            broken = self._broken(middle, replicas)
            if broken == "":
                low = middle
            else:
                high, bound = middle, broken
        state = self.operation(low, replicas)
        return Carried(low, 0.0 if state is None else state.decoding, bound)

    def operation(self, rate: float, replicas: float = 1.0) -> SteadyState | None:
        """The steady state at this rate per replica; None if queues would grow without limit."""
        if self._role == "prefill":
            return self._prefilling(rate)
        decoding = self._decoding(rate)
        if decoding is None:
            return None
        # The busy tail: arrivals are random, and fluctuations average out over replicas.
        decoding += self._late * math.sqrt(decoding / max(1.0, replicas))
        prefill = 0.0 if self._role == "decode" else self._busy_prefill(rate, decoding, replicas)
        step_s = self._steady_step_s(prefill, decoding)
        if step_s is None:
            return None
        if self._role == "decode":
            return SteadyState(decoding, step_s, step_s)
        ttft_s = self._ttft_s(rate, decoding, step_s)
        return None if ttft_s is None else SteadyState(decoding, step_s, ttft_s)

    def _broken(self, rate: float, replicas: float) -> str:
        """The limit that this rate exceeds; empty: none."""
        state = self.operation(rate, replicas)
        if state is None:
            return "busy"
        goal, shape = self._objective, self._shape
        if goal.tpot_s > 0.0 and self._role != "prefill" and state.step_s > goal.tpot_s:
            return "tpot"
        if goal.ttft_s > 0.0 and self._role != "decode" and state.ttft_s > goal.ttft_s:
            return "ttft"
        answer_s = 0.0 if self._role == "prefill" else state.step_s * (shape.output_tokens - 1.0)
        if goal.e2e_s > 0.0 and state.ttft_s + answer_s > goal.e2e_s:
            return "e2e"
        if state.decoding > self._seqs:
            return "sequences"
        return "kv" if state.decoding * shape.context > _KV_SHARE * self._kv else ""

    def _step_s(self, prefill: float, decoding: float) -> float:
        return self._times.step_s(prefill, decoding, decoding * self._shape.context)

    def _steady_step_s(self, prefill_rate: float, decoding: float) -> float | None:
        """T with T = step(prefill_rate * T, decoding): a step computes what arrives in one."""
        budget = self._budget - decoding
        if budget <= 0.0 or prefill_rate * self._step_s(budget, decoding) > _BUSY_SHARE * budget:
            return None
        step_s = self._step_s(0.0, decoding)
        for _ in range(40):
            following = self._step_s(prefill_rate * step_s, decoding)
            if abs(following - step_s) <= 1e-4 * following:
                break
            step_s = following
        return step_s

    def _busy_prefill(self, rate: float, decoding: float, replicas: float) -> float:
        """New prompt tokens per second in the tail that the SLO covers.

        The fewer prompts arrive while an output is generated, and the more they vary, the further
        this is from the mean. A router evens out some of it, without knowing which prompts are
        long.
        """
        # While an answer is generated, rate * (output * T) prompts arrive: as many as decode.
        come = max(1.0, decoding) * math.sqrt(max(1.0, replicas))
        spread = math.sqrt((1.0 + self._shape.prompt_cv**2) / come)
        return rate * self._shape.new_tokens * (1.0 + self._late * spread)

    def _decoding(self, rate: float) -> float | None:
        """n with n = rate * output * T(n); None: there is none up to the limit on sequences."""
        prefill = 0.0 if self._role == "decode" else rate * self._shape.new_tokens
        load = rate * self._shape.output_tokens
        low, high = 0.0, min(2.0 * self._seqs, self._budget - 1.0)
        for _ in range(_BISECTIONS):
            if high - low <= _CLOSE * high / 10.0:
                break
            middle = (low + high) / 2.0
            step_s = self._steady_step_s(prefill, middle)
            if step_s is None or load * step_s <= middle:
                high = middle
            else:
                low = middle
        step_s = self._steady_step_s(prefill, high)
        return None if step_s is None or load * step_s > high * 1.001 else high

    def _prompt_s(self, decoding: float) -> float:
        """Engine time per prompt when prompts follow each other and steps are full."""
        budget = max(1.0, self._budget - decoding)
        share = self._shape.new_tokens / budget
        return self._step_s(budget, decoding) * share

    def _ttft_s(self, rate: float, decoding: float, step_s: float) -> float | None:
        """The TTFT at the quantile given by the SLO; None if the engine is too busy."""
        prompt_s = self._prompt_s(decoding)
        busy = rate * prompt_s
        if busy >= _BUSY_SHARE:
            return None
        long_s = self._alone_s(decoding)
        # The step under way on arrival, its own, and the queue before it.
        return step_s + max(
            long_s,
            self._queue_s(busy, prompt_s)
            + self._step_s(min(self._shape.new_tokens, self._budget - decoding), decoding),
        )

    def _alone_s(self, decoding: float) -> float:
        """The prefill time, without a queue, of a prompt as long as the SLO's quantile."""
        budget = max(1.0, self._budget - decoding)
        tokens = self._shape.long_prompt(self._late)
        whole = int(tokens / budget)
        return whole * self._step_s(budget, decoding) + self._step_s(
            tokens - whole * budget, decoding
        )

    def _queue_s(self, busy: float, served_s: float) -> float:
        """The queueing delay at the SLO's quantile, from the tail of an M/G/1 queue."""
        late = 1.0 - self._objective.attained
        if busy <= late or busy <= 0.0:
            return 0.0
        unequal = (1.0 + self._shape.prompt_cv**2) / 2.0
        return served_s * unequal * math.log(busy / late) / (1.0 - busy)

    def _prefilling(self, rate: float) -> SteadyState | None:
        prompt_s = self._prompt_s(0.0)
        busy = rate * prompt_s
        if busy >= _BUSY_SHARE:
            return None
        own_s = self._step_s(min(self._shape.new_tokens, self._budget), 0.0)
        ttft_s = max(self._alone_s(0.0), own_s + self._queue_s(busy, prompt_s))
        return SteadyState(0.0, own_s, ttft_s)

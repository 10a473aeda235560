"""NVIDIA Dynamo's SLA planner: predicted load over an engine's profiled capacity within the SLO.

Every `adjustment_s` it predicts requests, prompt lengths and output lengths of the next interval,
corrects its profile by observed latencies, and sizes prefill and decode separately, within a budget
of accelerators. The profile is computed from step times on the planner's own grid and interpolated
linearly. A role that does both is sized by the sum of the two.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.policies.load_predictors import missing, predictor_of
from windtunnel.scaling.policy import PolicyParts
from windtunnel.scaling.settings import PolicySettings, Replicas, Step, Switch
from windtunnel.scaling.snapshot import Flow, Variant, joined
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration
from windtunnel.settings.section import Context

Promise = Annotated[float, Duration("0s", "10m", above=True)]

_USES: Final = 100
"""Points of KV use in the decode profile."""
MOST_RATE: Final = 1e12
MOST_LOAD: Final = 1e12
"""Bound on requests per second and on replicas; more means a faulty clock or metric."""
_PROMPTS: Final = [float(2**power) for power in range(5, 18)]


class DynamoSettings(PolicySettings):
    """NVIDIA Dynamo's SLA planner: predicted load over profiled capacity within the targets."""

    policy: Literal["dynamo"]
    adjustment_s: Annotated[float, Duration("0s", "1h", above=True)] = Field(
        default=180.0,
        description="Time between decisions.",
    )
    itl_s: Promise = Field(default=0.05, description="Inter-token latency target.")
    accelerator_budget: Step = Field(default=8, description="Accelerators for all roles together.")
    least: Replicas = Field(default=1, description="Fewest replicas of a role.")
    predictor: Literal["constant", "kalman", "arima", "prophet"] = Field(
        default="constant",
        description="How the next interval is predicted: as the last one, by filtered "
        "level and trend, by ARIMA or by Prophet (extra `planner`).",
    )
    correct: Switch = Field(
        default=True, description="Whether observed latencies correct the profile."
    )

    def parts(self) -> PolicyParts:
        return PolicyParts([Dynamo(self)])

    def faults(self, where: Context, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().faults(where, pools)
        yield from missing(where, self.predictor)

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        return {
            "adjustment": dice.span(0.5, 60.0),
            "itl": dice.span(0.001, 0.2),
            "accelerator_budget": dice.few(1, 12),
            "least": dice.pick(0, 1, 1),
            "predictor": dice.pick("constant", "kalman"),
            "correct": dice.chance(0.5),
        }


class EngineProfile:
    """The profile of one replica of a variant: prefill alone, and decode alone."""

    def __init__(self, variant: Variant) -> None:
        times = variant.spec.step_times
        assert times is not None
        self._times: Final = times
        self._kv: Final = variant.spec.kv_tokens or 1e6
        self._seqs: Final = float(variant.spec.max_num_seqs or 256)
        budget = float(variant.spec.max_num_batched_tokens or 8192)
        self._ttfts: Final[list[float]] = []
        for tokens in _PROMPTS:
            whole = int(tokens // budget)
            rest = tokens - whole * budget
            alone_s = whole * times.step_s(budget, 0.0, 0.0)
            self._ttfts.append(alone_s + (times.step_s(rest, 0.0, 0.0) if rest else 0.0))

    def ttft_s(self, prompt_tokens: float) -> float:
        """TTFT of a prompt on an idle engine; lengths outside the table are clamped to its ends."""
        length = min(max(prompt_tokens, _PROMPTS[0]), _PROMPTS[-1])
        above = min(bisect_right(_PROMPTS, length), len(_PROMPTS) - 1)
        low, high = _PROMPTS[above - 1], _PROMPTS[above]
        share = (length - low) / (high - low)
        return self._ttfts[above - 1] + share * (self._ttfts[above] - self._ttfts[above - 1])

    def itl_s(self, concurrency: float, context: float) -> float:
        running = min(max(concurrency, 1.0), self._seqs)
        return self._times.step_s(0.0, running, running * context)

    def decode_rate(self, itl_s: float, context: float) -> float:
        """Output tokens per second at the highest KV use that still meets this time per token."""
        rate = 0.0
        for use in range(_USES, 0, -1):
            running = use / _USES * self._kv / max(1.0, context)
            if running > self._seqs:
                continue
            rate = running / self.itl_s(running, context)
            if self.itl_s(running, context) <= itl_s:
                return rate
        return max(rate, 1e-9)


class _Gathered:
    """Data about a model since the last adjustment, and its predictors."""

    def __init__(self, predictor: str, adjustment_s: float, since_s: float) -> None:
        self.since_s = since_s
        self.flows: list[Flow] = []
        self.requests: Final = predictor_of(predictor, adjustment_s)
        self.prompt: Final = predictor_of(predictor, adjustment_s)
        self.answer: Final = predictor_of(predictor, adjustment_s)


class Dynamo(Analyzer):
    """Sizes the roles of a model together, every `adjustment_s`."""

    def __init__(self, settings: DynamoSettings) -> None:
        super().__init__("dynamo")
        self._adjustment_s: Final = settings.adjustment_s
        self._itl_s: Final = settings.itl_s
        self._budget: Final = settings.accelerator_budget
        self._least: Final = settings.least
        self._predictor: Final = settings.predictor
        self._correct: Final = settings.correct
        self._seen: Final[dict[str, _Gathered]] = {}

    def analyze(self, groups: list[Group], now_s: float) -> list[Finding]:
        model = groups[0].model
        if any(group.variants[0].spec.step_times is None for group in groups):
            return [unknown(group, "Its engine has no profile.") for group in groups]
        seen = self._seen.get(model.name)
        if seen is None:
            seen = self._seen[model.name] = _Gathered(
                self._predictor, self._adjustment_s, now_s - model.flow.interval_s
            )
        if model.flow.interval_s > 0.0:
            seen.flows.append(model.flow)
        left_s = seen.since_s + self._adjustment_s - now_s
        if left_s > 1e-9:
            what = f"The next adjustment is in {left_s:.0f} s."
            return [replicas_wanted(group, group.current, {}, what) for group in groups]
        flow = joined(seen.flows)
        seen.flows, seen.since_s = [], now_s
        lengths = flow.lengths
        if not flow.arrived or not lengths.prompt_tokens or not lengths.output_tokens:
            return [unknown(group, "No request completed in the interval.") for group in groups]
        rate = flow.arrived / flow.interval_s
        if not rate < MOST_RATE:
            return [unknown(group, "The request rate is not a number.") for group in groups]
        seen.requests.see(rate)
        seen.prompt.see(flow.lengths.prompt_tokens)
        seen.answer.see(flow.lengths.output_tokens)
        return self._sized(groups, flow, seen)

    def _sized(self, groups: list[Group], flow: Flow, seen: _Gathered) -> list[Finding]:
        rate, prompt, answer = seen.requests.next(), seen.prompt.next(), seen.answer.next()
        wanted: list[int] = []
        evidence: list[dict[str, float]] = []
        for group in groups:
            load = 0.0
            facts = {"rate_predicted": rate, "prompt_predicted": prompt, "output_predicted": answer}
            profile = EngineProfile(group.variants[0])
            if group.role != "decode":
                alone_s = profile.ttft_s(flow.lengths.prompt_tokens)
                seen_s = flow.latencies.ttft_s
                factor = seen_s / alone_s if self._correct and seen_s > 0.0 else 1.0
                facts["prefill_correction"] = factor
                load += rate * min(1.0, factor) * profile.ttft_s(prompt)
            if group.role != "prefill":
                load += self._decode_load(group, profile, flow, rate, prompt, answer, facts)
            wanted.append(max(self._least, math.ceil(min(load, MOST_LOAD) - 1e-9)))
            evidence.append(facts)
        sized = self._within_budget(groups, wanted)
        return [
            replicas_wanted(
                group,
                sized[number],
                evidence[number],
                f"{rate:.3g}/s of {prompt:.0f}+{answer:.0f} tokens are predicted:"
                f" {wanted[number]} replicas, {sized[number]} within the budget.",
            )
            for number, group in enumerate(groups)
        ]

    def _decode_load(
        self,
        group: Group,
        profile: EngineProfile,
        flow: Flow,
        rate: float,
        prompt: float,
        answer: float,
        facts: dict[str, float],
    ) -> float:
        running = flow.arrived / flow.interval_s * flow.latencies.e2e_s / max(1, group.ready)
        seen_s, lengths = flow.latencies.tpot_s, flow.lengths
        expected_s = profile.itl_s(running, lengths.prompt_tokens + lengths.output_tokens / 2.0)
        factor = seen_s / expected_s if self._correct and seen_s > 0.0 else 1.0
        facts["decode_correction"] = factor
        allowed_s = self._itl_s / factor if factor > 0.0 else self._itl_s
        return rate * answer / profile.decode_rate(allowed_s, prompt + answer / 2.0)

    def _within_budget(self, groups: list[Group], wanted: list[int]) -> list[int]:
        each = [group.variants[0].spec.accelerators for group in groups]
        total = sum(count * size for count, size in zip(wanted, each, strict=True))
        if total <= self._budget:
            return wanted
        if len(groups) == 1:
            return [max(self._least, self._budget // each[0])]
        order = sorted(range(len(groups)), key=lambda number: groups[number].role == "decode")
        first = order[0]
        shares = list(wanted)
        shares[first] = max(self._least, round(wanted[first] * self._budget / total))
        left = self._budget - shares[first] * each[first]
        for number in order[1:]:
            shares[number] = max(self._least, round(left / each[number]))
            left -= shares[number] * each[number]
        return shares

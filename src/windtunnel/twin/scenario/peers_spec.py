"""What a person writes under `scaling:` for the policies of others, and for our own."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.errors import InputError
from windtunnel.scaling.metrics import metric
from windtunnel.scaling.peers.plans import (
    AibrixPlan,
    DynamoPlan,
    HpaDirection,
    HpaMetric,
    HpaPlan,
    HpaRule,
    KedaPlan,
    KnativePlan,
)
from windtunnel.scaling.plan import PolicyPlan
from windtunnel.scaling.predictive.build import PredictivePlan
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Number, Text, Whole
from windtunnel.settings.limits import LONGEST_RUN, MOST_REPLICAS, MOST_TOKENS
from windtunnel.settings.section import Section
from windtunnel.twin.scenario.scaler_spec import ScalerSpec, Switch

Target = Annotated[float, Number(0, 10**9, above=True)]
MetricName = Annotated[str, Text("the name of a metric")]
HpaWindow = Annotated[float, Duration("0s", "1h")]
Rate = Annotated[float, Number(1, 10**6, above=True)]


class HpaRuleSpec(Section):
    """So many pods, or so many percent of them, within a period."""

    pods: Annotated[int, Whole(1, MOST_REPLICAS)] | None = Field(
        default=None, description="So many; this or `percent`."
    )
    percent: Annotated[int, Whole(1, 10**6)] | None = Field(
        default=None, description="Percent of the size at the start of the period; this or `pods`."
    )
    period: Annotated[float, Duration("0s", "30m", above=True)] = Field(
        default=15.0, description="The period."
    )


class HpaDirectionSpec(Section):
    """`behavior` of an HPA in one direction."""

    window: HpaWindow | None = Field(
        default=None,
        description="`stabilizationWindowSeconds`; left out: up 0s, down 5m.",
    )
    rules: list[HpaRuleSpec] | None = Field(
        default=None,
        description="Its `policies`; left out: up by 4 or 100% in 15s, down by 100%.",
    )
    select: Literal["Max", "Min", "Disabled"] = Field(
        default="Max", description="Which rule holds; Disabled: no change in this direction."
    )

    def plan(self, window_s: float) -> HpaDirection:
        rules = None
        if self.rules is not None:
            rules = tuple(
                HpaRule(rule.pods or rule.percent or 0, rule.period, rule.pods is None)
                for rule in self.rules
            )
        return HpaDirection(window_s if self.window is None else self.window, rules, self.select)

    def faults(self, key: str) -> Iterator[Fault]:
        for index, rule in enumerate(self.rules or []):
            if (rule.pods is None) == (rule.percent is None):
                what = "a rule has either pods or percent"
                yield Fault((key, "rules", index), what)
        if self.rules == []:
            yield Fault((key, "rules"), "there is no rule", hint="leave it out, or give one")


class HpaMetricSpec(Section):
    """A metric of an HPA."""

    name: MetricName = Field(description="Such as `vllm:num_requests_waiting`.")
    target: Target = Field(description="What it should be.")
    type: Literal["average", "total", "value"] = Field(
        default="average",
        description="The mean of ready replicas (`average`: Pods and Resource metrics), so much of "
        "a total for each replica (`total`: External ones with an AverageValue), or the whole "
        "(`value`).",
    )


class HpaScalerSpec(ScalerSpec):
    """Kubernetes' HorizontalPodAutoscaler: every pool alone, by its metrics."""

    policy: Literal["hpa"]
    metrics: list[HpaMetricSpec] = Field(
        description="What each should be; the one that asks for most wins.",
        examples=[[{"name": "vllm:num_requests_waiting", "target": 10}]],
    )
    tolerance: Annotated[float, Number(0, 1)] = Field(
        default=0.1, description="So far around a target nothing changes."
    )
    up: HpaDirectionSpec = Field(default_factory=HpaDirectionSpec, description="`scaleUp`.")
    down: HpaDirectionSpec = Field(default_factory=HpaDirectionSpec, description="`scaleDown`.")

    def hpa_plan(self) -> HpaPlan:
        return HpaPlan(
            tuple(HpaMetric(each.name, each.target, each.type) for each in self.metrics),
            self.tolerance,
            self.up.plan(0.0),
            self.down.plan(300.0),
        )

    def policy_plan(self) -> PolicyPlan:
        return self.hpa_plan()

    def policy_faults(self, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().policy_faults(pools)
        yield from self.up.faults("up")
        yield from self.down.faults("down")
        if not self.metrics:
            yield Fault(("metrics",), "there is no metric", "at least one")
        for index, each in enumerate(self.metrics):
            yield from _metric_faults(("metrics", index, "name"), each.name)
        yield from _unused(self, "stabilization", "`up.window` and `down.window` are its windows")


class KedaScalerSpec(HpaScalerSpec):
    """KEDA's ScaledObject: an HPA, and a switch between none and one by its first metric."""

    policy: Literal["keda"]  # type: ignore[assignment]  # the word that chooses it
    activation: Annotated[float, Number(0, 10**9)] = Field(
        default=0.0, description="It is active while its first metric is above this."
    )
    cooldown: Annotated[float, Duration("0s", LONGEST_RUN)] = Field(
        default=300.0, description="How long it must not have been active before it goes to none."
    )
    idle: Annotated[int, Whole(0, MOST_REPLICAS)] | None = Field(
        default=None, description="The size while it is not active; left out: the least size."
    )

    def policy_plan(self) -> PolicyPlan:
        return KedaPlan(self.hpa_plan(), self.activation, self.cooldown, self.idle)


class KnativeScalerSpec(ScalerSpec):
    """Knative's pod autoscaler: a mean over a minute, and in a panic over six seconds.

    Knative looks every 2s; an `interval` longer than the panic window makes it blind to panics.
    """

    policy: Literal["knative"]
    metric: MetricName = Field(default="concurrency", description="What is averaged.")
    target: Target = Field(default=100.0, description="Of one replica.")
    utilization_percent: Annotated[float, Number(1, 100)] = Field(
        default=70.0, description="The share of the target that is aimed at."
    )
    window: Annotated[float, Duration("6s", "1h")] = Field(
        default=60.0, description="The stable window."
    )
    panic_window_percent: Annotated[float, Number(1, 100)] = Field(
        default=10.0, description="The panic window, as a share of the stable one."
    )
    panic_threshold_percent: Annotated[float, Number(110, 1000)] = Field(
        default=200.0, description="Of what is ready: load as high is a panic."
    )
    max_scale_up_rate: Rate = Field(default=1000.0, description="Most times as many at once.")
    max_scale_down_rate: Rate = Field(default=2.0, description="At most divided by this at once.")
    scale_down_delay: HpaWindow = Field(
        default=0.0, description="The largest size of so long is kept."
    )
    activation_scale: Annotated[int, Whole(1, MOST_REPLICAS)] = Field(
        default=1, description="The least size while there is any load."
    )

    def policy_plan(self) -> PolicyPlan:
        return KnativePlan(
            self.metric,
            self.target,
            self.utilization_percent,
            self.window,
            self.panic_window_percent,
            self.panic_threshold_percent,
            self.max_scale_up_rate,
            self.max_scale_down_rate,
            self.scale_down_delay,
            self.activation_scale,
        )

    def policy_faults(self, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().policy_faults(pools)
        yield from _metric_faults(("metric",), self.metric)


class AibrixScalerSpec(ScalerSpec):
    """AIBrix' PodAutoscaler: means over three minutes against targets, at most double or half."""

    policy: Literal["aibrix"]
    metrics: dict[MetricName, Target] = Field(
        description="What the mean over replicas should be, by metric; the largest answer wins."
    )
    strategy: Literal["APA", "KPA"] = Field(
        default="APA",
        description="Whether the size is multiplied by the ratio (`APA`), or is the mean over the "
        "target (`KPA`), which only fits totals.",
    )
    up_cooldown: HpaWindow = Field(default=0.0, description="The highest of so long counts.")
    down_cooldown: HpaWindow = Field(
        default=300.0, description="The lowest of so long counts when it shrinks, as shipped."
    )

    def policy_plan(self) -> PolicyPlan:
        return AibrixPlan(self.metrics, self.strategy, self.up_cooldown, self.down_cooldown)

    def policy_faults(self, pools: Sequence[str]) -> Iterator[Fault]:
        yield from super().policy_faults(pools)
        if not self.metrics:
            yield Fault(("metrics",), "there is no metric", "at least one")
        for name in self.metrics:
            yield from _metric_faults(("metrics", name), name)


class DynamoScalerSpec(ScalerSpec):
    """NVIDIA Dynamo's SLA planner: predicted load over what profiled engines do in time."""

    policy: Literal["dynamo"]
    adjustment: Annotated[float, Duration("0s", "1h", above=True)] = Field(
        default=180.0, description="How often it sizes; it only gathers at the looks between."
    )
    ttft: Annotated[float, Duration("0s", "10m", above=True)] = Field(
        default=0.5, description="The time to the first token that it promises."
    )
    itl: Annotated[float, Duration("0s", "10m", above=True)] = Field(
        default=0.05, description="The time between tokens that it promises."
    )
    accelerator_budget: Annotated[int, Whole(1, MOST_REPLICAS)] = Field(
        default=8, description="Accelerators for all roles together."
    )
    least: Annotated[int, Whole(0, MOST_REPLICAS)] = Field(
        default=1, description="The least size of a role."
    )
    predictor: Literal["constant", "kalman"] = Field(
        default="constant",
        description="The next interval is as the last, or a level and a trend are filtered.",
    )
    correct: Switch = Field(
        default=True, description="Whether latencies that were seen correct the profile."
    )

    def policy_plan(self) -> PolicyPlan:
        return DynamoPlan(
            self.adjustment,
            self.ttft,
            self.itl,
            self.accelerator_budget,
            self.least,
            self.predictor,
            self.correct,
        )


class PredictiveScalerSpec(ScalerSpec):
    """Ours: sizes for the load of the time when replicas asked for now will be ready.

    What a replica carries within the targets of `slo` comes from the engine's own step times, what
    will come from a forecast with its error; what is not needed is kept as long as a start takes.
    """

    policy: Literal["predictive"]
    probability: Annotated[float, Number(0.5, 0.999)] = Field(
        default=0.9,
        description="That no more arrives than is planned for: higher is safer and costs more.",
    )
    season: Annotated[float, Duration("0s", LONGEST_RUN)] = Field(
        default=86_400.0,
        description="After how long traffic repeats itself; 0s: it does not.",
    )
    headroom: Annotated[float, Number(0, 100)] = Field(
        default=0.0,
        description="Capacity beyond the plan, as a share of it: for what nobody could foresee, "
        "such as the first spike of a day. It is paid for at all times.",
    )
    drain: Annotated[float, Duration("1s", "1h")] = Field(
        default=60.0, description="In how long what waits should be worked off."
    )
    output_tokens: Annotated[float, Number(1, MOST_TOKENS)] = Field(
        default=256.0, description="Tokens of an answer until some have been seen."
    )

    def policy_plan(self) -> PolicyPlan:
        return PredictivePlan(
            self.interval,
            self.probability,
            self.season,
            self.headroom,
            self.drain,
            self.output_tokens,
        )


def _metric_faults(path: tuple[str | int, ...], name: str) -> Iterator[Fault]:
    try:
        metric(name)
    except InputError as error:
        yield Fault(path, error.what, error.allowed, error.hint)


def _unused(spec: ScalerSpec, key: str, instead: str) -> Iterator[Fault]:
    if getattr(spec, key) is not None:
        what = f"{spec.policy} does not use it"
        yield Fault((key,), what, hint=f"leave it out; {instead}")

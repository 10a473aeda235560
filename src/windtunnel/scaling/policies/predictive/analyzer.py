"""What will be needed when a replica asked for now is ready, in requests per second.

The forecast of arrivals, widened until it holds with the stated probability, against what replicas
carry within the SLO by their own step times. What already waits is added: it must be worked off
too. The capacity is corrected by experience, but only from times when what was ready should have
been enough: that answers were late while replicas were missing says nothing about what one carries.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, unknown
from windtunnel.scaling.policies.predictive.capacity import Carried, Carrier, RequestMix
from windtunnel.scaling.policies.predictive.forecast import Forecaster
from windtunnel.scaling.policies.predictive.keeping import SURGE, Keeping
from windtunnel.scaling.policy import PolicyParts
from windtunnel.scaling.settings import PolicySettings
from windtunnel.scaling.snapshot import Flow, Model, Objective, Variant, joined
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.fields import Duration, Number
from windtunnel.settings.limits import LONGEST_RUN, MOST_TOKENS

_FORGET: Final = 0.3
"""How much the latest tick weighs in the mean lengths of requests."""
_COARSE: Final = 1.05
"""Lengths are rounded to steps of 5%, so that capacities need not be worked out at every tick."""
_LEARN: Final = 0.08
"""How fast experience corrects a capacity: a tick with every answer late takes 8% off."""
_BUSY_SHARE: Final = 0.8
"""Of the capacity: with less to do, an SLO that is attained proves nothing."""
_LEAST_TRUST: Final = 0.3
_MOST_TRUST: Final = 1.25
_ENOUGH_TICKS: Final = 3
"""So long what is ready must have been enough before anything is learned: answers take a while."""
_KEPT_CAPACITIES: Final = 4096
_LEAST_SPAN_S: Final = 5.0
"""Of the time that is counted in, however often it looks."""


class PredictiveSettings(PolicySettings):
    """Ours: sizes for the load of the time when replicas asked for now will be ready.

    What a replica carries within the targets of `slo` comes from the engine's own step times, what
    will come from a forecast with its error; what is not needed is kept as long as a start takes.
    """

    policy: Literal["predictive"]
    probability: Annotated[float, Number(0.5, 0.999)] = Field(
        default=0.9,
        description="Probability that no more arrives than is planned for: higher is safer and "
        "costs more.",
    )
    season_s: Annotated[float, Duration("0s", LONGEST_RUN)] = Field(
        default=86_400.0,
        description="Period after which traffic repeats itself; 0s: it does not.",
    )
    headroom: Annotated[float, Number(0, 100)] = Field(
        default=0.0,
        description="Capacity beyond the plan, as a share of it: for what nobody could foresee, "
        "such as the first spike of a day. It is paid for at all times.",
    )
    drain_s: Annotated[float, Duration("1s", "1h")] = Field(
        default=60.0, description="Time in which a queue should be worked off."
    )
    output_tokens: Annotated[float, Number(1, MOST_TOKENS)] = Field(
        default=256.0, description="Output tokens of a request until some have been measured."
    )

    def parts(self) -> PolicyParts:
        return PolicyParts([Predictive(self)], limiters=[Keeping()])

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        return {
            "probability": dice.pick(0.5, 0.9, 0.999),
            "season": dice.pick(0, 20.0, 3600.0),
            "headroom": dice.pick(0, 0.3, 3),
            "drain": dice.span(1.0, 100.0),
        }


class _Traffic:
    """What is known of the traffic of a model."""

    def __init__(self, forecaster: Forecaster, output_tokens: float) -> None:
        self.forecaster: Final = forecaster
        self.prompt_tokens = 0.0
        self.output_tokens = output_tokens
        self.prefix_hit = 0.0
        self.prompt_cv = 0.0
        self.answered = False
        self.rates: Final[deque[float]] = deque(maxlen=forecaster.memory)
        self.flows: Final[list[Flow]] = []  # not yet enough to be taken in
        self.trust = 1.0  # of what step times say that a replica carries
        self.enough_ticks = 0  # in a row, in which what was ready should have been enough
        self.busy = False  # and not much more than enough

    def gather(self, flow: Flow, span_s: float, allowed_late: float) -> None:
        """Takes in what has come, once it is of a time that is long enough to count in."""
        if flow.interval_s > 0.0:
            self.flows.append(flow)
        if sum(each.interval_s for each in self.flows) >= span_s - 1e-9:
            self._see(joined(self.flows), allowed_late)
            self.flows.clear()

    def _see(self, flow: Flow, allowed_late: float) -> None:
        self.forecaster.see(flow.arrived, flow.interval_s)
        self.rates.append(flow.arrived / flow.interval_s)
        if flow.arrived > 0 and flow.lengths.prompt_tokens > 0.0:
            first = self.prompt_tokens == 0.0
            weight = 1.0 if first else _FORGET
            self.prompt_tokens += weight * (flow.lengths.prompt_tokens - self.prompt_tokens)
            self.prompt_cv += weight * (flow.lengths.prompt_cv - self.prompt_cv)
        if flow.completed > 0 and flow.lengths.output_tokens > 0.0:
            weight = _FORGET if self.answered else 1.0
            self.answered = True
            self.output_tokens += weight * (flow.lengths.output_tokens - self.output_tokens)
            self.prefix_hit += weight * (flow.lengths.prefix_hit - self.prefix_hit)
            late = 1.0 - flow.met / flow.completed
            # Nobody is late where there is little to do: that says nothing about the most.
            if self.enough_ticks >= _ENOUGH_TICKS and (self.busy or late > allowed_late):
                trust = self.trust * math.exp(-_LEARN * (late - allowed_late))
                self.trust = min(max(trust, _LEAST_TRUST), _MOST_TRUST)

    def recent_rate(self) -> float:
        """Of the last two ticks: one alone is noisy."""
        return (self.rates[-1] + self.rates[max(-2, -len(self.rates))]) / 2.0

    def state(self) -> dict[str, object]:
        return {
            "ahead": self.forecaster.ahead,
            "rates": list(self.rates),
            "lengths": [self.prompt_tokens, self.output_tokens, self.prefix_hit, self.prompt_cv],
            "answered": self.answered,
            "trust": self.trust,
            "enough_ticks": self.enough_ticks,
            "busy": self.busy,
        }

    def restore(self, state: dict[str, Any]) -> None:
        for rate in state["rates"]:
            self.forecaster.see(rate, 1.0)
            self.rates.append(rate)
        self.prompt_tokens, self.output_tokens, self.prefix_hit, self.prompt_cv = state["lengths"]
        self.answered, self.trust = state["answered"], state["trust"]
        self.enough_ticks, self.busy = state["enough_ticks"], state["busy"]


class Predictive(Analyzer):
    """Sizes roles for the arrivals of the time when new replicas will be ready."""

    def __init__(self, settings: PredictiveSettings) -> None:
        super().__init__("predictive")
        self._settings: Final = settings
        # In less than this a few arrivals by chance would look like a flood.
        self._span_s: Final = max(settings.interval_s, _LEAST_SPAN_S)
        self._seen: Final[dict[str, _Traffic]] = {}
        self._capacities: Final[dict[object, Carried]] = {}

    def analyze(self, groups: list[Group], now_s: float) -> list[Finding]:
        model = groups[0].model
        if any(variant.spec.step_times is None for group in groups for variant in group.variants):
            return [
                unknown(group, "The step times of a variant are not known.") for group in groups
            ]
        seen = self._seen_of(model, groups)
        seen.gather(model.flow, self._span_s, 1.0 - model.objective.attained)
        if not seen.rates:
            return [unknown(group, "Too little has been seen of the traffic.") for group in groups]
        if seen.prompt_tokens == 0.0:
            idle = "Nothing has arrived yet."
            return [unknown(group, idle) for group in groups]
        findings = [self._finding(group, seen) for group in groups]
        rate = seen.recent_rate()
        is_enough = all(rate <= finding.supply for finding in findings)
        seen.enough_ticks = seen.enough_ticks + 1 if is_enough else 0
        seen.busy = any(rate > _BUSY_SHARE * finding.supply for finding in findings)
        return findings

    def state(self) -> dict[str, object]:
        return {model: seen.state() for model, seen in self._seen.items()}

    def restore(self, state: dict[str, object]) -> None:
        for model, saved in state.items():
            assert isinstance(saved, dict)
            self._seen[model] = seen = self._new(saved["ahead"])
            seen.restore(saved)

    def _seen_of(self, model: Model, groups: list[Group]) -> _Traffic:
        seen = self._seen.get(model.name)
        if seen is None:
            specs = [variant.spec for group in groups for variant in group.variants]
            startup_s = max(spec.startup_s for spec in specs)
            self._seen[model.name] = seen = self._new(math.ceil(startup_s / self._span_s) + 1)
        return seen

    def _new(self, ahead: int) -> _Traffic:
        settings = self._settings
        forecaster = Forecaster(self._span_s, ahead, settings.season_s, settings.probability)
        return _Traffic(forecaster, settings.output_tokens)

    def _finding(self, group: Group, seen: _Traffic) -> Finding:
        model = group.model
        forecast = seen.forecaster.forecast()
        upper = max(forecast.upper(self._settings.probability), seen.recent_rate())
        wanted = max(1, group.current)
        per_replica: list[float] = []
        bounds: list[str] = []
        supply = coming = 0.0
        waiting = float(model.queued)
        for variant in group.variants:
            carried = self._carried(variant, seen, model, wanted)
            rate = carried.rate * seen.trust
            per_replica.append(rate)
            bounds.append(carried.bound)
            leaving = max(0, variant.ready + variant.coming - variant.target)
            supply += max(0, variant.ready - leaving) * rate
            coming += variant.coming * rate
            for replica in variant.replicas:
                waiting += replica.waiting + max(0.0, replica.running - carried.decoding)
        backlog = self._backlog(group, waiting, seen.recent_rate() - supply, coming=coming > 0.0)
        if backlog < max(2.0, upper * self._span_s * 0.1):
            backlog = 0.0
        planned = upper * (1.0 + self._settings.headroom)
        surge = max(0.0, forecast.surge - planned)
        # What waits at a replica waits there: it costs that replica's capacity, and no more.
        drain_s = self._settings.drain_s
        drained = min(backlog / drain_s, supply + model.queued / drain_s)
        demand = planned + surge + drained
        missing = demand - supply - coming
        evidence = {
            "rate_seen": seen.recent_rate(),
            "rate_forecast": forecast.rate,
            "forecast_error": forecast.error,
            "rate_planned": planned,
            SURGE: surge,
            "waiting": waiting,
            "backlog_expected": backlog,
            "demand": demand,
            "capacity_ready": supply,
            "capacity_coming": coming,
            "capacity_per_replica": max(per_replica),
            "trust": seen.trust,
        }
        sentence = (
            f"Method {forecast.method!r} expects {forecast.rate:.3g}/s in "
            f"{seen.forecaster.ahead * self._span_s:.0f} s, at most {upper:.3g}/s"
            f" with probability {self._settings.probability:g}{_surging(forecast.surge, surge)}; "
            f"a replica carries {max(per_replica):.3g}/s ({bounds[0]} binds), "
            f"{supply:.3g}/s are ready and {coming:.3g}/s on their way."
        )
        return Finding(
            demand=demand,
            supply=supply,
            required=max(0.0, missing),
            spare=max(0.0, -missing) if seen.forecaster.is_judged else 0.0,
            per_replica=per_replica,
            evidence=evidence,
            sentence=sentence,
        )

    def _backlog(self, group: Group, waiting: float, excess: float, *, coming: bool) -> float:
        """What waits now, and what will by the time that something can be done about it.

        What was asked for lately is half way here, on the average.
        """
        startup_s = max(variant.spec.startup_s for variant in group.variants)
        return max(0.0, waiting + excess * (startup_s / 2.0 if coming else startup_s))

    def _carried(self, variant: Variant, seen: _Traffic, model: Model, replicas: int) -> Carried:
        """What a replica carries, remembered for lengths and sizes that are nearly the same."""
        goal = model.objective
        lengths = (
            _coarse(seen.prompt_tokens),
            _coarse(seen.output_tokens),
            round(seen.prefix_hit, 1),
            round(seen.prompt_cv, 1),
        )
        # How many share their luck matters by its root: powers of two are near enough.
        crowd = 2.0 ** round(math.log2(max(1, replicas)))
        key = (
            variant.name,
            lengths,
            crowd,
            (goal.ttft_s, goal.tpot_s, goal.e2e_s, goal.attained),
        )
        known = self._capacities.get(key)
        if known is None:
            shape = RequestMix(*lengths)
            carried = Carrier(variant, shape, goal).carried(crowd)
            if carried.rate <= 0.0:  # an SLO out of reach: queues shall at least not grow
                carried = Carrier(variant, shape, Objective()).carried(crowd)
            if len(self._capacities) >= _KEPT_CAPACITIES:
                self._capacities.clear()
            self._capacities[key] = known = carried
        return known


def _surging(rate: float, beyond: float) -> str:
    return f", and a surge is heading for {rate:.3g}/s" if beyond > 0.0 else ""


def _coarse(value: float) -> float:
    """The nearest power of 1.05."""
    return _COARSE ** round(math.log(max(1.0, value)) / math.log(_COARSE))

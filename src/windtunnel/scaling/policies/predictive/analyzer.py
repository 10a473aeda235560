"""The demand, in requests per second, when a replica requested now will be ready.

The forecast of arrivals, with a margin as large as the cost of misses justifies, is compared with
what replicas carry within the SLO by their step times and by experience. Lasting surges are
followed, and the backlog is added, since it must be worked off too.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, unknown
from windtunnel.scaling.policies.predictive.capacity import MOST_REPLICAS, Carried, capacity_of
from windtunnel.scaling.policies.predictive.experience import Experience
from windtunnel.scaling.policies.predictive.forecast import ENOUGH_ERRORS, Forecast, RateForecaster
from windtunnel.scaling.policies.predictive.keeping import SURGE, Keeping
from windtunnel.scaling.policies.predictive.mix import RequestMix
from windtunnel.scaling.policies.predictive.rise import LONGEST_S, Count, Rise, rise_of
from windtunnel.scaling.policies.predictive.surges import Surges
from windtunnel.scaling.policy import PolicyParts
from windtunnel.scaling.settings import Period, PolicySettings
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    RequestLengths,
    Variant,
    joined,
)
from windtunnel.settings.drawing import Dice, Values
from windtunnel.settings.fields import Duration, Number
from windtunnel.settings.limits import LONGEST_RUN, MOST_POINTS, MOST_TOKENS
from windtunnel.settings.section import Section

_FORGET: Final = 0.15
"""Weight of the latest bin in the mean lengths of requests,"""
_SAMPLE: Final = 20
"""if it has at least so many requests; fewer weigh less, and say nothing of how lengths vary."""
_PROMPT_CV: Final = 0.8
"""Variation of prompts assumed until it is measured."""
_COARSE: Final = 1.1
"""Lengths are rounded to steps of 10%, so that capacities need not be recomputed at every tick."""
_NEARLY_ALL: Final = 0.85
"""Prefix hits from here on are rounded to 1%: they decide on what is left to compute."""
_KEPT_CAPACITIES: Final = 4096
_BIN_S: Final = 15.0
"""Minimum length of the bins that are forecast: counts of fewer arrivals are mostly noise."""
_GLANCE_S: Final = 6.0
"""Window of the count that detects a surge."""
_USUAL: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
_DEAREST, _CHEAPEST = 1000.0, 1.5
"""Bounds on the price of a miss, in requests served."""


Rate = Annotated[float, Number(0, 1e9)]


class TrafficHistory(Section):
    """Traffic of a period similar to the coming one, such as yesterday."""

    rates: Annotated[list[Rate], Field(min_length=1, max_length=MOST_POINTS)] = Field(
        description="Requests per second of the model, one value per `every`."
    )
    every_s: Annotated[float, Duration("1s", "1h")] = Field(
        default=15.0, description="Time per value."
    )

    def binned(self, bin_s: float) -> list[float]:
        """The rates in bins of another length."""
        bins = max(1, int(len(self.rates) * self.every_s / bin_s))
        found = []
        for number in range(bins):
            first = int(number * bin_s / self.every_s)
            end = max(first + 1, int((number + 1) * bin_s / self.every_s))
            part = self.rates[first:end]
            found.append(sum(part) / len(part))
        return found


class PredictiveSettings(PolicySettings):
    """Windtunnel's own: sizes pools for the load expected once new replicas are ready, weighing
    cost against missed SLOs.
    """

    policy: Literal["predictive"]
    interval_s: Period = Field(default=2.0, description="Time between decisions.")
    missed_slo: Annotated[float, Number(0, 1e6, above=True)] | None = Field(
        default=None,
        description="Price of a missed SLO in dollars. Default: that of a request over the share "
        "that may miss (at 95%, 20 requests).",
    )
    season_s: Annotated[float, Duration("0s", LONGEST_RUN)] = Field(
        default=86_400.0,
        description="Period of the traffic; 0s: none.",
    )
    history: TrafficHistory | None = Field(
        default=None,
        description="Traffic of a similar period, such as yesterday.",
    )
    drain_s: Annotated[float, Duration("1s", "1h")] = Field(
        default=60.0, description="Time to work off a queue."
    )
    output_tokens: Annotated[float, Number(1, MOST_TOKENS)] = Field(
        default=256.0, description="Output tokens assumed until some are measured."
    )

    def parts(self) -> PolicyParts:
        return PolicyParts([Predictive(self)], limiters=[Keeping()])

    @classmethod
    def draw(cls, dice: Dice, pools: Sequence[str]) -> Values:
        return {
            "missed_slo": dice.pick(0.0001, 0.01, 1.0),
            "season": dice.pick(0, 20.0, 3600.0),
            "drain": dice.span(1.0, 100.0),
        }


class _Traffic:
    """The observed traffic of a model."""

    def __init__(self, forecaster: RateForecaster, startup_s: float, output_tokens: float) -> None:
        self.forecaster: Final = forecaster
        self.startup_s: Final = startup_s
        self.surges: Final = Surges(startup_s)
        self.experience: Final = Experience()
        self.prompt_tokens = 0.0
        self.output_tokens = output_tokens
        self.prefix_hit = 0.0
        self.prompt_cv = _PROMPT_CV
        self.answered = False
        self.rates: Final[deque[float]] = deque(maxlen=forecaster.memory)
        self._observed = 0  # bins of its own, without those of the given history
        self._bin: Final[list[Flow]] = []  # not a complete bin yet
        self._supplies: Final[list[float]] = []  # capacities of the same ticks, by step times
        self._surged = False  # whether a surge was active in this bin or at the end of the last
        self._lately: Final[deque[Flow]] = deque()
        self._lately_s = 0.0
        self._headings: Final[deque[tuple[float, float]]] = deque()  # time and rate

    def remember(self, rates: list[float]) -> None:
        """Learns from past rates, bin by bin, as if they had just been observed.

        Bursts as high as any of them are expected to recur.
        """
        self.forecaster.known_height = max(rates)
        bin_s = self.forecaster.bin_s
        for number, rate in enumerate(rates):
            at_s = (number - len(rates)) * bin_s
            if number:
                expected = self.forecaster.next_rate()
                self.surges.see(at_s, rate, expected, self._deviation(expected, bin_s))
            self.forecaster.see(rate)
            self.rates.append(rate)

    def _deviation(self, expected: float, window_s: float) -> float:
        """The standard deviation of the rate in a window: Poisson noise or usual variation."""
        usual = _USUAL * self.forecaster.usual_error()
        usual *= math.sqrt(self.forecaster.bin_s / window_s)
        return max(self.forecaster.counted(expected, window_s), usual)

    def gather(self, flow: Flow, now_s: float, allowed_late: float) -> None:
        """Takes in a flow: at once for surges, and for forecasts once a bin is complete."""
        if flow.interval_s <= 0.0:
            return
        self._lately.append(flow)
        self._lately_s += flow.interval_s
        longest_s = max(self.forecaster.bin_s, LONGEST_S)
        while self._lately_s - self._lately[0].interval_s >= longest_s - 1e-9:
            self._lately_s -= self._lately.popleft().interval_s
        if self.rates:  # before the forecasts include it: then nothing would look like a surge
            window_s, glance = self._rate(_GLANCE_S)
            expected = self.forecaster.next_rate()
            self.surges.see(now_s, glance, expected, self._deviation(expected, window_s))
        self._surged = self._surged or self.surges.active
        self._bin.append(flow)
        if sum(each.interval_s for each in self._bin) >= self.forecaster.bin_s - 1e-9:
            self._see(joined(self._bin), allowed_late)
            self._bin.clear()
            self._supplies.clear()
            self._surged = self.surges.active

    def _rate(self, window_s: float) -> tuple[float, float]:
        """The length of the latest window that is at least this long, and its rate."""
        counted_s = arrived = 0.0
        for flow in reversed(self._lately):
            counted_s += flow.interval_s
            arrived += flow.arrived
            if counted_s >= window_s - 1e-9:
                break
        return counted_s, arrived / counted_s if counted_s > 0.0 else 0.0

    def _see(self, flow: Flow, allowed_late: float) -> None:
        rate = flow.arrived / flow.interval_s
        self._observed += 1
        self.forecaster.see(rate)
        self.rates.append(rate)
        if flow.arrived > 0 and flow.lengths.prompt_tokens > 0.0:
            first = self.prompt_tokens == 0.0
            weight = 1.0 if first else _weight(flow.arrived)
            self.prompt_tokens += weight * (flow.lengths.prompt_tokens - self.prompt_tokens)
            if flow.arrived >= _SAMPLE:
                self.prompt_cv += weight * (flow.lengths.prompt_cv - self.prompt_cv)
        if flow.completed > 0 and flow.lengths.output_tokens > 0.0:
            weight = _weight(flow.completed) if self.answered else 1.0
            self.answered = True
            self.output_tokens += weight * (flow.lengths.output_tokens - self.output_tokens)
            self.prefix_hit += weight * (flow.lengths.prefix_hit - self.prefix_hit)
        if self._supplies:
            late = 1.0 - flow.met / flow.completed if flow.completed > 0 else 0.0
            load = rate * len(self._supplies) / sum(self._supplies)
            self.experience.see(load, late, flow.completed, allowed_late, surged=self._surged)

    @property
    def is_known(self) -> bool:
        """Whether it has been observed for longer than a start takes.

        Before, only short answers have ended, and a replica seems to carry more than it does.
        """
        return self._observed > self.forecaster.ahead

    def served_by(self, supply: float) -> None:
        """Records the ready capacity at this tick."""
        if supply > 0.0:
            self._supplies.append(supply)

    def recent_rate(self) -> float:
        """The rate over the last `bin_s`, wherever bins begin."""
        return self._rate(self.forecaster.bin_s)[1]

    def heading(self, now_s: float) -> float:
        """The rate that a followed surge or rise leads to; 0: none.

        A rise is expected to end where rates before it did. The maximum over a bin, so that noise
        does not cancel a requested replica.
        """
        if not self.surges.are_worth_a_start:
            return 0.0
        rise = self._rise()
        if rise is None and not self.surges.active:
            self._headings.clear()
            return 0.0
        leads = 0.0
        if rise is not None:
            leads = rise.ahead(self.startup_s)
            before = self.forecaster.highest_before(LONGEST_S)
            if rise.rate < before:
                leads = min(leads, before)
        if self.surges.active:
            leads = max(leads, self.surges.rate(now_s, _GLANCE_S, self.forecaster.highest))
        while self._headings and self._headings[0][0] <= now_s - self.forecaster.bin_s:
            self._headings.popleft()
        self._headings.append((now_s, leads))
        return max(leads for _, leads in self._headings)

    def _rise(self) -> Rise | None:
        counted = self.forecaster.counted(self.forecaster.next_rate())
        usual = _USUAL * self.forecaster.usual_error() / math.sqrt(2.0)  # of two counts
        counts = [Count(flow.interval_s, flow.arrived) for flow in self._lately]
        return rise_of(counts, max(1.0, usual / counted) ** 2)

    def state(self) -> dict[str, object]:
        return {
            "startup_s": self.startup_s,
            "miss_price": self.forecaster.miss_price,
            "known_height": self.forecaster.known_height,
            "rates": list(self.rates),
            "observed": self._observed,
            "lengths": [self.prompt_tokens, self.output_tokens, self.prefix_hit, self.prompt_cv],
            "answered": self.answered,
            "surges": self.surges.state(),
            "experience": self.experience.state(),
            "supplies": list(self._supplies),
            "surged": self._surged,
            "headings": [list(entry) for entry in self._headings],
            "bin": [_written(flow) for flow in self._bin],
            "lately": [_written(flow) for flow in self._lately],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.forecaster.miss_price = state["miss_price"]
        self.forecaster.known_height = state.get("known_height", 0.0)
        for rate in state["rates"]:
            self.forecaster.see(rate)
            self.rates.append(rate)
        self._observed = state.get("observed", len(self.rates))
        self.prompt_tokens, self.output_tokens, self.prefix_hit, self.prompt_cv = state["lengths"]
        self.answered = state["answered"]
        self.surges.restore(state["surges"])
        self.experience.restore(state["experience"])
        self._supplies.extend(state.get("supplies", []))
        self._surged = state.get("surged", False)
        self._headings.extend((at_s, rate) for at_s, rate in state.get("headings", []))
        self._bin.extend(_read(saved) for saved in state["bin"])
        self._lately.extend(_read(saved) for saved in state["lately"])
        self._lately_s = sum(flow.interval_s for flow in self._lately)


def _weight(requests: int) -> float:
    return _FORGET * min(1.0, requests / _SAMPLE)


def _written(flow: Flow) -> list[float]:
    """The fields of a flow that are used, as plain data."""
    lengths = flow.lengths
    return [
        flow.interval_s,
        flow.arrived,
        flow.completed,
        flow.met,
        lengths.prompt_tokens,
        lengths.prompt_cv,
        lengths.output_tokens,
        lengths.prefix_hit,
    ]


def _read(saved: list[float]) -> Flow:
    interval_s, arrived, completed, met, prompt, cv, output, hit = saved
    lengths = RequestLengths(prompt, prompt_cv=cv, output_tokens=output, prefix_hit=hit)
    return Flow(
        interval_s, arrived=int(arrived), completed=int(completed), met=int(met), lengths=lengths
    )


class Predictive(Analyzer):
    """Sizes roles for the arrivals expected when new replicas will be ready."""

    def __init__(self, settings: PredictiveSettings) -> None:
        super().__init__("predictive")
        self._settings: Final = settings
        self._bin_s: Final = max(settings.interval_s, _BIN_S)
        self._seen: Final[dict[str, _Traffic]] = {}
        self._capacities: Final[dict[object, Carried]] = {}

    def analyze(self, groups: list[Group], now_s: float) -> list[Finding]:
        model = groups[0].model
        if any(variant.spec.step_times is None for group in groups for variant in group.variants):
            return [unknown(group, "The step times of a variant are unknown.") for group in groups]
        seen = self._seen_of(model, groups)
        seen.gather(model.flow, now_s, 1.0 - model.objective.attained)
        if not seen.rates:
            return [unknown(group, "Too little traffic has been observed.") for group in groups]
        if seen.prompt_tokens == 0.0:
            idle = "No request has arrived yet."
            return [unknown(group, idle) for group in groups]
        carried = [self._carried_by(group, seen) for group in groups]
        ready = [
            sum(variant.ready * each.rate for variant, each in zip(group.variants, of, strict=True))
            for group, of in zip(groups, carried, strict=True)
        ]
        seen.served_by(min(ready))
        return [
            self._finding(group, seen, of, now_s) for group, of in zip(groups, carried, strict=True)
        ]

    def state(self) -> dict[str, object]:
        return {model: seen.state() for model, seen in self._seen.items()}

    def restore(self, state: dict[str, object]) -> None:
        for model, saved in state.items():
            assert isinstance(saved, dict)
            self._seen[model] = seen = self._empty(saved["startup_s"])
            seen.restore(saved)

    def _seen_of(self, model: Model, groups: list[Group]) -> _Traffic:
        seen = self._seen.get(model.name)
        if seen is None:
            specs = [variant.spec for group in groups for variant in group.variants]
            startup_s = max(spec.startup_s for spec in specs)
            self._seen[model.name] = seen = self._new(startup_s)
        return seen

    def _empty(self, startup_s: float) -> _Traffic:
        ahead = math.ceil(startup_s / self._bin_s) + 1
        forecaster = RateForecaster(self._bin_s, ahead, self._settings.season_s)
        return _Traffic(forecaster, startup_s, self._settings.output_tokens)

    def _new(self, startup_s: float) -> _Traffic:
        made = self._empty(startup_s)
        history = self._settings.history
        if history is not None:
            made.remember(history.binned(self._bin_s))
        return made

    def _carried_by(self, group: Group, seen: _Traffic) -> list[Carried]:
        wanted = max(1, group.current)
        return [self._carried(each, seen, group.model, wanted) for each in group.variants]

    def _miss_price(self, group: Group, per_replica: list[float]) -> float:
        """The price of a miss over that of serving a request; a replica without a price costs 1."""
        worth = self._settings.missed_slo
        if worth is None:
            return 1.0 / max(1.0 - group.model.objective.attained, 1e-3)
        served = min(
            (variant.spec.price_per_hour or 1.0) / 3600.0 / rate
            for variant, rate in zip(group.variants, per_replica, strict=True)
        )
        return min(max(worth / served, _CHEAPEST), _DEAREST)

    def _finding(
        self, group: Group, seen: _Traffic, carried: list[Carried], now_s: float
    ) -> Finding:
        model = group.model
        by_steps = [each.rate for each in carried]
        miss_price = self._miss_price(group, by_steps)
        seen.forecaster.miss_price = miss_price
        trust = seen.experience.factor(miss_price)
        per_replica = [rate * trust for rate in by_steps]
        forecast = seen.forecaster.forecast()
        planned = _whole(forecast, per_replica, by_share=self._settings.missed_slo is None)
        supply = coming = 0.0
        waiting = float(model.queued)
        for variant, each, rate in zip(group.variants, carried, per_replica, strict=True):
            leaving = max(0, variant.ready + variant.coming - variant.target)
            supply += max(0, variant.ready - leaving) * rate
            coming += variant.coming * rate
            for replica in variant.replicas:
                waiting += replica.waiting + max(0.0, replica.running - each.running)
        heading = seen.heading(now_s)
        followed = heading > 0.0
        surge = max(0.0, heading - planned)
        meanwhile = max(forecast.rate, seen.recent_rate()) if followed else forecast.rate
        backlog = self._backlog(group, waiting, meanwhile - supply, coming=coming > 0.0)
        if backlog < max(2.0, planned * self._bin_s * 0.1):
            backlog = 0.0
        # A request queued at a replica stays there and only costs that replica's capacity.
        drain_s = self._settings.drain_s
        drained = min(backlog / drain_s, supply + model.queued / drain_s)
        demand = planned + surge
        if drained > 0.0:  # the margin of the plan serves the queue, too
            demand = max(demand, meanwhile + drained)
        missing = demand - supply - coming
        evidence = {
            "rate_seen": seen.recent_rate(),
            "rate_forecast": forecast.rate,
            "forecast_error": forecast.error,
            "miss_price": miss_price,
            "rate_planned": planned,
            SURGE: surge,
            "surges_lasting": seen.surges.share_lasting,
            "waiting": waiting,
            "backlog_expected": backlog,
            "demand": demand,
            "capacity_ready": supply,
            "capacity_coming": coming,
            "capacity_per_replica": max(per_replica),
            "trust": trust,
        }
        sentence = (
            f"Method {forecast.method!r} expects {forecast.rate:.3g}/s in "
            f"{seen.forecaster.ahead * self._bin_s:.0f} s, and {planned:.3g}/s are planned for, "
            f"a miss being worth {miss_price:.3g} requests{_surging(seen.surges, surge)}; "
            f"a replica carries {max(per_replica):.3g}/s ({_binding(carried[0])}, "
            f"{trust:.2f} by experience), "
            f"{supply:.3g}/s are ready and {coming:.3g}/s on their way."
        )
        return Finding(
            demand=demand,
            supply=supply,
            required=max(0.0, missing),
            spare=max(0.0, -missing) if seen.is_known else 0.0,
            per_replica=per_replica,
            evidence=evidence,
            sentence=sentence,
        )

    def _backlog(self, group: Group, waiting: float, excess: float, *, coming: bool) -> float:
        """The queue now, and as it will be when new replicas are ready.

        Replicas already requested are half way through their start, on average.
        """
        startup_s = max(variant.spec.startup_s for variant in group.variants)
        return max(0.0, waiting + excess * (startup_s / 2.0 if coming else startup_s))

    def _carried(self, variant: Variant, seen: _Traffic, model: Model, replicas: int) -> Carried:
        """The capacity of a replica, cached for similar lengths and sizes."""
        goal = model.objective
        lengths = (
            _coarse(seen.prompt_tokens),
            _coarse(seen.output_tokens),
            round(seen.prefix_hit, 1 if seen.prefix_hit < _NEARLY_ALL else 2),
            round(seen.prompt_cv, 1),
        )
        crowd = min(MOST_REPLICAS, 2 ** round(math.log2(max(1, replicas))))
        key = (
            variant.name,
            lengths,
            crowd,
            (goal.ttft_s, goal.tpot_s, goal.e2e_s, goal.attained),
        )
        known = self._capacities.get(key)
        if known is None:
            if len(self._capacities) >= _KEPT_CAPACITIES:
                self._capacities.clear()
            known = capacity_of(variant, RequestMix(*lengths), goal, crowd)
            self._capacities[key] = known
        return known


def _whole(forecast: Forecast, per_replica: list[float], *, by_share: bool) -> float:
    """The plan rounded to whole replicas, up or down by the cost of misses, if all are alike.

    `by_share`: the price of a miss is in requests served. The requests of a pool that needs less
    than one replica share the price of one, so its last replica is removed only if almost nothing
    is expected.
    """
    planned = forecast.planned
    each = per_replica[0]
    if len(per_replica) > 1 or each <= 0.0 or len(forecast.errors) < ENOUGH_ERRORS:
        return planned
    fewer = math.floor(planned / each) * each
    more = fewer + each
    if fewer == 0.0 and by_share:
        shared = each / max(forecast.rate, each / _DEAREST)
        price = min(max(1.0, shared) * forecast.miss_price, _DEAREST)
        forecast = replace(forecast, miss_price=price)
    best = fewer if forecast.mean_loss(fewer) <= forecast.mean_loss(more) else more
    return best * (1.0 - 1e-9)


def _binding(carried: Carried) -> str:
    return f"{carried.bound} binds" if carried.reached else f"{carried.bound} is out of reach"


def _surging(surges: Surges, beyond: float) -> str:
    if beyond > 0.0:
        return f", with {beyond:.3g}/s more for a surge"
    if surges.active:
        lasted = f"{surges.share_lasting:.0%} of them last as long as a start"
        return f"; a surge is not followed, since {lasted}"
    return ""


def _coarse(value: float) -> float:
    """The nearest power of 1.1."""
    return _COARSE ** round(math.log(max(1.0, value)) / math.log(_COARSE))

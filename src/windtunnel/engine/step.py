"""The timing of steps: one step, and a run of equal steps.

For step k ending at e(k): `sync` plans step k+1 at e(k), and a step takes its time plus the host
overhead. `async` plans step k+2 at e(k), so what arrives or is freed during k counts from k+2 on,
and a step takes the longer of its time and the host overhead, which also precedes the first step
after idle time.
"""

import math
from typing import Final

from mypy_extensions import i64

from windtunnel.core.statistics.histogram import Histogram
from windtunnel.engine.limits import EngineLimits
from windtunnel.models.step_time.model import MeasuredBounds, StepTimeModel, StepWork
from windtunnel.workload.request import Request

NEVER: Final = math.inf


class Step:
    """One planned step, or a run of equal ones: which requests get a token, and when."""

    def __init__(self) -> None:
        self.first_admission: i64 = 0  # requests with this or a later one were admitted for it
        self.prompted: Final[list[Request]] = []  # their prompt ends here: they get a token
        self.finishing: Final[list[Request]] = []
        self.pauses: Final[list[float]] = []  # latest tokens of requests that missed steps since
        self.decodes: i64 = 0
        self.context: i64 = 0
        self.duration_s = 0.0  # of the first step
        self.factor = 1.0  # factor on the model's time
        self.base = 0.0  # the line for the time of a pure step, from this context on
        self.slope = 0.0
        self.until = 0.0
        self.width = 0.0  # its decodes and context as floats, which its times are computed from
        self.tokens = 0.0
        self.start_s = 0.0
        self.end_s = 0.0
        self.planned_s = 0.0  # when the next step is planned: later arrivals are not part of it
        self.clear()

    def clear(self) -> None:
        """Prepares the step to be planned again; fields that every plan sets are left alone."""
        self.drafted: i64 = 0  # tokens that decodes verify in addition to their own
        self.new_tokens: i64 = 0  # of prompts and drafts; these two only with measured bounds
        self.prompt: i64 = 0  # the longest context of a prompt with a chunk in the step
        self.pure = False  # every running request decodes, and each follows its latest token
        self.steps: i64 = 1
        self.passed = False  # whether the state is already that of the last step
        self.late_decodes: i64 = 0  # decodes that are among the pauses
        # Most lists are usually empty, and checking is cheaper than clearing.
        if self.prompted:
            self.prompted.clear()
        if self.finishing:
            self.finishing.clear()
        if self.pauses:
            self.pauses.clear()

    def note_sizes(self, work: StepWork) -> None:
        """Keeps the sizes of the step's chunks for `Extrapolation`, which runs when the chunks are
        gone."""
        self.new_tokens += work.drafted
        for chunk in work.chunks:
            self.new_tokens += chunk[0]
            reach = chunk[0] + chunk[1]
            if reach > self.prompt:
                self.prompt = reach


class StepClock:
    """Times steps with a step-time model, host overhead included."""

    def __init__(self, limits: EngineLimits, model: StepTimeModel) -> None:
        self._model: Final = model
        self._overlaps: Final = limits.async_scheduling
        self._ticks_per_s: Final = model.ticks_per_s()
        self._host_s: Final = on_tick(limits.host_overhead_s, self._ticks_per_s)

    def on_tick(self, time_s: float) -> float:
        return on_tick(time_s, self._ticks_per_s) if self._ticks_per_s else time_s

    def one(self, work: StepWork, factor: float, loads_s: float) -> float:
        """The time of a step, including the adapters that are used and loaded in it."""
        time_s = self._model.step_s(work) * factor + loads_s
        if self._ticks_per_s:
            time_s = on_tick(time_s, self._ticks_per_s)
        if not self._overlaps:
            return time_s + self._host_s
        return time_s if time_s > self._host_s else self._host_s

    def line(self, decodes: i64, context: i64, factor: float) -> tuple[float, float, float]:
        """The model's line for a decode step, including adapters and the host overhead."""
        base, slope, until = self._model.decode_line(decodes, context)
        if factor != 1.0:
            base = self.on_tick(base * factor)
            slope *= factor
        host = self._host_s
        if not self._overlaps:
            return base + host, slope, until
        if base + slope * float(context) >= host:
            return base, slope, until
        if slope <= 0.0:
            return host, 0.0, until
        return host, 0.0, min(until, max((host - base) / slope, float(context) + 0.5))

    def span(self, step: Step, steps: i64) -> float:
        """How long the first `steps` steps take."""
        decodes = step.decodes
        context = step.context
        total = 0.0
        while steps > 0:
            base, slope, until = self.line(decodes, context, step.factor)
            count = steps_on_line(steps, decodes, context, until)
            total += series(base, slope, float(decodes), float(context), float(count))
            context += count * decodes
            steps -= count
        return total

    def end_s(self, step: Step, steps: i64) -> float:
        """When the first `steps` steps have ended."""
        n = float(steps)
        if step.tokens + step.width * (n - 1.0) < step.until:
            end_s = step.start_s + series(step.base, step.slope, step.width, step.tokens, n)
        else:
            end_s = step.start_s + self.span(step, steps)
        return on_tick(end_s, self._ticks_per_s) if self._ticks_per_s else end_s

    def steps_until(self, step: Step, now: float) -> i64:
        """The number of steps up to the first that ends at `now` or later, at least one."""
        elapsed = now - step.start_s
        decodes = step.decodes
        context = step.context
        done: i64 = 0
        total = 0.0
        base, slope, until = step.base, step.slope, step.until
        while True:
            count = steps_on_line(step.steps - done, decodes, context, until)
            if done + count >= step.steps:
                break
            whole = series(base, slope, float(decodes), float(context), float(count))
            if total + whole >= elapsed:
                break
            total += whole
            done += count
            context += count * decodes
            base, slope, until = self.line(decodes, context, step.factor)
        first_s = base + slope * float(context)
        rest = step.steps - done
        guess = steps_to_cover(first_s, slope * float(decodes), elapsed - total, rest)
        steps = done + guess
        if steps < 1:
            steps = 1
        while steps > 1 and self.end_s(step, steps - 1) >= now:
            steps -= 1
        while steps < step.steps and self.end_s(step, steps) < now:
            steps += 1
        return steps

    def whole_steps(self, step: Step, now: float) -> i64:
        """How many of the steps have ended by now; 0 for a single step."""
        if step.steps == 1:
            return 0
        steps = self.steps_until(step, now)
        return steps if self.end_s(step, steps) <= now else steps - 1

    def count_gaps(self, step: Step, gaps: Histogram, overhead_s: float) -> None:
        """Counts the inter-token times of a run of equal steps."""
        decodes = step.decodes
        context = step.context
        steps = step.steps
        base, slope, until = step.base, step.slope, step.until
        while True:
            count = steps_on_line(steps, decodes, context, until)
            first_s = base + slope * float(context) + overhead_s
            gaps.add_series(first_s, slope * float(decodes), count, decodes)
            steps -= count
            if not steps:
                return
            context += count * decodes
            base, slope, until = self.line(decodes, context, step.factor)


class Extrapolation:
    """Steps, and their time, beyond the measured bounds of a model; also by which bound."""

    def __init__(self, bounds: MeasuredBounds) -> None:
        self.bounds: Final = bounds
        self.steps: i64 = 0  # beyond in at least one respect
        self.time_s = 0.0
        self.over_tokens: i64 = 0  # steps
        self.over_decodes: i64 = 0
        self.over_context: i64 = 0
        self.most_tokens: i64 = 0  # the largest among those steps
        self.most_decodes: i64 = 0
        self.most_context: i64 = 0

    def add(self, step: Step, clock: StepClock, steps: i64, begun: i64, elapsed_s: float) -> None:
        """Counts the first `steps` of a run of equal steps, of which `begun` have taken time.

        In such a run only the contexts grow, so it is within bounds up to some step and beyond them
        from there on.
        """
        bounds = self.bounds
        decodes: i64 = step.decodes
        tokens: i64 = step.new_tokens + decodes
        last: i64 = (steps if steps > begun else begun) - 1
        if (  # almost always
            step.context + last * decodes <= bounds.context * decodes
            and step.prompt <= bounds.prompt
            and tokens <= bounds.tokens
            and decodes <= bounds.decodes
        ):
            return
        within = self._within(step, decodes)
        if within < steps:
            self.over_context += steps - within
            self._note_context(step, decodes, steps)
        if tokens > bounds.tokens:
            within = 0
            self.over_tokens += steps
            if steps:
                self.most_tokens = max(self.most_tokens, tokens)
        if decodes > bounds.decodes:
            within = 0
            self.over_decodes += steps
            if steps:
                self.most_decodes = max(self.most_decodes, decodes)
        if within < steps:
            self.steps += steps - within
        if within == 0:
            self.time_s += elapsed_s
        elif within < begun:
            self.time_s += elapsed_s - clock.span(step, within)

    def _within(self, step: Step, decodes: i64) -> i64:
        """How many of the steps pass before a context exceeds its bound."""
        bounds = self.bounds
        if step.prompt > bounds.prompt:
            return 0
        if not decodes:
            return 1
        limit: i64 = bounds.context * decodes
        context: i64 = step.context
        return 0 if context > limit else (limit - context) // decodes + 1

    def _note_context(self, step: Step, decodes: i64, steps: i64) -> None:
        longest: i64 = step.prompt
        if decodes:
            mean: i64 = (step.context + decodes - 1) // decodes + steps - 1
            longest = max(longest, mean)
        self.most_context = max(self.most_context, longest)


def on_tick(time_s: float, ticks_per_s: float) -> float:
    """The nearest tick, so that equal times are equal to the last digit."""
    if ticks_per_s == 0.0:
        return time_s
    return math.floor(time_s * ticks_per_s + 0.5) / ticks_per_s


def steps_on_line(steps: i64, decodes: i64, context: i64, until: float) -> i64:
    """How many of the steps are timed by a line that is valid below the context `until`."""
    if until == NEVER:
        return steps
    most = (until - float(context)) / float(decodes)
    return steps if most >= float(steps) else math.ceil(most)


def series(base: float, slope: float, decodes: float, context: float, count: float) -> float:
    """The sum of base + slope * c over contexts c that grow by `decodes`."""
    return count * (base + slope * (context + decodes * (count - 1.0) * 0.5))


def steps_to_cover(first: float, increase: float, elapsed: float, most: i64) -> i64:
    """About how many terms, at most `most`, of an arithmetic series add up to `elapsed`."""
    if elapsed <= 0.0:
        return 0
    if increase <= 0.0:
        terms = elapsed / first
    else:
        half = first - increase / 2.0
        terms = (math.sqrt(half * half + 2.0 * increase * elapsed) - half) / increase
    return most if terms >= float(most) else math.ceil(terms)

"""The `table` step-time model: interpolates measured times, independent of hardware.

It takes two kinds of measurements. *Kernel tables* time the layers of a model one by one: dense
layers by tokens, the output head by sequences, attention by its four sizes. *Whole steps* are timed
end to end, as `windtunnel profile` writes them. `table_files.py` reads both.

Between knots, times are linear along each axis. Below the smallest knot they are constant; above
the largest they are extrapolated from the last two, but never decrease. So a time is never
negative, and rises with an axis wherever the measurements do.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from windtunnel.models.step_time.model import MeasuredBounds, StepTimeModel, StepWork

__all__ = ["Grid", "Table", "TimeCurve"]


class TimeCurve:
    """Measured times along one axis."""

    def __init__(self, knots: list[float], times: list[float]) -> None:
        assert len(knots) == len(times) >= 1
        self.knots = knots
        self.times = times

    def at(self, x: float) -> float:
        base, slope, _ = self.line(x)
        return base + slope * x

    def line(self, x: float) -> tuple[float, float, float]:
        """(base, slope, until): the time is base + slope * y for every y in [x, until)."""
        knots = self.knots
        times = self.times
        above = bisect_right(knots, x)
        if above == 0:
            return times[0], 0.0, knots[0]
        until = math.inf
        if above == len(knots):
            if above == 1:
                return times[0], 0.0, until
            above -= 1
        else:
            until = knots[above]
        slope = (times[above] - times[above - 1]) / (knots[above] - knots[above - 1])
        if until == math.inf:
            slope = max(slope, 0.0)
            return times[above] - slope * knots[above], slope, until
        return times[above - 1] - slope * knots[above - 1], slope, until


class Grid:
    """Measured times over several axes, outermost first; each part has knots of its own.

    The innermost axis is a curve. Regions that were measured more densely than others therefore
    need no filling in.
    """

    def __init__(self, knots: list[float], parts: list[Grid], curves: list[TimeCurve]) -> None:
        assert len(knots) == len(parts) + len(curves) >= 1
        self.knots = knots
        self.parts = parts
        self.curves = curves

    def at(self, place: tuple[float, float, float, float], axis: int) -> float:
        """The time at a place, using its axes from `axis` on."""
        knots = self.knots
        x = place[axis]
        above = bisect_right(knots, x)
        if above == 0:
            return self._part(0, place, axis)
        if above == len(knots):
            last = self._part(above - 1, place, axis)
            if above == 1 or x == knots[above - 1]:
                return last
            rise = max(0.0, last - self._part(above - 2, place, axis))
            return last + rise * ((x - knots[above - 1]) / (knots[above - 1] - knots[above - 2]))
        low = self._part(above - 1, place, axis)
        if x == knots[above - 1]:
            return low
        high = self._part(above, place, axis)
        return low + (high - low) * ((x - knots[above - 1]) / (knots[above] - knots[above - 1]))

    def _part(self, index: int, place: tuple[float, float, float, float], axis: int) -> float:
        if self.curves:
            return self.curves[index].at(place[axis + 1])
        return self.parts[index].at(place, axis + 1)

    def curve(self, x: float) -> TimeCurve:
        """The inner curve of a two-axis grid at `x`, with the knots of both neighbours."""
        knots = self.knots
        above = min(max(bisect_right(knots, x), 1), len(knots) - 1)
        if len(knots) == 1 or x <= knots[0]:
            return self.curves[0]
        low, high = self.curves[above - 1], self.curves[above]
        share = (x - knots[above - 1]) / (knots[above] - knots[above - 1])
        merged = sorted({*low.knots, *high.knots})
        times: list[float] = []
        for knot in merged:
            near = high.at(knot)
            if share > 1.0:
                times.append(near + max(0.0, near - low.at(knot)) * (share - 1.0))
            else:
                times.append(low.at(knot) * (1.0 - share) + near * share)
        return TimeCurve(merged, times)


class Table(StepTimeModel):
    """Interpolates measurements of one model on one accelerator.

    `prompt` is the time of one chunk over (new tokens, tokens cached before them), `decode` that of
    a decode batch over (sequences, mean context), `mixed` that of both together over all four;
    kernel tables add `tokens` (all layers but attention, by tokens) and `sequences` (the output
    head). `per_step_s` is added to every step: kernel tables include neither the gaps between
    kernels nor host time, which a recorded run shows (`calibrate --replay`).
    """

    def __init__(
        self,
        prompt: Grid,
        decode: Grid,
        mixed: Grid | None,
        mixed_prior: float,
        tokens: TimeCurve | None,
        sequences: TimeCurve | None,
        per_step_s: float = 0.0,
        bounds: MeasuredBounds | None = None,
    ) -> None:
        self.prompt = prompt
        self.decode = decode
        self.mixed = mixed
        self.mixed_prior = mixed_prior  # the longest prior context among the mixed measurements
        self.tokens = tokens
        self.sequences = sequences
        self.per_step_s = per_step_s
        self.bounds = bounds
        self.least_s = min(min(curve.times) for curve in decode.curves)
        self._decode_curves: dict[int, TimeCurve] = {}

    def with_per_step(self, per_step_s: float) -> Table:
        """The same measurements with another fixed time per step."""
        return Table(
            self.prompt,
            self.decode,
            self.mixed,
            self.mixed_prior,
            self.tokens,
            self.sequences,
            per_step_s,
            self.bounds,
        )

    def measured(self) -> MeasuredBounds | None:
        return self.bounds

    def step_s(self, work: StepWork) -> float:
        if not work.chunks:
            base, slope, _ = self.decode_line(work.decodes, work.context)
            return base + slope * work.context
        new = 0
        for chunk in work.chunks:
            new += chunk[0]
        time_s = self.per_step_s + self._prompts(work, new)
        if work.decodes:
            time_s += self._decodes_beside(work, new)
        if self.tokens is not None:
            time_s += self.tokens.at(float(new + work.decodes))
        if self.sequences is not None and work.samples:
            time_s += self.sequences.at(float(work.samples))
        return time_s

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        curve = self._decode_curves.get(decodes)
        if curve is None:
            curve = self._decode_curve(decodes)
            self._decode_curves[decodes] = curve
        return curve.line(float(context))

    def _decode_curve(self, decodes: int) -> TimeCurve:
        """The time of a decode batch by its total context."""
        mean = self.decode.curve(float(decodes))
        fixed = self.per_step_s
        if self.tokens is not None:
            fixed += self.tokens.at(float(decodes))
        if self.sequences is not None:
            fixed += self.sequences.at(float(decodes))
        if decodes == 0:  # an empty step: no shorter than the shortest measured
            return TimeCurve([0.0], [fixed + mean.times[0]])
        return TimeCurve(
            [decodes * knot for knot in mean.knots], [fixed + time for time in mean.times]
        )

    def _prompts(self, work: StepWork, new: int) -> float:
        """The time of a step's chunks: attention alone in kernel tables, everything in whole
        steps."""
        alone = 0.0
        most = 0.0
        pairs = 0.0
        for tokens, cached, _ in work.chunks:
            time_s = self.prompt.at((float(tokens), float(cached), 0.0, 0.0), 0)
            alone += time_s
            most = max(most, time_s)
            pairs += tokens * (cached + tokens / 2)
        if self.tokens is not None or len(work.chunks) == 1:
            return alone
        # Whole steps include the reading of the weights, which several chunks share: together they
        # take as long as one chunk of all their tokens that attends to as many token pairs.
        prior = pairs / new - new / 2
        joint = self.prompt.at((float(new), abs(prior), 0.0, 0.0), 0)
        if prior < 0.0:
            joint = 2.0 * self.prompt.at((float(new), 0.0, 0.0, 0.0), 0) - joint
        return max(joint, most)

    def _decodes_beside(self, work: StepWork, new: int) -> float:
        """The time that decodes add to a step with chunks."""
        mean = work.context / work.decodes
        if self.mixed is None:
            beside = self.decode.at((float(work.decodes), mean, 0.0, 0.0), 0)
            return beside if self.tokens is not None else max(0.0, beside - self.least_s)
        prior = 0.0
        for tokens, cached, _ in work.chunks:
            prior += tokens * cached
        prior = min(prior / new, self.mixed_prior)
        place = (float(new), prior, float(work.decodes), mean)
        return max(0.0, self.mixed.at(place, 0) - self.prompt.at(place, 0))

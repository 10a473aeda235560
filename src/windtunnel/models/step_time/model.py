"""The interface of step-time models: the seam between engine and hardware."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

__all__ = [
    "NO_BOUND",
    "Longer",
    "MeasuredBounds",
    "Scaled",
    "StepTimeModel",
    "StepWork",
    "largest_share",
    "tokens_of",
]

NO_BOUND: Final = 1 << 40
"""Larger than any count in a step, and small enough to be multiplied."""


class StepWork:
    """The work of one engine step; a StepTimeModel says how long it takes."""

    __slots__ = ("chunks", "context", "decodes", "drafted", "samples")

    def __init__(
        self,
        chunks: list[tuple[int, int, int]],
        decodes: int,
        context: int,
        samples: int,
        drafted: int = 0,
    ) -> None:
        self.chunks = chunks  # prefill: (new tokens, tokens already cached, full prompt length)
        self.decodes = decodes  # sequences that generate one token
        self.context = context  # sum over those of the tokens cached before this step
        self.samples = (
            samples  # positions with logits: decodes, drafts and chunks that end their prompt
        )
        self.drafted = drafted  # drafted tokens that decodes verify, in total


def tokens_of(work: StepWork) -> int:
    """All tokens that a step computes."""
    tokens = work.decodes + work.drafted
    for chunk in work.chunks:
        tokens += chunk[0]
    return tokens


def largest_share(work: StepWork, parts: int, longest: int = NO_BOUND) -> StepWork:
    """The largest share, by tokens, of a step that is divided into `parts`.

    Decodes are divided evenly; each chunk goes to the least loaded part, in pieces of at most
    `longest` tokens.
    """
    if parts == 1:
        return work
    decodes = (work.decodes + parts - 1) // parts
    drafted, context = 0, 0
    if decodes:
        drafted = (work.drafted * decodes + work.decodes - 1) // work.decodes
        context = work.context * decodes // work.decodes
    loads = [0] * parts
    chosen: list[list[tuple[int, int, int]]] = [[] for _ in range(parts)]
    for new, cached, prompt in work.chunks:
        start, end = cached, cached + new
        while start < end:
            piece = min(end - start, longest)
            least = 0
            for part in range(1, parts):
                if loads[part] < loads[least]:
                    least = part
            loads[least] += piece
            chosen[least].append((piece, start, prompt))
            start += piece
    most = 0
    for part in range(1, parts):
        if loads[part] > loads[most]:
            most = part
    chunks = chosen[most]
    samples = decodes + drafted
    for new, cached, prompt in chunks:
        if new + cached >= prompt:
            samples += 1
    return StepWork(chunks, decodes, context, samples, drafted)


class MeasuredBounds:
    """The largest steps that a model was fitted to or checked against; beyond them it
    extrapolates."""

    __slots__ = ("context", "decodes", "prompt", "tokens")

    def __init__(self, tokens: int, decodes: int, context: int, prompt: int) -> None:
        self.tokens = min(tokens, NO_BOUND)  # of one step, prompts and decodes together
        self.decodes = min(decodes, NO_BOUND)  # sequences that decode in one step
        self.context = min(context, NO_BOUND)  # of a decoding sequence; of a batch, the mean
        self.prompt = min(prompt, NO_BOUND)  # up to the end of a chunk: cached and new tokens


# A researcher's own model is an ordinary Python class, so a compiled build must let it inherit.
@mypyc_attr(allow_interpreted_subclasses=True)
class StepTimeModel:
    """How long a step takes on the GPU, in seconds. Host time between steps belongs to the
    engine."""

    def step_s(self, work: StepWork) -> float:
        raise NotImplementedError

    def ticks_per_s(self) -> float:
        """Ticks per second of the model's clock, on which steps end; 0 if time is continuous.

        With ticks, every step takes a whole number of them, so decode lines have no slope.
        """
        return 0.0

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        """(base, slope, until): `decodes` sequences without prefill take base + slope * c.

        That holds for every total context c in [context, until); `until` is always above `context`,
        and infinite if the line never changes. It lets the engine sum many steps in closed form.
        """
        raise NotImplementedError

    def measured(self) -> MeasuredBounds | None:
        """The range of the measurements behind the model; None if there are none."""
        return None


class Longer(StepTimeModel):
    """Another model with a constant added to every step, for time that its parts do not show."""

    def __init__(self, inner: StepTimeModel, extra_s: float) -> None:
        self.inner: Final = inner
        self.extra_s: Final = extra_s

    def step_s(self, work: StepWork) -> float:
        return self.inner.step_s(work) + self.extra_s

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        base, slope, until = self.inner.decode_line(decodes, context)
        return base + self.extra_s, slope, until

    def measured(self) -> MeasuredBounds | None:
        return self.inner.measured()


class Scaled(StepTimeModel):
    """Another model with every step time multiplied by `factor`, to study errors in them."""

    def __init__(self, inner: StepTimeModel, factor: float) -> None:
        assert factor > 0.0
        self.inner: Final = inner
        self.factor: Final = factor

    def step_s(self, work: StepWork) -> float:
        return self.factor * self.inner.step_s(work)

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        base, slope, until = self.inner.decode_line(decodes, context)
        return self.factor * base, self.factor * slope, until

    def measured(self) -> MeasuredBounds | None:
        return self.inner.measured()

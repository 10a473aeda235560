"""Settings of token counts, turns and pauses: a number or a distribution."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from pydantic import AfterValidator, Field

from windtunnel.core.units import format_duration
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import (
    Duration,
    FilePath,
    Leaf,
    Number,
    Share,
    Whole,
    chosen_by,
    is_not,
    shown,
    variant,
)
from windtunnel.settings.limits import (
    LARGEST_CV,
    LARGEST_WEIGHT,
    LONGEST_THINK,
    MOST_OBSERVED,
    MOST_TOKENS,
)
from windtunnel.settings.section import Context, Section
from windtunnel.workload.distributions import Lengths, Times

Tokens = Annotated[int, Whole(1, MOST_TOKENS)]
MeanTokens = Annotated[float, Number(1, MOST_TOKENS)]
Spread = Annotated[float, Number(0, LARGEST_CV)]
Pause = Annotated[float, Duration("0s", LONGEST_THINK)]


class ConstantLengths(Section):
    """Constant; the same as a bare number."""

    distribution: Literal["constant"]
    value: Tokens = Field(description="Tokens of every request.")

    def drawn(self, most: int = MOST_TOKENS) -> Lengths:  # noqa: ARG002 - never more than itself
        return Lengths("constant", float(self.value), 0.0, self.value, self.value)


class UniformLengths(Section):
    """Uniform whole numbers between two bounds."""

    distribution: Literal["uniform"]
    min: Tokens = Field(description="Fewest tokens.")
    max: Tokens = Field(description="Most tokens, itself included.")

    def drawn(self, most: int = MOST_TOKENS) -> Lengths:  # noqa: ARG002 - never more than max
        mean = (self.min + self.max) / 2
        stddev = math.sqrt(((self.max - self.min + 1) ** 2 - 1) / 12)
        return Lengths("uniform", mean, stddev / mean, self.min, self.max)

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min > self.max:
            what = f"{self.min} is more than max, which is {self.max}"
            yield where.fault("min", what, beside=("max",))


class BoundedLengths(Section):
    """Settings that distributions with optional bounds share."""

    mean: MeanTokens = Field(description="Mean tokens, before clamping to min and max.")
    min: Tokens = Field(default=1, description="Lower bound; at least 1.")
    max: Tokens = Field(
        default=MOST_TOKENS,
        description="Upper bound. Default: limited only by the engine.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min > self.max:
            what = f"{self.min} is more than max, which is {self.max}"
            yield where.fault("min", what, beside=("max",))
        elif not self.min <= self.mean <= self.max:
            what = f"{self.mean:g} is not between min and max"
            allowed = f"a number from {self.min} to {self.max}"
            yield where.fault("mean", what, allowed, beside=("mean", "min", "max"))

    def bounded(self, distribution: str, cv: float, most: int) -> Lengths:
        return Lengths(distribution, self.mean, cv, self.min, min(self.max, most))


class NormalLengths(BoundedLengths):
    """Normal, clamped to min and max; give stddev or cv."""

    distribution: Literal["normal"]
    stddev: Annotated[float, Number(0, MOST_TOKENS)] | None = Field(
        default=None, description="Standard deviation in tokens; this or cv."
    )
    cv: Spread | None = Field(default=None, description="Coefficient of variation; this or stddev.")

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        if (self.stddev is None) == (self.cv is None):
            given = self.cv is not None
            what = "both stddev and cv are given" if given else "missing, and so is cv"
            beside = ("cv", "distribution")
            yield where.fault("stddev", what, "either stddev or cv", beside=beside)

    def drawn(self, most: int = MOST_TOKENS) -> Lengths:
        cv = self.cv if self.cv is not None else (self.stddev or 0.0) / self.mean
        return self.bounded("normal", cv, most)


class LognormalLengths(BoundedLengths):
    """Lognormal: typical of chat traffic."""

    distribution: Literal["lognormal"]
    cv: Spread = Field(
        description="Coefficient of variation of the tokens (not of their logarithm)."
    )

    def drawn(self, most: int = MOST_TOKENS) -> Lengths:
        return self.bounded("lognormal", self.cv, most)


class ExponentialLengths(BoundedLengths):
    """Exponential; the standard deviation equals the mean."""

    distribution: Literal["exponential"]

    def drawn(self, most: int = MOST_TOKENS) -> Lengths:
        return self.bounded("exponential", 1.0, most)


class ParetoTail(Section):
    """The Pareto part: few draws, some of them very long."""

    share: Annotated[float, Share(above=True)] = Field(description="Share of all draws.")
    start: MeanTokens = Field(description="Minimum in tokens.")
    alpha: Annotated[float, Number(0.1, 100)] = Field(
        description="Tail index: twice as long is 2^alpha times as rare. The mean is start x alpha "
        "/ (alpha - 1); at 1 or less only max bounds it."
    )


class ParetoLognormalLengths(BoundedLengths):
    """Lognormal (mean and cv) with a Pareto tail."""

    distribution: Literal["pareto-lognormal"]
    cv: Spread = Field(description="Coefficient of variation of the lognormal part.")
    tail: ParetoTail = Field(description="The Pareto tail.")

    def check(self, where: Context) -> Iterator[Fault]:
        yield from super().check(where)
        if self.tail.start >= self.max:
            what = f"{self.tail.start:g} is not below max, so that all of the tail would be max"
            yield where.fault(("tail", "start"), what, f"below {self.max}", beside=("max",))

    def drawn(self, most: int = MOST_TOKENS) -> Lengths:
        tail = self.tail
        return msgspec.structs.replace(
            self.bounded("pareto-lognormal", self.cv, most),
            tail_alpha=tail.alpha,
            tail_start=tail.start,
            tail_share=tail.share,
        )


class ObservedLengths(Leaf):
    """Observed lengths: each a whole number, or a pair of a whole number and its weight."""

    allowed = (
        f"a list of whole numbers from 1 to {MOST_TOKENS}, or of pairs [tokens, weight], "
        f"at most {MOST_OBSERVED}"
    )
    _token: dict[str, object] = {"type": "integer", "minimum": 1, "maximum": MOST_TOKENS}  # noqa: RUF012
    _weight: dict[str, object] = {"type": "number", "minimum": 0}  # noqa: RUF012 - as above
    schema = {  # noqa: RUF012 - a constant that no instance changes
        "type": "array",
        "minItems": 1,
        "maxItems": MOST_OBSERVED,
        "items": {
            "anyOf": [
                _token,
                {"type": "array", "prefixItems": [_token, _weight], "minItems": 2, "maxItems": 2},
            ]
        },
    }

    def check(self, value: object) -> tuple[tuple[int, float], ...]:
        if not isinstance(value, list) or not value:
            self.fail(is_not(value, "a list of lengths") if value != [] else "the list is empty")
        if len(value) > MOST_OBSERVED:
            self.fail(f"there are {len(value)} of them", "a file can have more: give its `path`")
        pairs = tuple(self._pair(number, item) for number, item in enumerate(value, 1))
        if not any(weight for _, weight in pairs):
            self.fail("every weight is 0")
        return pairs

    def _pair(self, number: int, item: object) -> tuple[int, float]:
        both = item if isinstance(item, list) and len(item) == 2 else [item, 1.0]
        tokens, weight = both
        if isinstance(tokens, bool) or not isinstance(tokens, int | float) or tokens % 1:
            self.fail(f"item {number} is {shown(item)}")
        if not 1 <= tokens <= MOST_TOKENS:
            self.fail(f"item {number} has {shown(tokens)} tokens")
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            self.fail(f"the weight of item {number} is {shown(weight)}")
        if not 0 <= weight <= LARGEST_WEIGHT:
            self.fail(f"the weight of item {number} is {shown(weight)}", "0 or more")
        return int(tokens), float(weight)


class EmpiricalLengths(Section):
    """Observed lengths with their frequencies; give path or values."""

    distribution: Literal["empirical"]
    path: (
        Annotated[
            str, FilePath("the path of a file with a value, or a value and its weight, a line")
        ]
        | None
    ) = Field(
        default=None,
        description="`tokens` or `tokens,weight` per line, or JSON lines; this or values.",
    )
    values: Annotated[tuple[tuple[int, float], ...], ObservedLengths()] | None = Field(
        default=None, description="The lengths; this or path."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if (self.path is None) == (self.values is None):
            what = "missing, and so are values" if self.path is None else "both path and values"
            beside = ("values", "distribution")
            yield where.fault("path", what, "either path or values", beside=beside)

    def drawn(self, most: int = MOST_TOKENS) -> Lengths:
        if self.path is not None:
            return Lengths("empirical", 0.0, 0.0, 1, most, path=self.path)
        assert self.values is not None
        values, weights = zip(*self.values, strict=True)
        return Lengths("empirical", 0.0, 0.0, 1, most, values=values, weights=weights)


def _constant(tokens: int) -> ConstantLengths:
    return ConstantLengths(distribution="constant", value=tokens)


if TYPE_CHECKING:
    TokenCounts = (
        ConstantLengths
        | UniformLengths
        | NormalLengths
        | LognormalLengths
        | ExponentialLengths
        | ParetoLognormalLengths
        | EmpiricalLengths
    )
else:  # a bare number becomes a constant when it is checked
    TokenCounts = Annotated[
        Annotated[ConstantLengths, variant("constant")]
        | Annotated[UniformLengths, variant("uniform")]
        | Annotated[NormalLengths, variant("normal")]
        | Annotated[LognormalLengths, variant("lognormal")]
        | Annotated[ExponentialLengths, variant("exponential")]
        | Annotated[ParetoLognormalLengths, variant("pareto-lognormal")]
        | Annotated[EmpiricalLengths, variant("empirical")]
        | Annotated[
            int,
            Whole(1, MOST_TOKENS, instead="a mapping with a 'distribution'"),
            AfterValidator(_constant),
            variant("bare"),
        ],
        chosen_by(
            "distribution",
            "constant",
            "uniform",
            "normal",
            "lognormal",
            "exponential",
            "pareto-lognormal",
            "empirical",
            bare="bare",
        ),
    ]


class ConstantPause(Section):
    """Constant; the same as a bare duration."""

    distribution: Literal["constant"]
    value_s: Pause = Field(description="The pause.")

    def drawn(self) -> Times:
        return Times("constant", self.value_s, 0.0, self.value_s, self.value_s)


class UniformPause(Section):
    """Uniform between two bounds."""

    distribution: Literal["uniform"]
    min_s: Pause = Field(description="Shortest pause.")
    max_s: Pause = Field(description="Longest pause.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min_s > self.max_s:
            low, high = format_duration(self.min_s), format_duration(self.max_s)
            what = f"{low} is more than max, which is {high}"
            yield where.fault("min", what, beside=("max",))

    def drawn(self) -> Times:
        mean_s = (self.min_s + self.max_s) / 2
        stddev_s = (self.max_s - self.min_s) / math.sqrt(12)
        cv = stddev_s / mean_s if mean_s else 0.0
        return Times("uniform", mean_s, cv, self.min_s, self.max_s)


class BoundedPause(Section):
    """Settings that pauses with optional bounds share."""

    mean_s: Pause = Field(description="Mean, before clamping to min and max.")
    min_s: Pause = Field(default=0.0, description="Lower bound.")
    max_s: Pause = Field(default=86400.0, description="Upper bound.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min_s > self.max_s:
            low, high = format_duration(self.min_s), format_duration(self.max_s)
            what = f"{low} is more than max, which is {high}"
            yield where.fault("min", what, beside=("max",))
        elif not self.min_s <= self.mean_s <= self.max_s:
            what = f"{format_duration(self.mean_s)} is not between min and max"
            yield where.fault("mean", what, beside=("mean", "min", "max"))

    def bounded(self, distribution: str, cv: float) -> Times:
        return Times(distribution, self.mean_s, cv, self.min_s, self.max_s)


class ExponentialPause(BoundedPause):
    """Exponential; the standard deviation equals the mean."""

    distribution: Literal["exponential"]

    def drawn(self) -> Times:
        return self.bounded("exponential", 1.0)


class LognormalPause(BoundedPause):
    """Lognormal: typical of reading times."""

    distribution: Literal["lognormal"]
    cv: Spread = Field(description="Coefficient of variation.")

    def drawn(self) -> Times:
        return self.bounded("lognormal", self.cv)


def _constant_pause(seconds: float) -> ConstantPause:
    return ConstantPause(distribution="constant", value_s=seconds)


class _BarePause(Duration):
    """A bare duration, where a mapping is also allowed."""

    def __init__(self) -> None:
        super().__init__("0s", LONGEST_THINK)
        self.allowed += ", or a mapping with a 'distribution'"


if TYPE_CHECKING:
    Pauses = ConstantPause | UniformPause | ExponentialPause | LognormalPause
else:  # a bare number becomes a constant when it is checked
    Pauses = Annotated[
        Annotated[ConstantPause, variant("constant")]
        | Annotated[UniformPause, variant("uniform")]
        | Annotated[ExponentialPause, variant("exponential")]
        | Annotated[LognormalPause, variant("lognormal")]
        | Annotated[float, _BarePause(), AfterValidator(_constant_pause), variant("bare")],
        chosen_by("distribution", "constant", "uniform", "exponential", "lognormal", bare="bare"),
    ]

"""What a person writes for token counts, turns and pauses: a number, or a distribution."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from windtunnel.settings.fields import (
    Duration,
    FilePath,
    Leaf,
    Number,
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
from windtunnel.settings.section import Section

Tokens = Annotated[int, Whole(1, MOST_TOKENS)]
MeanTokens = Annotated[float, Number(1, MOST_TOKENS)]
Spread = Annotated[float, Number(0, LARGEST_CV)]
Pause = Annotated[float, Duration("0s", LONGEST_THINK)]


class ConstantLengths(Section):
    """Always the same; a bare number means this too."""

    distribution: Literal["constant"]
    value: Tokens = Field(description="Tokens of every request.")


class UniformLengths(Section):
    """Each whole number between two bounds is equally likely."""

    distribution: Literal["uniform"]
    min: Tokens = Field(description="Fewest tokens.")
    max: Tokens = Field(description="Most tokens, itself included.")


class BoundedLengths(Section):
    """What the distributions without bounds of their own have in common."""

    mean: MeanTokens = Field(description="Mean tokens, before draws are held within min and max.")
    min: Tokens = Field(
        default=1, description="Draws below this become this; no request has less than 1."
    )
    max: Tokens = Field(
        default=MOST_TOKENS,
        description="Draws above this become this; "
        "left out, only what the engine can hold limits them.",
    )


class NormalLengths(BoundedLengths):
    """A bell curve, held within min and max; give stddev or cv."""

    distribution: Literal["normal"]
    stddev: Annotated[float, Number(0, MOST_TOKENS)] | None = Field(
        default=None, description="Standard deviation in tokens; either this or cv."
    )
    cv: Spread | None = Field(
        default=None, description="Standard deviation over mean; either this or stddev."
    )


class LognormalLengths(BoundedLengths):
    """Many short, few long: what chat traffic looks like."""

    distribution: Literal["lognormal"]
    cv: Spread = Field(
        description="Standard deviation over mean, of the tokens (not of their logarithm)."
    )


class ExponentialLengths(BoundedLengths):
    """The shorter the likelier; its standard deviation equals its mean."""

    distribution: Literal["exponential"]


class TailSpec(Section):
    """The draws that are Pareto's: few, and now and then very long."""

    share: Annotated[float, Number(0, 1, above=True)] = Field(
        description="Which part of all draws they are."
    )
    start: MeanTokens = Field(description="Their shortest, in tokens.")
    alpha: Annotated[float, Number(0.1, 100)] = Field(
        description="How fast they fall off: twice as long is 2^alpha times as rare. "
        "Their mean is start x alpha / (alpha - 1); at 1 or less only max bounds it."
    )


class ParetoLognormalLengths(BoundedLengths):
    """Lognormal but for a part that is Pareto's; mean and cv are those of the lognormal part."""

    distribution: Literal["pareto-lognormal"]
    cv: Spread = Field(description="Standard deviation over mean of the lognormal part.")
    tail: TailSpec = Field(description="The part that is Pareto's.")


class Observed(Leaf):
    """Lengths that were seen: each a whole number, or a pair of one and its weight."""

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
    """Lengths that were seen somewhere, each as likely as it was there; give a path or values."""

    distribution: Literal["empirical"]
    path: (
        Annotated[
            str, FilePath("the path of a file with a value, or a value and its weight, a line")
        ]
        | None
    ) = Field(
        default=None,
        description="A file with `tokens` or `tokens,weight` a line, or the same as JSON lines; "
        "the path counts from the scenario's folder. Either this or values.",
    )
    values: Annotated[tuple[tuple[int, float], ...], Observed()] | None = Field(
        default=None, description="The lengths themselves; either this or path."
    )


def _constant(tokens: int) -> ConstantLengths:
    return ConstantLengths(distribution="constant", value=tokens)


Lengths = Annotated[
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
    """Always the same; a bare duration means this too."""

    distribution: Literal["constant"]
    value: Pause = Field(description="How long every pause is.")


class UniformPause(Section):
    """Anything between two bounds, equally likely."""

    distribution: Literal["uniform"]
    min: Pause = Field(description="The shortest.")
    max: Pause = Field(description="The longest.")


class BoundedPause(Section):
    """What pauses without bounds of their own have in common."""

    mean: Pause = Field(description="Mean, before draws are held within min and max.")
    min: Pause = Field(default=0.0, description="Draws below this become this.")
    max: Pause = Field(default=86400.0, description="Draws above this become this.")


class ExponentialPause(BoundedPause):
    """The shorter the likelier; its standard deviation equals its mean."""

    distribution: Literal["exponential"]


class LognormalPause(BoundedPause):
    """Mostly about the same, now and then far longer: how people read."""

    distribution: Literal["lognormal"]
    cv: Spread = Field(description="Standard deviation over mean.")


def _constant_pause(seconds: float) -> ConstantPause:
    return ConstantPause(distribution="constant", value=seconds)


class _BarePause(Duration):
    """A duration where a mapping may stand too."""

    def __init__(self) -> None:
        super().__init__("0s", LONGEST_THINK)
        self.allowed += ", or a mapping with a 'distribution'"


Pauses = Annotated[
    Annotated[ConstantPause, variant("constant")]
    | Annotated[UniformPause, variant("uniform")]
    | Annotated[ExponentialPause, variant("exponential")]
    | Annotated[LognormalPause, variant("lognormal")]
    | Annotated[float, _BarePause(), AfterValidator(_constant_pause), variant("bare")],
    chosen_by("distribution", "constant", "uniform", "exponential", "lognormal", bare="bare"),
]

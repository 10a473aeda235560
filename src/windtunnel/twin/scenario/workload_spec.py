"""What a person writes under `workload:` and `slo:`."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from windtunnel.twin.scenario.fields import Duration, Name, Number, Rate, Whole, chosen_by, variant
from windtunnel.twin.scenario.limits import (
    FASTEST_RATE,
    HIGHEST_PRIORITY,
    LARGEST_CV,
    LONGEST_TARGET,
    MOST_GROUPS,
    MOST_REQUESTS,
    MOST_TOKENS,
    SLOWEST_RATE,
)
from windtunnel.twin.scenario.section import Section

Tokens = Annotated[int, Whole(1, MOST_TOKENS)]
MeanTokens = Annotated[float, Number(1, MOST_TOKENS)]
Spread = Annotated[float, Number(0, LARGEST_CV)]
Burstiness = Annotated[float, Number(0.01, LARGEST_CV)]
RatePerS = Annotated[float, Rate(SLOWEST_RATE, FASTEST_RATE)]
Timeout = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]
Target = Annotated[float, Duration("0s", LONGEST_TARGET, above=True)]


class PoissonArrivals(Section):
    """Requests that know nothing of each other."""

    process: Literal["poisson"]
    rate: RatePerS = Field(description="Mean number of requests per second.")


class ConstantArrivals(Section):
    """One request after another at equal gaps."""

    process: Literal["constant"]
    rate: RatePerS = Field(description="Requests per second.")


class GammaArrivals(Section):
    """Gaps of a gamma distribution: bursts when cv is above 1, a steady beat when below."""

    process: Literal["gamma"]
    rate: RatePerS = Field(description="Mean number of requests per second.")
    cv: Burstiness = Field(
        description="Standard deviation over mean of the gaps; 1 is poisson, more comes in bursts."
    )


class WeibullArrivals(Section):
    """Gaps of a Weibull distribution: as gamma, with a longer tail when cv is above 1."""

    process: Literal["weibull"]
    rate: RatePerS = Field(description="Mean number of requests per second.")
    cv: Burstiness = Field(
        description="Standard deviation over mean of the gaps; 1 is poisson, more comes in bursts."
    )


Arrivals = Annotated[
    Annotated[PoissonArrivals, variant("poisson")]
    | Annotated[ConstantArrivals, variant("constant")]
    | Annotated[GammaArrivals, variant("gamma")]
    | Annotated[WeibullArrivals, variant("weibull")],
    chosen_by("process", "poisson", "constant", "gamma", "weibull"),
]


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


def _constant(tokens: int) -> ConstantLengths:
    return ConstantLengths(distribution="constant", value=tokens)


Lengths = Annotated[
    Annotated[ConstantLengths, variant("constant")]
    | Annotated[UniformLengths, variant("uniform")]
    | Annotated[NormalLengths, variant("normal")]
    | Annotated[LognormalLengths, variant("lognormal")]
    | Annotated[ExponentialLengths, variant("exponential")]
    | Annotated[
        int,
        Whole(1, MOST_TOKENS, instead="a mapping with a 'distribution'"),
        AfterValidator(_constant),
        variant("bare"),
    ],
    chosen_by(
        "distribution", "constant", "uniform", "normal", "lognormal", "exponential", bare="bare"
    ),
]


class PrefixSpec(Section):
    """System prompts that requests share, so that a prefix cache has something to find."""

    tokens: Tokens = Field(
        description="Shared tokens at the start of each prompt, in addition to prompt_tokens."
    )
    groups: Annotated[int, Whole(1, MOST_GROUPS)] = Field(
        default=1,
        description="How many different prefixes there are; each request has one at random.",
    )


class SourceSpec(Section):
    """One stream of requests; it draws from its own random stream, whatever other sources do."""

    name: Annotated[str, Name()] = Field(
        description="Its name in results. "
        "Its random draws depend on it and on the seed, nothing else."
    )
    tenant: Annotated[str, Name()] = Field(
        default="default", description="On whose behalf the requests come."
    )
    slo: Annotated[str, Name()] = Field(
        default="standard",
        description="Class of service: critical, standard, batch, sheddable, background, "
        "or one defined under `slo`.",
    )
    count: Annotated[int, Whole(1, MOST_REQUESTS)] | None = Field(
        default=None,
        description="Requests in all. Left out: until `duration`, which must then be given.",
    )
    arrivals: Arrivals = Field(description="When requests come; `process` chooses how.")
    prompt_tokens: Lengths = Field(
        description="Tokens of a prompt without its prefix: a whole number, or a distribution."
    )
    output_tokens: Lengths = Field(
        description="Tokens generated for a request: a whole number, or a distribution."
    )
    prefix: PrefixSpec | None = Field(
        default=None, description="Shared system prompts; left out, every prompt is new."
    )
    timeout: Timeout | None = Field(
        default=None,
        description="How long after its arrival whoever sent a request gives up; "
        "left out, everyone waits.",
    )


class SloSpec(Section):
    """A class of service: its priority, and the times that count as good."""

    priority: Annotated[int, Whole(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)] | None = Field(
        default=None,
        description="Higher goes first; below 0 may be shed. Left out: what the built-in class has "
        "(critical 4, standard 3, batch -1, sheddable -2, background -3); "
        "a class of your own needs one.",
    )
    ttft: Target | None = Field(
        default=None, description="Longest time to the first token; left out, no target."
    )
    tpot: Target | None = Field(
        default=None, description="Longest mean time per further token; left out, no target."
    )
    e2e: Target | None = Field(
        default=None,
        description="Longest time from arrival to the last token; left out, no target.",
    )

"""Random requests of observed lengths, on which the capacity of a replica is tried."""

import math
from statistics import NormalDist
from typing import Final, NamedTuple

from windtunnel.core.random import Stream

_OUTPUT_CV: Final = 0.8
"""Standard deviation of output lengths over their mean, which is not observed."""
_DRAWN: Final = 500
"""Requests that are drawn together."""
_LONGEST: Final = 1e6
"""Bound on drawn lengths in tokens."""
_SEED: Final = 20
_NEW_IN_A_HIT: Final = 0.1
"""Share of new tokens in a prompt that continues an earlier one, at most."""


class RequestMix(NamedTuple):
    """The requests of a period: their mean lengths, and the variation of their prompts."""

    prompt_tokens: float
    output_tokens: float
    prefix_hit: float = 0.0
    prompt_cv: float = 0.8
    """Standard deviation of prompt lengths over their mean."""


class DrawnRequests:
    """Random requests of one mix, the same at every call."""

    def __init__(self, mix: RequestMix, role: str) -> None:
        self._mix: Final = mix
        self._role: Final = role
        self._random: Final = Stream(_SEED, "requests of a replica")
        self.gaps: Final[list[float]] = []
        """Times between arrivals, in mean gaps."""
        self.prompts: Final[list[float]] = []
        self.new: Final[list[float]] = []
        """Prompt tokens to be computed."""
        self.outputs: Final[list[int]] = []

    def draw(self) -> None:
        """Adds requests whose gaps and lengths are spread evenly over their distributions.

        So that means are nearly exact, and few requests suffice.
        """
        mix, role = self._mix, self._role
        self.gaps.extend([-math.log1p(-share) for share in self._shares()])
        prompts = self._lognormal(mix.prompt_tokens, mix.prompt_cv)
        outputs = self._lognormal(mix.output_tokens, _OUTPUT_CV)
        self.prompts.extend(prompts)
        self.new.extend(self._computed(prompts))
        self.outputs.extend([1 if role == "prefill" else round(output) for output in outputs])

    def _computed(self, prompts: list[float]) -> list[float]:
        """The tokens that are not in the prefix cache: few of an earlier prompt's continuation."""
        if self._role == "decode":
            return [0.0] * len(prompts)
        hit = min(max(self._mix.prefix_hit, 0.0), 1.0)
        new = min(_NEW_IN_A_HIT, 1.0 - hit)
        continued = hit / (1.0 - new)
        return [
            max(1.0, prompt * new if share < continued else prompt)
            for prompt, share in zip(prompts, self._shares(), strict=True)
        ]

    def _lognormal(self, mean: float, cv: float) -> list[float]:
        variance = math.log1p(cv**2)
        deviation, middle = math.sqrt(variance), math.log(max(1.0, mean)) - variance / 2.0
        normal = NormalDist(middle, deviation) if deviation > 0.0 else None
        logs = [middle if normal is None else normal.inv_cdf(share) for share in self._shares()]
        return [math.exp(min(max(log, 0.0), math.log(_LONGEST))) for log in logs]

    def _shares(self) -> list[float]:
        """The middles of equal parts of 0..1, in random order."""
        shares = [(number + 0.5) / _DRAWN for number in range(_DRAWN)]
        for last in range(_DRAWN - 1, 0, -1):
            other = self._random.integer(0, last)
            shares[last], shares[other] = shares[other], shares[last]
        return shares

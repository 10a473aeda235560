"""What a person writes about LoRA adapters: who asks for them, and what a server does with them."""

from typing import Annotated

from pydantic import Field

from windtunnel.settings.fields import Name, Number, Whole
from windtunnel.settings.limits import LARGEST_WEIGHT, MOST_ADAPTERS
from windtunnel.settings.section import Section

Weight = Annotated[float, Number(0, LARGEST_WEIGHT, above=True)]


class AdaptersSpec(Section):
    """Which LoRA adapter a request is for. Sources that name the same adapter share it."""

    weights: dict[Annotated[str, Name()], Weight] | None = Field(
        default=None,
        description="Adapters by name, and how often each is asked for relative to the others.",
    )
    count: Annotated[int, Whole(1, MOST_ADAPTERS)] | None = Field(
        default=None,
        description="Instead of weights: so many adapters, `adapter-0`, `adapter-1` and so on.",
    )
    skew: Annotated[float, Number(0, 10)] | None = Field(
        default=None,
        description="With count: the n-th adapter is asked for in proportion to 1 / n^skew. "
        "Left out: 0, all equally often; 1 is what many catalogues come to.",
    )

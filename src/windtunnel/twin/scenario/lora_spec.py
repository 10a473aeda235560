"""What a person writes about LoRA adapters: who asks for them, and what a server does with them."""

from typing import Annotated

from pydantic import Field

from windtunnel.settings.fields import Duration, Name, Number, Size, Whole
from windtunnel.settings.limits import LARGEST_WEIGHT, LONGEST_STEP_COST, MOST_ADAPTERS
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


class LoraSpec(Section):
    """LoRA adapters on a server."""

    slots: Annotated[int, Whole(1, MOST_ADAPTERS)] = Field(
        default=1,
        description="Adapters on the accelerator at once, and so in one batch: "
        "vLLM's max_loras, with its default.",
    )
    load: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        default=0.005,
        description="Time to bring an adapter from the host's memory into a slot; the step that "
        "needs it first takes so much longer. 5ms: 100 MB over a bus of 20 GB/s.",
    )
    step_cost: Annotated[float, Number(0, 10)] = Field(
        default=0.03,
        description="Each adapter in a batch makes its steps longer by this share. 0.03 is an "
        "assumption for rank 16; lower ranks cost less, higher ones more.",
    )
    memory: Annotated[float, Size("0B", "1TB")] = Field(
        default=0.0,
        description="Memory of one slot on each accelerator, whether it is full or not; "
        "with `kv_blocks: auto` there are so many fewer blocks.",
    )

"""What a person writes under `engine.offload:`."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.settings.fields import Bandwidth, Duration, Size
from windtunnel.settings.limits import LONGEST_STEP_COST
from windtunnel.settings.section import Section


class TierSpec(Section):
    """A place below the accelerator, where cached KV goes that it has no room for."""

    tier: Literal["cpu", "disk", "remote"] = Field(
        description="The host's memory, a disk of the machine, or a store elsewhere. "
        "What the first evicts goes to the second."
    )
    size: Annotated[float, Size("0B", "100PB", above=True)] = Field(
        description="How much KV of one server fits there."
    )
    bandwidth: Annotated[float, Bandwidth("1kB/s", "1PB/s")] | None = Field(
        default=None,
        description="Bytes per second from there to a server's accelerators, one load after "
        "another. Left out: `cpu` 25GB/s, `disk` 7GB/s, `remote` 1GB/s.",
    )
    latency: Annotated[float, Duration("0s", LONGEST_STEP_COST)] | None = Field(
        default=None,
        description="From the last byte to its use. "
        "Left out: `cpu` 10us, `disk` 100us, `remote` 30ms.",
    )

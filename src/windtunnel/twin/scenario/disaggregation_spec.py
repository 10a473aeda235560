"""What a person writes under `serving.disaggregation:` and `serving.encode:`."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.settings.fields import Bandwidth, Duration, Flag, Size, Whole
from windtunnel.settings.limits import LONGEST_STEP_COST, MOST_REPLICAS, MOST_TOKENS
from windtunnel.settings.section import Section


class TransferSpec(Section):
    """The way of KV from a prefill server to a decode server."""

    bandwidth: Annotated[float, Bandwidth("1kB/s", "1PB/s")] = Field(
        default=25e9, description="Bytes per second of the link between the servers."
    )
    latency: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        default=50e-6, description="From the end of the prefill to the first byte."
    )
    contention: Annotated[bool, Flag()] = Field(
        default=True,
        description="Whether all transfers share the bandwidth; if not, each has all of it.",
    )
    bytes_per_token: Annotated[float, Size("1B", "1GB")] | None = Field(
        default=None, description="KV of one token. Left out: what the model needs."
    )


class DisaggregationSpec(Section):
    """Prompts are computed on some servers and answers written on others."""

    decider: Literal["always", "never", "prefix-threshold"] = Field(
        default="always",
        description="Which requests are split: `always` all, `never` none, `prefix-threshold` "
        "those of whose prompt the decoding server lacks more than `threshold` tokens. "
        "What is not split runs whole on a server of role `decode` or `both`.",
    )
    threshold: Annotated[int, Whole(0, MOST_TOKENS)] | None = Field(
        default=None, description="Tokens, for `prefix-threshold` alone; left out: 16."
    )
    transfer: TransferSpec = Field(
        default_factory=TransferSpec, description="How KV gets across; left out: every default."
    )


class EncodeSpec(Section):
    """Encoders that images and sound pass before their request is routed, first come first."""

    servers: Annotated[int, Whole(1, MOST_REPLICAS)] = Field(
        default=1, description="How many encoders; one request each at a time."
    )
    fixed: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        default=0.005, description="Time of every request with media."
    )
    per_token: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        default=20e-6, description="Time of each media token beside that."
    )

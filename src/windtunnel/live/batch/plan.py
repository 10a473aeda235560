"""What a batch runs on: every option filled in, and nothing left to decide."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.live.wire.addresses import Api

ANSWER = "answer"
"""The only column, where no file names any."""


class LimiterKind(StrEnum):
    """How the number of calls in flight is found."""

    AIMD = "aimd"
    GRADIENT = "gradient"
    FIXED = "fixed"


class EndpointPlan(msgspec.Struct, frozen=True):
    """A server: its address, the variable that holds its key, and what it may be asked at once."""

    name: str
    url: str
    """Without a slash at the end; `/chat/completions` comes after it."""
    key_env: str = ""
    """Empty: no key."""
    concurrency: int = 64
    requests_per_minute: int = 0
    tokens_per_minute: int = 0


class ColumnPlan(msgspec.Struct, frozen=True):
    """One column: a template, and who answers it."""

    name: str
    prompt: str
    system: str = ""
    model: str = ""
    """Empty: the only model that there is."""
    endpoint: str = ""
    """Empty: any that has the model."""
    api: Api = Api.CHAT
    body: Mapping[str, Any] = {}
    """What else goes into every request: max_tokens, temperature and so on."""


class BatchPlan(msgspec.Struct, frozen=True):
    """Everything that a run needs to know."""

    input: Path
    output: Path
    endpoints: tuple[EndpointPlan, ...]
    columns: tuple[ColumnPlan, ...] = ()
    """Empty: each row is a request of its own."""
    model: str = ""
    """What to ask instead of the model that a row names."""
    api: Api = Api.CHAT
    """For rows that have a prompt and no column."""
    body: Mapping[str, Any] = {}
    tenant_field: str = ""
    tenant_weights: Mapping[str, int] = {}
    priority_field: str = ""
    group_rows: int = 256
    limiter: LimiterKind = LimiterKind.AIMD
    skip_bad: int = 19
    """How many rows that come back first may all be refused."""
    retries: int = 4
    retry_time_s: float = 600.0
    timeout_s: float = 600.0
    wait_s: float = 10.0
    """How long an endpoint may take to appear at the start."""
    resume: bool = False

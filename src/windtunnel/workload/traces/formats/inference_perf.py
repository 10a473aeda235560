"""Configurations of inference-perf: stages of load, and prompts of drawn lengths.

Requests are drawn from the file as inference-perf would send them; the same file always gives the
same requests. Of `load` its `type` constant or poisson, `stages` with `rate` and `duration`, the
`interval` between them and `lora_traffic_split` are read; of `data` the types `synthetic`, `random`
and `shared_prefix`.
"""

import math
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from windtunnel.core.errors import InputError
from windtunnel.core.files import read_bounded
from windtunnel.core.random import Stream
from windtunnel.workload.lengths import pick
from windtunnel.workload.traces.notes import TraceNotes
from windtunnel.workload.traces.record import LONGEST_TRACE_S, MOST_TOKENS, TraceRequest, key_of

ENDINGS = (".yaml", ".yml")
MOST_BYTES = 1 << 20
FASTEST_PER_S = 1e6


class _Part(BaseModel):
    """A mapping of the file; keys that decide nothing here are passed over."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Spread(_Part):
    """A distribution of token counts; what is left out is as in inference-perf."""

    type: Literal["normal", "skew_normal", "lognormal", "uniform", "poisson", "fixed"] = "normal"
    mean: float = Field(default=512.0, ge=1, le=MOST_TOKENS)
    std_dev: float = Field(default=200.0, ge=0, le=MOST_TOKENS)
    variance: float | None = Field(default=None, ge=0, le=MOST_TOKENS**2)
    skew: float = Field(default=0.0, ge=-1e6, le=1e6)
    min: int = Field(default=10, ge=0, le=MOST_TOKENS)
    max: int = Field(default=1024, ge=1, le=MOST_TOKENS)

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min is {self.min}, and max is {self.max}")
        return self

    def draw(self, stream: Stream) -> int:
        if self.type == "fixed":
            return int(self.mean)
        wide = self.std_dev if self.variance is None else math.sqrt(self.variance)
        if self.type == "uniform":
            drawn = stream.between(self.min, self.max)
        elif self.type == "lognormal":
            drawn = stream.lognormal(self.mean, wide / self.mean)
        elif self.type == "poisson":  # of hundreds of tokens: as good as normal
            drawn = stream.normal(self.mean, math.sqrt(self.mean))
        elif self.type == "skew_normal":
            drawn = self.mean + wide * _skewed(self.skew, stream)
        else:
            drawn = stream.normal(self.mean, wide)
        return max(1, self.min, min(self.max, math.floor(drawn + 0.5)))


def _skewed(skew: float, stream: Stream) -> float:
    """By Azzalini's method: of two normal numbers that go together, one in the way of the other."""
    along = skew / math.hypot(1.0, skew)
    sign, other = stream.normal(0.0, 1.0), stream.normal(0.0, 1.0)
    drawn = along * sign + math.sqrt(1.0 - along * along) * other
    return drawn if sign >= 0 else -drawn


def _spread(value: Any) -> Any:
    """A bare number of tokens is always the same."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"type": "fixed", "mean": value}
    return value


Tokens = Annotated[Spread, BeforeValidator(_spread)]


class Stage(_Part):
    """A while of load at one rate."""

    rate: float = Field(gt=0, le=FASTEST_PER_S)
    duration: float = Field(gt=0, le=LONGEST_TRACE_S)


class Split(_Part):
    """The part of requests that are for one LoRA adapter."""

    name: str = Field(min_length=1, max_length=200)
    split: float = Field(gt=0, le=1)


class Load(_Part):
    """When requests are sent."""

    type: Literal["constant", "poisson"] = "constant"
    interval: float = Field(default=1.0, ge=0, le=LONGEST_TRACE_S)
    stages: list[Stage] = Field(min_length=1, max_length=10_000)
    lora_traffic_split: list[Split] | None = None


class SharedPrefix(_Part):
    """System prompts that groups of requests share."""

    num_groups: int = Field(default=10, ge=1, le=10**6)
    system_prompt_len: Tokens = Spread(type="fixed", mean=100)
    question_len: Tokens = Spread(type="fixed", mean=50)
    output_len: Tokens = Spread(type="fixed", mean=50)
    question_distribution: Spread | None = None
    output_distribution: Spread | None = None
    enable_multi_turn_chat: Literal[False] = False

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, data: Any) -> Any:
        if isinstance(data, dict) and "num_unique_system_prompts" in data:
            return {"num_groups": data["num_unique_system_prompts"], **data}
        return data


class Data(_Part):
    """What is sent."""

    type: Literal["synthetic", "random", "shared_prefix"]
    input_distribution: Spread | None = None
    output_distribution: Spread | None = None
    shared_prefix: SharedPrefix | None = None


class Server(_Part):
    """Whom it was sent to."""

    model_name: str | None = Field(default=None, max_length=200)


class Configuration(_Part):
    """A whole file."""

    load: Load
    data: Data
    server: Server = Server()


def is_configuration(start: bytes) -> bool:
    """Whether a YAML file starts as one of these does."""
    lines = {line.partition(b":")[0] for line in start.splitlines()}
    return {b"load", b"data"} <= lines


def read(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Times count from the start of the first stage."""
    return _requests(_configuration(path), path, notes)


def _configuration(path: Path) -> Configuration:
    import yaml

    try:
        found = yaml.safe_load(read_bounded(path, MOST_BYTES))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError("the file is not YAML", where=str(path)) from None
    try:
        return Configuration.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        what = f"{place}: {first['msg'][0].lower()}{first['msg'][1:]}"
        hint = None
        if first["input"] == "concurrent":
            hint = "write a workload with arrivals: {process: closed, users: N, think: 0s}"
        raise InputError(what, where=str(path), hint=hint) from None


def _requests(plan: Configuration, path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    prompts = _Prompts(plan, path)
    arrivals = Stream(0, "inference-perf.arrivals")
    start_s = 0.0
    for stage in plan.load.stages:
        gap_s, end_s = 1.0 / stage.rate, start_s + stage.duration
        time_s = start_s
        if plan.load.type == "poisson":
            time_s += arrivals.exponential(gap_s)
        sent = 0
        while time_s < end_s and not math.isclose(time_s, end_s):
            request = prompts.make(time_s)
            if notes.accepts(request, 0):
                yield request
            sent += 1
            if plan.load.type == "poisson":
                time_s += arrivals.exponential(gap_s)
            else:
                time_s = start_s + sent * gap_s
        start_s = end_s + plan.load.interval


class _Prompts:
    """Draws what is sent."""

    def __init__(self, plan: Configuration, path: Path) -> None:
        data, self._model = plan.data, plan.server.model_name
        self._stream = Stream(0, "inference-perf.prompts")
        self._shared: list[int] = []  # tokens of the system prompt, by group
        splits = plan.load.lora_traffic_split or []
        self._adapters = [one.name for one in splits]
        self._upto = list(accumulate(one.split for one in splits))
        if data.type == "shared_prefix":
            prefix = data.shared_prefix or _missing(path, "data.shared_prefix")
            system = Stream(0, "inference-perf.groups")
            self._shared = [prefix.system_prompt_len.draw(system) for _ in range(prefix.num_groups)]
            self._prompts = prefix.question_distribution or prefix.question_len
            self._answers = prefix.output_distribution or prefix.output_len
        else:
            self._prompts = data.input_distribution or _missing(path, "data.input_distribution")
            self._answers = data.output_distribution or _missing(path, "data.output_distribution")

    def make(self, time_s: float) -> TraceRequest:
        stream = self._stream
        keys: tuple[int, ...] = ()
        ends: tuple[int, ...] = ()
        shared = 0
        if self._shared:
            group = stream.integer(0, len(self._shared) - 1)
            shared = self._shared[group]
            keys, ends = (key_of(f"group-{group}"),), (shared,)
        return TraceRequest(
            time_s,
            shared + self._prompts.draw(stream),
            self._answers.draw(stream),
            model=self._model,
            adapter=self._adapters[pick(self._upto, stream)] if self._adapters else None,
            prefix_keys=keys,
            prefix_ends=ends,
        )


def _missing(path: Path, key: str) -> NoReturn:
    raise InputError(f"{key} is missing", where=str(path))

"""Configurations of inference-perf: stages of load, and prompts of drawn lengths.

Requests are drawn from the file as inference-perf would send them; the same file always gives the
same requests. Of `load` its `type` constant or poisson, `stages` with `rate` and `duration`, and
`lora_traffic_split` are read; of `data` the types `synthetic`, `random` and `shared_prefix`.
"""

import math
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

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
    """A distribution of token counts."""

    type: Literal["normal", "uniform", "fixed"] = "normal"
    mean: float = Field(ge=1, le=MOST_TOKENS)
    std_dev: float = Field(default=0.0, ge=0, le=MOST_TOKENS)
    min: int = Field(default=1, ge=0, le=MOST_TOKENS)
    max: int = Field(default=MOST_TOKENS, ge=1, le=MOST_TOKENS)

    def draw(self, stream: Stream) -> int:
        if self.type == "uniform":
            drawn = stream.between(self.min, self.max)
        elif self.type == "fixed" or not self.std_dev:
            drawn = self.mean
        else:
            drawn = stream.normal(self.mean, self.std_dev)
        return max(1, self.min, min(self.max, math.floor(drawn + 0.5)))


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
    stages: list[Stage] = Field(min_length=1, max_length=10_000)
    lora_traffic_split: list[Split] | None = None


class SharedPrefix(_Part):
    """System prompts that groups of requests share."""

    num_groups: int = Field(default=10, ge=1, le=10**6)
    system_prompt_len: int = Field(default=100, ge=1, le=MOST_TOKENS)
    question_len: int = Field(default=50, ge=1, le=MOST_TOKENS)
    output_len: int = Field(default=50, ge=1, le=MOST_TOKENS)
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
        raise InputError(what, where=str(path)) from None


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
        start_s = end_s


class _Prompts:
    """Draws what is sent."""

    def __init__(self, plan: Configuration, path: Path) -> None:
        data, self._model = plan.data, plan.server.model_name
        self._stream = Stream(0, "inference-perf.prompts")
        self._groups, self._shared = 0, 0
        splits = plan.load.lora_traffic_split or []
        self._adapters = [one.name for one in splits]
        self._upto = list(accumulate(one.split for one in splits))
        if data.type == "shared_prefix":
            prefix = data.shared_prefix or _missing(path, "data.shared_prefix")
            self._groups, self._shared = prefix.num_groups, prefix.system_prompt_len
            question = Spread(type="fixed", mean=prefix.question_len)
            answer = Spread(type="fixed", mean=prefix.output_len)
            self._prompts = prefix.question_distribution or question
            self._answers = prefix.output_distribution or answer
        else:
            self._prompts = data.input_distribution or _missing(path, "data.input_distribution")
            self._answers = data.output_distribution or _missing(path, "data.output_distribution")

    def make(self, time_s: float) -> TraceRequest:
        stream = self._stream
        keys: tuple[int, ...] = ()
        ends: tuple[int, ...] = ()
        if self._groups:
            keys = (key_of(f"group-{stream.integer(0, self._groups - 1)}"),)
            ends = (self._shared,)
        return TraceRequest(
            time_s,
            self._shared + self._prompts.draw(stream),
            self._answers.draw(stream),
            model=self._model,
            adapter=self._adapters[pick(self._upto, stream)] if self._adapters else None,
            prefix_keys=keys,
            prefix_ends=ends,
        )


def _missing(path: Path, key: str) -> NoReturn:
    raise InputError(f"{key} is missing", where=str(path))

"""inference-perf configurations: stages of load, and prompts with random lengths.

Requests are drawn from the file as inference-perf would send them; the same file always gives the
same requests. Read from `load`: `type` (constant, poisson or concurrent), `stages` with `rate` and
`duration` or `num_requests` and `concurrency_level`, the `interval` between stages, and
`lora_traffic_split`. Read from `data`: the types `synthetic`, `random`, `shared_prefix` and
`conversation_replay`. A chat is a session, and so is a worker of a concurrent load.
"""

import math
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.core.system.files import read_bounded
from windtunnel.workload.lengths import pick
from windtunnel.workload.traces.notes import TraceNotes
from windtunnel.workload.traces.record import LONGEST_TRACE_S, MOST_TOKENS, TraceRequest, key_of

ENDINGS = (".yaml", ".yml")
MOST_BYTES = 1 << 20
FASTEST_PER_S = 1e6
MOST_REQUESTS = 10**8
LONGEST_CHAT = 1000
"""Turns of one chat; each prompt contains all earlier turns."""


class _Part(BaseModel):
    """A mapping of the file; keys without effect here are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Spread(_Part):
    """A distribution of token counts, with the defaults of inference-perf."""

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
        elif self.type == "poisson":  # close to normal for hundreds of tokens
            drawn = stream.normal(self.mean, math.sqrt(self.mean))
        elif self.type == "skew_normal":
            drawn = self.mean + wide * _skewed(self.skew, stream)
        else:
            drawn = stream.normal(self.mean, wide)
        return max(1, self.min, min(self.max, math.floor(drawn + 0.5)))


def _skewed(skew: float, stream: Stream) -> float:
    """Draws a standard skew-normal number by Azzalini's method, from two correlated normals."""
    along = skew / math.hypot(1.0, skew)
    sign, other = stream.normal(0.0, 1.0), stream.normal(0.0, 1.0)
    drawn = along * sign + math.sqrt(1.0 - along * along) * other
    return drawn if sign >= 0 else -drawn


def _spread(value: Any) -> Any:
    """Turns a bare number of tokens into a constant distribution."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"type": "fixed", "mean": value}
    return value


Tokens = Annotated[Spread, BeforeValidator(_spread)]


class PerfStage(_Part):
    """A stage of load: a rate for a duration, or a number of requests at a concurrency."""

    rate: float | None = Field(default=None, gt=0, le=FASTEST_PER_S)
    duration: float | None = Field(default=None, gt=0, le=LONGEST_TRACE_S)
    num_requests: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    concurrency_level: int | None = Field(default=None, ge=1, le=10**6)


class PerfSplit(_Part):
    """The share of requests for one LoRA adapter."""

    name: str = Field(min_length=1, max_length=200)
    split: float = Field(gt=0, le=1)


class PerfLoad(_Part):
    """The load: its type, its stages, and the share of each LoRA adapter."""

    type: Literal["constant", "poisson", "concurrent"] = "constant"
    interval: float = Field(default=1.0, ge=0, le=LONGEST_TRACE_S)
    stages: list[PerfStage] = Field(min_length=1, max_length=10_000)
    lora_traffic_split: list[PerfSplit] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        is_concurrent = self.type == "concurrent"
        needed = ("num_requests", "concurrency_level") if is_concurrent else ("rate", "duration")
        for number, stage in enumerate(self.stages):
            for key in needed:
                if getattr(stage, key) is None:
                    raise ValueError(f"stages.{number}.{key} is missing: the type is {self.type}")
        if is_concurrent and len(self.stages) > 1:
            raise ValueError("a concurrent load has one stage: the next begins when it has ended")
        return self


class SharedPrefix(_Part):
    """System prompts shared by groups of requests."""

    num_groups: int = Field(default=10, ge=1, le=10**6)
    num_prompts_per_group: int = Field(default=10, ge=1, le=10**6)
    system_prompt_len: Tokens = Spread(type="fixed", mean=100)
    question_len: Tokens = Spread(type="fixed", mean=50)
    output_len: Tokens = Spread(type="fixed", mean=50)
    question_distribution: Spread | None = None
    output_distribution: Spread | None = None
    enable_multi_turn_chat: bool = False

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, data: Any) -> Any:
        older = {
            "num_unique_system_prompts": "num_groups",
            "num_users_per_system_prompt": "num_prompts_per_group",
        }
        if isinstance(data, dict):
            named = {new: data[old] for old, new in older.items() if old in data}
            return {**named, **data}
        return data


class ConversationReplay(_Part):
    """Conversations, each with its own system prompt after a shared one."""

    num_conversations: int = Field(default=100, ge=1, le=10**6)
    shared_system_prompt_len: int = Field(default=0, ge=0, le=MOST_TOKENS)
    dynamic_system_prompt_len: Tokens | None = None
    turns_per_conversation: Tokens = Spread(type="fixed", mean=5)
    input_tokens_per_turn: Tokens = Spread(type="fixed", mean=100)
    output_tokens_per_turn: Tokens = Spread(type="fixed", mean=100)
    tool_call_latency_sec: Tokens | None = None


class Data(_Part):
    """The type of the prompts, and their lengths."""

    type: Literal["synthetic", "random", "shared_prefix", "conversation_replay"]
    conversation_replay: ConversationReplay | None = None
    input_distribution: Spread | None = None
    output_distribution: Spread | None = None
    shared_prefix: SharedPrefix | None = None


class PerfServer(_Part):
    """The server under test."""

    model_name: str | None = Field(default=None, max_length=200)


class PerfFile(_Part):
    """The whole file."""

    load: PerfLoad
    data: Data
    server: PerfServer = PerfServer()


def is_configuration(start: bytes) -> bool:
    """Whether a YAML file starts like an inference-perf configuration."""
    lines = {line.partition(b":")[0] for line in start.splitlines()}
    return {b"load", b"data"} <= lines


def read(path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    """Draws the requests of a file; times count from the start of the first stage."""
    plan = _configuration(path)
    notes.is_followed = plan.load.type == "concurrent"
    return _requests(plan, path, notes)


def _configuration(path: Path) -> PerfFile:
    import yaml

    try:
        found = yaml.safe_load(read_bounded(path, MOST_BYTES))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError("the file is not YAML", where=str(path)) from None
    try:
        return PerfFile.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        what = f"{place}: {first['msg'][0].lower()}{first['msg'][1:]}"
        raise InputError(what, where=str(path)) from None


def _requests(plan: PerfFile, path: Path, notes: TraceNotes) -> Iterator[TraceRequest]:
    prompts = _source(plan, path)
    if plan.load.type == "concurrent":
        stage = plan.load.stages[0]
        assert stage.num_requests is not None
        assert stage.concurrency_level is not None
        for number in range(stage.num_requests):
            request = prompts.make(0.0, number % stage.concurrency_level)
            if notes.accepts(request, 0):
                yield request
        return
    arrivals = Stream(0, "inference-perf.arrivals")
    start_s = 0.0
    for stage in plan.load.stages:
        assert stage.rate is not None
        assert stage.duration is not None
        gap_s, end_s = 1.0 / stage.rate, start_s + stage.duration
        time_s = start_s
        if plan.load.type == "poisson":
            time_s += arrivals.exponential(gap_s)
        sent = 0
        while time_s < end_s and not math.isclose(time_s, end_s):
            request = prompts.make(time_s, None)
            if notes.accepts(request, 0):
                yield request
            sent += 1
            if plan.load.type == "poisson":
                time_s += arrivals.exponential(gap_s)
            else:
                time_s = start_s + sent * gap_s
        start_s = end_s + plan.load.interval


class _Prompts:
    """Draws independent prompts, with shared system prompts if the file asks for them."""

    def __init__(self, plan: PerfFile, path: Path) -> None:
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

    def make(self, time_s: float, worker: int | None) -> TraceRequest:
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
            session=None if worker is None else f"worker-{worker}",
            think_s=None if worker is None else 0.0,
        )


class _Chat:
    """The conversation between a user and the model so far, in segments."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self._path = name, path
        self.keys: list[int] = []
        self.ends: list[int] = []
        self.turn = 0

    def say(self, what: str, tokens: int) -> None:
        if tokens:
            self.keys.append(key_of(what))
            self.ends.append((self.ends[-1] if self.ends else 0) + tokens)

    def ask(self, time_s: float, question: int, answer: int, **more: Any) -> TraceRequest:
        """The next turn: its prompt is the whole conversation so far plus a question."""
        if self.turn == LONGEST_CHAT:
            what = f"a chat has more than {LONGEST_CHAT} turns"
            raise InputError(what, where=str(self._path), hint="more users, or a shorter load")
        self.say(f"{self.name}/question-{self.turn}", question)
        said = f"{self.name}/answer-{self.turn}"
        request = TraceRequest(
            time_s,
            self.ends[-1],
            answer,
            turn=self.turn,
            prefix_keys=tuple(self.keys),
            prefix_ends=tuple(self.ends),
            answer_key=key_of(said),
            **more,
        )
        self.say(said, answer)
        self.turn += 1
        return request


class _Chats:
    """Chats of users who take turns; each prompt contains the chat so far."""

    def __init__(self, plan: PerfFile, prefix: SharedPrefix, path: Path) -> None:
        self._model = plan.server.model_name
        self._stream = Stream(0, "inference-perf.prompts")
        self._questions = prefix.question_distribution or prefix.question_len
        self._answers = prefix.output_distribution or prefix.output_len
        system = Stream(0, "inference-perf.groups")
        self._chats = []
        for group in range(prefix.num_groups):
            tokens = prefix.system_prompt_len.draw(system)
            for user in range(prefix.num_prompts_per_group):
                chat = _Chat(f"user-{group}-{user}", path)
                chat.say(f"group-{group}", tokens)
                self._chats.append(chat)
        self._next = 0

    def make(self, time_s: float, worker: int | None) -> TraceRequest:
        chat = self._chats[self._next % len(self._chats)]
        self._next += 1
        question, answer = self._questions.draw(self._stream), self._answers.draw(self._stream)
        session = chat.name if worker is None else f"worker-{worker}"
        think_s = None if worker is None else 0.0
        return chat.ask(
            time_s, question, answer, session=session, model=self._model, think_s=think_s
        )


class _Conversations:
    """Conversations one after another, one at a time per worker."""

    def __init__(self, plan: PerfFile, replay: ConversationReplay, path: Path) -> None:
        self._plan, self._path, self._model = replay, path, plan.server.model_name
        self._stream = Stream(0, "inference-perf.prompts")
        self._begun = 0
        self._live: dict[int | None, tuple[_Chat, int]] = {}

    def make(self, time_s: float, worker: int | None) -> TraceRequest:
        plan, stream = self._plan, self._stream
        chat, left = self._live.get(worker) or self._begin()
        self._live[worker] = (chat, left - 1)
        if left == 1:
            del self._live[worker]
        pause = plan.tool_call_latency_sec
        think_s = float(pause.draw(stream)) if pause is not None and chat.turn else 0.0
        session = chat.name if worker is None else f"worker-{worker}"
        question = plan.input_tokens_per_turn.draw(stream)
        answer = plan.output_tokens_per_turn.draw(stream)
        return chat.ask(
            time_s, question, answer, session=session, model=self._model, think_s=think_s
        )

    def _begin(self) -> tuple[_Chat, int]:
        """Starts the next conversation and draws its turns; after the last comes the first."""
        number = self._begun % self._plan.num_conversations
        self._begun += 1
        chat = _Chat(f"conversation-{number}", self._path)
        chat.say("system", self._plan.shared_system_prompt_len)
        own = self._plan.dynamic_system_prompt_len
        if own is not None:
            chat.say(f"{chat.name}/system", own.draw(self._stream))
        return chat, self._plan.turns_per_conversation.draw(self._stream)


def _source(plan: PerfFile, path: Path) -> _Prompts | _Chats | _Conversations:
    data = plan.data
    if data.type == "conversation_replay":
        if plan.load.type != "concurrent":
            what = "conversation_replay goes with a concurrent load"
            raise InputError(what, where=f"{path}: load.type")
        replay = data.conversation_replay or _missing(path, "data.conversation_replay")
        return _Conversations(plan, replay, path)
    prefix = data.shared_prefix
    if data.type == "shared_prefix" and prefix is not None and prefix.enable_multi_turn_chat:
        return _Chats(plan, prefix, path)
    return _Prompts(plan, path)


def _missing(path: Path, key: str) -> NoReturn:
    raise InputError(f"{key} is missing", where=str(path))

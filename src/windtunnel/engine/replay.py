"""Replays a recorded vLLM run through the engine, and compares simulated with measured latencies.

A run is a folder with `meta.json` (model, version, engine settings) and `requests.jsonl` (sizes,
and when each request arrived, was queued, was first scheduled, and produced its first and last
token). Arrivals are on the wall clock and the rest on the engine's own; the request with the
shortest time from arrival to queue gives the offset between the two.

One number is fitted: the time that every step takes beyond the step-time model. It is chosen so
that the simulated mean end-to-end latency equals the measured one, because that rises steadily with
it; the mean time per token does not, since other requests' prompts move to other steps. All other
figures are predictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.statistics.distribution import Distribution
from windtunnel.core.system.files import read_bounded, read_lines
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.server import Server
from windtunnel.engine.settings import EngineSettings
from windtunnel.models.step_time.model import StepTimeModel
from windtunnel.settings.limits import MOST_TENSOR_PARALLEL
from windtunnel.workload.request import Request

__all__ = [
    "Comparison",
    "ReplayedFigure",
    "RecordedRequest",
    "RecordedRun",
    "compare",
    "fit_per_step",
    "insist_on_setting",
    "read_run",
    "simulate",
]

MOST_BYTES = 256 << 20
LARGEST_SIZE = 10**8
LARGEST_SETTING = 1 << 40
LATEST_S = 1e10  # of either clock: three centuries after 1970
LONGEST_PER_STEP_S = 1.0
FIT_TOLERANCE = 2e-3  # of the fitted time, or of a microsecond where that is more
MOST_TRIALS = 60
ASYNC_BY_DEFAULT_SINCE = (0, 14)
SHARES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}

Size = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_SIZE)]
Degree = Annotated[int, msgspec.Meta(ge=1, le=MOST_TENSOR_PARALLEL)]


class RecordedRequest(msgspec.Struct, frozen=True):
    """One line of `requests.jsonl`; `arrival_time` is on a different clock from the rest."""

    input_toks: Size
    output_toks: Size
    arrival_time: float
    queued_ts: float
    scheduled_ts: float
    first_token_ts: float
    last_token_ts: float


class RecordedRun(msgspec.Struct, frozen=True):
    """A run of one server: its requests in order of arrival, and its known settings."""

    requests: tuple[RecordedRequest, ...]
    model: str = ""
    version: str = ""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    block_size: int = 16
    kv_blocks: int | None = None
    """None when not recorded; the replay then assumes unlimited KV memory."""
    async_scheduling: bool = True
    reserve_full_prompt: bool = True
    prefix_caching: bool = True
    long_prefill_threshold: int = 0
    tensor_parallel: Degree = 1
    data_parallel: Degree = 1
    pipeline_parallel: Degree = 1
    expert_parallel: bool = False
    kv_cache_dtype: str = "auto"
    quantization: str = ""

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.data_parallel * self.pipeline_parallel

    @property
    def clocks_apart_s(self) -> float:
        """The engine's clock minus the wall clock, plus the shortest time from arrival to queue."""
        return min(request.queued_ts - request.arrival_time for request in self.requests)

    def limits(self) -> EngineLimits:
        """The server's settings; where the KV cache size is unknown, one large enough for all
        requests."""
        blocks = self.kv_blocks
        if blocks is None:
            sizes = (request.input_toks + request.output_toks for request in self.requests)
            blocks = 2 + sum(-(-tokens // self.block_size) for tokens in sizes)
        options = EngineSettings(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            long_prefill_threshold=self.long_prefill_threshold,
            prefix_caching=self.prefix_caching,
            async_scheduling=self.async_scheduling,
            reserve_full_prompt=self.reserve_full_prompt,
        )
        return EngineLimits(
            options,
            blocks,
            self.max_model_len or 1 << 40,
            ranks=self.data_parallel,
            stages=self.pipeline_parallel,
        )


class ReplayedFigure(msgspec.Struct, frozen=True):
    """One latency figure in seconds; the error is relative to the measured one."""

    measured: float
    simulated: float
    error: float


class Comparison(msgspec.Struct, frozen=True):
    """The result of a replay."""

    requests: int
    per_step_s: float
    order_agreement: float
    """The share of requests that were first scheduled at the same position."""
    preemptions: int
    latency: dict[str, dict[str, ReplayedFigure]]
    """ttft, tpot, e2e -> mean, p50, p90, p99."""


# Reading


def read_run(folder: Path) -> RecordedRun:
    """Reads the run recorded in a folder."""
    requests = _read_requests(folder / "requests.jsonl")
    path = folder / "meta.json"
    try:
        meta = msgspec.json.decode(read_bounded(path, MOST_BYTES), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError("the file is not a JSON object", where=str(path)) from error
    return _with_settings(meta, requests, str(path))


def _read_requests(path: Path) -> tuple[RecordedRequest, ...]:
    found = read_lines(path, MOST_BYTES, _read_request)
    if not any(request.output_toks > 1 for request in found):
        what = "no request has two output tokens"
        raise InputError(what, where=str(path), allowed="at least one with time between tokens")
    return tuple(sorted(found, key=lambda request: request.arrival_time))


def _read_request(line: bytes, where: str) -> RecordedRequest:
    try:
        request = msgspec.json.decode(line, type=RecordedRequest)
    except msgspec.ValidationError as error:
        what = str(error)[0].lower() + str(error)[1:]
        raise InputError(f"not a request: {what}", where=where) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError("the line is not JSON", where=where) from error
    times = [
        request.queued_ts,
        request.scheduled_ts,
        request.first_token_ts,
        request.last_token_ts,
    ]
    for name in ("arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"):
        time_s = getattr(request, name)
        if not abs(time_s) <= LATEST_S:
            allowed = f"seconds from {-LATEST_S:.0f} to {LATEST_S:.0f}"
            raise InputError(f"{name} is {time_s:g}", where=where, allowed=allowed)
    if times != sorted(times):
        what = "the times are out of order"
        raise InputError(what, where=where, allowed="queued, scheduled, first token, last token")
    if request.output_toks > 1 and request.first_token_ts == request.last_token_ts:
        raise InputError("several tokens came at one instant", where=where)
    return request


def _with_settings(
    meta: dict[str, object], requests: tuple[RecordedRequest, ...], where: str
) -> RecordedRun:
    """Reads the settings as vLLM resolved them where recorded, otherwise as they were given."""
    given = _section(meta, "engine_kwargs")
    resolved = _section(_section(meta, "resolved_config"), "scheduler_config")
    cache = _section(meta, "kv_cache")
    version = str(meta.get("vllm_version", ""))
    fields: dict[str, object] = {
        "max_num_seqs": _first("max_num_seqs", resolved, given),
        "max_num_batched_tokens": _first("max_num_batched_tokens", resolved, given),
        "max_model_len": _first("max_model_len", resolved, given),
        "block_size": _first("block_size", cache, given),
        "kv_blocks": _first("num_gpu_blocks", cache),
        "async_scheduling": _first("async_scheduling", resolved, given),
        "reserve_full_prompt": _first("scheduler_reserve_full_isl", resolved, given),
        "prefix_caching": _first("enable_prefix_caching", given),
        "long_prefill_threshold": _first("long_prefill_token_threshold", resolved, given),
        "expert_parallel": _first("enable_expert_parallel", given),
        "kv_cache_dtype": _first("kv_cache_dtype", _section(meta, "resolved_config"), given),
        "quantization": _first("quantization", given),
    }
    if given.get("speculative_config"):
        what = "the server drafted tokens (speculative_config), which are not replayed"
        raise InputError(what, where=where, allowed="a run without drafts")
    for degree in ("tensor_parallel", "data_parallel", "pipeline_parallel"):
        fields[degree] = _first(f"{degree}_size", given)
    if fields["async_scheduling"] is None:
        fields["async_scheduling"] = _release(version) >= ASYNC_BY_DEFAULT_SINCE
    known = {name: value for name, value in fields.items() if value is not None}
    for name, value in known.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            insist_on_setting(name, value, where)
    try:
        settings = msgspec.convert(
            {"requests": (), "model": str(meta.get("model", "")), "version": version, **known},
            type=RecordedRun,
        )
    except msgspec.ValidationError as error:
        what = str(error)[0].lower() + str(error)[1:]
        raise InputError(f"not the settings of a server: {what}", where=where) from error
    if min(settings.max_num_seqs, settings.block_size) < 1:
        raise InputError("max_num_seqs or block_size is 0", where=where, allowed="1 or more")
    return msgspec.structs.replace(settings, requests=requests)


def insist_on_setting(name: str, value: float, where: str | None = None) -> None:
    """Raises an InputError unless the number is in the engine's range."""
    if not 0 <= value <= LARGEST_SETTING:
        shown = f"{value}" if len(f"{value}") <= 20 else f"{value}"[:17] + "..."
        allowed = f"at most {LARGEST_SETTING}" if value > 0 else "0 or more"
        raise InputError(f"{name} is {shown}", where=where, allowed=allowed)


def _section(holder: dict[str, object], name: str) -> dict[str, object]:
    section = holder.get(name)
    return {str(key): value for key, value in section.items()} if isinstance(section, dict) else {}


def _first(name: str, *sections: dict[str, object]) -> object:
    for section in sections:
        if section.get(name) is not None:
            return section[name]
    return None


def _release(version: str) -> tuple[int, int]:
    """Major and minor version; an unreadable version counts as a new one."""
    parts = version.removeprefix("v").split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return ASYNC_BY_DEFAULT_SINCE
    return int(parts[0]), int(parts[1])


# Replaying


def simulate(run: RecordedRun, model: StepTimeModel) -> list[Request]:
    """The requests as the engine served them, in order of arrival; times are from the first
    arrival."""
    start = run.requests[0].arrival_time
    requests = [
        Request(number, recorded.arrival_time - start, recorded.input_toks, recorded.output_toks)
        for number, recorded in enumerate(run.requests)
    ]
    server = Server(0, run.limits(), model)
    for request in requests:
        while server.wake_s < request.arrived_s:
            server.advance(server.wake_s)
        server.submit(request, request.arrived_s)
    while server.wake_s != math.inf:
        server.advance(server.wake_s)
    for request in requests:
        if request.reason:
            raise InputError(
                f"request {request.id + 1} cannot be replayed: {request.reason}",
                hint="the settings differ from those of the recorded server",
            )
    return requests


def fit_per_step(run: RecordedRun, model: Callable[[float], StepTimeModel]) -> float:
    """Fits the extra time per step with which the simulated mean latency equals the measured one.

    `model` builds a model with that time added. 0 when the simulated run is slower even without it.
    """
    measured = _mean(_measured(run)["e2e"])
    steps = _mean([request.output_toks for request in run.requests])

    def excess(per_step_s: float) -> float:
        return _mean(_simulated(simulate(run, model(per_step_s)))["e2e"]) - measured

    low, below = 0.0, excess(0.0)
    if below >= 0.0:
        return 0.0
    high = -below / steps
    above = excess(high)
    while above < 0.0 and high <= LONGEST_PER_STEP_S:
        low, below = high, above
        high *= 2.0
        above = excess(high)
    for _ in range(MOST_TRIALS):
        if above < 0.0 or high - low <= FIT_TOLERANCE * max(high, 1e-6):
            break
        # Interpolates between the two ends, but never so near one that the search stalls.
        share = min(max(-below / (above - below), 0.1), 0.9)
        middle = low + share * (high - low)
        value = excess(middle)
        if value < 0.0:
            low, below = middle, value
        else:
            high, above = middle, value
    if above < 0.0 or low > LONGEST_PER_STEP_S:
        what = f"steps would have to take {low:.1f} s longer than the measurements say"
        raise InputError(what, hint="they seem to come from another model or accelerator")
    return (low + high) / 2


# Comparing


def compare(run: RecordedRun, model: StepTimeModel, per_step_s: float) -> Comparison:
    """Compares simulated with measured latencies; `model` includes the fitted time per step."""
    requests = simulate(run, model)
    measured, simulated = _measured(run), _simulated(requests)
    latency = {name: _figures(measured[name], simulated[name]) for name in measured}
    first = [(recorded.scheduled_ts, number) for number, recorded in enumerate(run.requests)]
    second = [(request.scheduled_s, request.id) for request in requests]
    same = sum(a[1] == b[1] for a, b in zip(sorted(first), sorted(second), strict=True))
    return Comparison(
        requests=len(requests),
        per_step_s=per_step_s,
        order_agreement=same / len(requests),
        preemptions=sum(request.preemptions for request in requests),
        latency=latency,
    )


def _measured(run: RecordedRun) -> dict[str, list[float]]:
    apart = run.clocks_apart_s
    return {
        "ttft": [r.first_token_ts - apart - r.arrival_time for r in run.requests],
        "tpot": [
            (r.last_token_ts - r.first_token_ts) / (r.output_toks - 1)
            for r in run.requests
            if r.output_toks > 1
        ],
        "e2e": [r.last_token_ts - apart - r.arrival_time for r in run.requests],
    }


def _simulated(requests: Sequence[Request]) -> dict[str, list[float]]:
    return {
        "ttft": [r.first_token_s - r.arrived_s for r in requests],
        "tpot": [
            (r.finished_s - r.first_token_s) / float(r.output_tokens - 1)
            for r in requests
            if r.output_tokens > 1
        ],
        "e2e": [r.finished_s - r.arrived_s for r in requests],
    }


def _figures(measured: list[float], simulated: list[float]) -> dict[str, ReplayedFigure]:
    first, second = _distribution(measured), _distribution(simulated)
    found = {"mean": (first.mean(), second.mean())}
    for name, share in SHARES.items():
        found[name] = (first.quantile(share), second.quantile(share))
    return {name: ReplayedFigure(a, b, b / a - 1.0 if a else 0.0) for name, (a, b) in found.items()}


def _distribution(values: Sequence[float]) -> Distribution:
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    return distribution


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

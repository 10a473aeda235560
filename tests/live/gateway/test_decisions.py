"""The decisions alone, without sockets: the books are always right, and a replay agrees."""

import json
import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.live.event_log import EventLogFile
from windtunnel.live.gateway.audit import audit, starts_of
from windtunnel.live.gateway.data_path.bodies import (
    output_tokens_of,
    prompt_of,
    read_body,
    with_usage,
    without_fields,
)
from windtunnel.live.gateway.data_path.prompts import PromptReader
from windtunnel.live.gateway.decisions import SENT, GatewayCore
from windtunnel.live.gateway.facts import SEND, STOP, ModelCard, RequestArrival
from windtunnel.live.gateway.incident import LogStretch, cut_log
from windtunnel.live.gateway.probes import read_load
from windtunnel.live.gateway.settings import GatewayFile
from windtunnel.routing.availability import (
    CLOSED,
    OPEN,
    TRIAL,
    BreakerLimits,
    CircuitBreaker,
    RetryBudget,
)

FLOW = {
    "policy": "flow-control",
    "detector": {"kind": "concurrency", "max_per_server": 2},
    "max_waiting": 4,
    "ttl": "3s",
    "eviction": True,
}
ADMISSIONS: list[dict[str, Any]] = [
    {"policy": "always"},
    FLOW,
    {"policy": "flow-control", "order": "fifo"},
    {"policy": "token-bucket", "capacity": 500, "refill": "100/s"},
    {"policy": "tier-shed", "threshold": 2},
]
ROLES = ["both", "prefill"]
ROUTERS = ["round-robin", "random", "least-loaded", "power-of-two", "weighted", "consistent-hash"]


def written(router: str, admission: dict[str, Any]) -> dict[str, Any]:
    live = {"breaker": {"consecutive": 2, "open": "2s"}, "no_server_ttl": "4s"}
    return {"serving": {"router": {"policy": router}, "admission": admission}, "live": live}


class World:
    """Servers and clients that do what they are told, one fact after another."""

    def __init__(self, core: GatewayCore) -> None:
        self.core = core
        self.now_s = 0.0
        self.at_server: set[int] = set()
        self.ends: dict[int, int] = {}
        self.arrived = 0

    def act(self) -> None:
        """Carries out what was decided."""
        while (action := self.core.take()) is not None:
            number = action.request
            if action.kind == SEND:
                assert number not in self.at_server
                self.at_server.add(number)
            elif action.kind == STOP:
                self.at_server.discard(number)
                self.over(number)
                self.core.ended(number, "evicted", self.now_s)
            else:
                self.at_server.discard(number)
                self.over(number)

    def over(self, number: int) -> None:
        self.ends[number] = self.ends.get(number, 0) + 1

    def arrive(self, draw: Callable[[int], int]) -> None:
        start = draw(3)
        keys, ends = (
            ([start * 10 + n for n in range(4)], [64, 128, 192, 256]) if start else ([], [])
        )
        arrival = RequestArrival(
            self.arrived, "m", 0, draw(5), 1 + draw(300), 0, draw(3) - 1, keys, ends,
            holder=max(-1, draw(9) - 6), among=((), (), (), (0,), (1, 2))[draw(5)],
        )  # fmt: skip
        self.arrived += 1
        self.core.arrive(arrival, self.now_s)

    def sent(self, draw: Callable[[int], int]) -> int | None:
        found = sorted(self.at_server)
        return found[draw(len(found))] if found else None


def look(world: World, draw: Callable[[int], int]) -> None:
    """A scrape that says something, or cannot be read."""
    load = (draw(5), draw(5), draw(10) / 10)
    server = draw(len(world.core.servers))
    if draw(4):
        world.core.observe(server, load, [], world.now_s)
    else:
        world.core.unobserved(server, world.now_s)


def step(world: World, draw: Callable[[int], int]) -> None:
    """One thing that happens."""
    core = world.core
    world.now_s += draw(20) / 10
    kind = draw(12)
    number = world.sent(draw)
    if kind <= 3:
        if core.knows("m"):
            world.arrive(draw)
    elif kind == 4:
        core.healthy(draw(len(core.servers)), [ModelCard("m")], world.now_s)
    elif kind == 5:
        core.unhealthy(draw(len(core.servers)), "told to", world.now_s)
    elif kind == 6:
        look(world, draw)
    elif kind == 7 and core.requests:
        gone = sorted(core.requests)[draw(len(core.requests))]
        world.at_server.discard(gone)
        world.over(gone)
        core.ended(gone, "client_left", world.now_s)
    elif kind == 8 and number is not None:
        world.at_server.discard(number)
        core.failed(number, "told to", world.now_s, again=bool(draw(2)), faulty=bool(draw(2)))
    elif kind in (9, 10) and number is not None:
        if core.requests[number].record.prefill_server >= 0:
            core.prefilled(number, world.now_s, good=bool(draw(3)))
            world.act()
            return
        core.answered(number, world.now_s, good=bool(draw(4)))
        world.act()
        if number in world.at_server:
            world.at_server.discard(number)
            world.over(number)
            core.ended(number, "completed", world.now_s, 0.1, 0.01)
    elif core.next_s <= world.now_s or core.server_next_s(world.now_s) <= world.now_s:
        core.tick(world.now_s)
    world.act()


def play(data: st.DataObject, core: GatewayCore) -> None:
    """Anything that may happen, until all is over."""
    for number, role in enumerate(("decode", "both", data.draw(st.sampled_from(ROLES)))):
        core.join(f"s{number}", 4, 0.0, role)
    world = World(core)
    core.healthy(0, [ModelCard("m")], 0.0)
    world.act()
    draws = iter(data.draw(st.lists(st.integers(0, 10**6), min_size=50, max_size=400)))

    def draw(below: int) -> int:
        return next(draws) % below

    try:
        while True:
            step(world, draw)
            assert core.check() is None
            sent = {number for number, one in core.requests.items() if one.state == SENT}
            assert sent == world.at_server
    except StopIteration:
        pass
    while core.requests:
        number = min(core.requests)
        world.over(number)
        core.ended(number, "client_left", world.now_s)
        world.at_server.discard(number)
        world.act()
    assert core.check() is None
    assert world.ends == dict.fromkeys(range(world.arrived), 1)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_request_ends_once_and_a_replay_decides_the_same(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chosen = written(data.draw(st.sampled_from(ROUTERS)), data.draw(st.sampled_from(ADMISSIONS)))
    path = tmp_path_factory.mktemp("log") / "log"
    head: dict[str, Any] = {"settings": chosen, "seed": 7, "folder": "."}
    with closing(EventLogFile(path, head)) as log:
        log.open()
        play(data, GatewayCore(GatewayFile.read(chosen).policies(Path(), 7, {}), log.record))
    report = audit(path)
    assert (report.difference, report.cut) == ("", False)
    times = sorted(json.loads(line)["time"] for line in path.read_bytes().splitlines())
    from_s, to_s = sorted(data.draw(st.tuples(*[st.sampled_from(times)] * 2)))
    out = path.with_name("cut")
    try:
        cut = cut_log(path, LogStretch(starts_of(path)[0], from_s, to_s), out)
    except InputError:
        return
    again = audit(out)
    assert (again.difference, again.decisions) == ("", cut.decisions)


def test_a_breaker_opens_for_longer_each_time_a_trial_fails() -> None:
    breaker = CircuitBreaker(BreakerLimits(2, 0.5, 1.0, 3.0))
    breaker.failed(0.0)
    breaker.succeeded()
    breaker.failed(0.0)
    assert breaker.state == CLOSED
    breaker.failed(0.0)
    opened = []
    for now_s in (0.0, 10.0, 20.0, 30.0):
        if now_s:
            breaker.tick(now_s)
            assert breaker.state == TRIAL
            breaker.failed(now_s)
        assert breaker.state == OPEN
        opened.append(breaker.until_s - now_s)
    assert opened == [1.0, 2.0, 3.0, 3.0]
    breaker.tick(33.0)
    breaker.succeeded()
    assert (breaker.state, breaker.until_s) == (CLOSED, math.inf)


def test_a_breaker_opens_at_a_share_of_failures_that_are_never_in_a_row() -> None:
    breaker = CircuitBreaker(BreakerLimits(5, 0.5, 1.0, 1.0))
    outcomes = 0
    while breaker.state == CLOSED:
        breaker.failed(0.0)
        breaker.succeeded()
        outcomes += 2
        assert outcomes <= 42
    assert outcomes > 38


def test_retries_are_a_share_of_requests_in_the_long_run() -> None:
    budget = RetryBudget(0.1)
    taken = 0
    for _ in range(1000):
        budget.arrived()
        taken += budget.take()
    assert 100 <= taken <= 111


@given(st.binary(min_size=0, max_size=20_000), st.binary(min_size=0, max_size=2000))
def test_prompts_that_start_alike_have_keys_that_start_alike(start: bytes, rest: bytes) -> None:
    reader = PromptReader(b"k" * 32)
    keys, ends = reader.chain("m", "", start)
    longer, longer_ends = reader.chain("m", "", start + rest)
    assert longer[: len(keys)] == keys
    assert longer_ends[: len(ends)] == ends
    assert ends == sorted(set(ends))
    assert not set(keys) & set(reader.chain("m", "salt", start)[0])
    assert not set(keys) & set(PromptReader(b"l" * 32).chain("m", "", start)[0])


@given(
    st.dictionaries(
        st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(), max_size=5
    )
)
def test_fields_are_added_and_taken_out_without_changing_the_rest(data: dict[str, Any]) -> None:
    import msgspec

    data = {key: value for key, value in data.items() if key != "stream_options"}
    raw = b" \n" + msgspec.json.encode(data)
    added = msgspec.json.decode(with_usage(raw))
    assert added == {"stream_options": {"include_usage": True}, **data}
    assert msgspec.json.decode(without_fields(with_usage(raw), ("stream_options",))) == data


def test_a_body_is_read_without_its_unknown_fields() -> None:
    fields = read_body(b'{"model":"m","stream":true,"prompt":["a","b"],"max_tokens":5,"x":{}}')
    assert (fields.model, fields.stream, output_tokens_of(fields)) == ("m", True, 5)
    assert prompt_of(fields) == b'["a","b"]'


PAGES = {
    "vllm": """\
# HELP vllm:num_requests_waiting x
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:num_requests_running{engine="0",model_name="m"} 10.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",engine="0"} 1.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters=""} 5.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 4.0
""",
    "sglang": """\
sglang:num_queue_reqs{model_name="m"} 7
sglang:num_running_reqs{model_name="m"} 10
sglang:token_usage{model_name="m"} 0.5
sglang:cache_config_info{page_size="16",num_pages="1000"} 1
""",
    "trtllm": """\
trtllm_num_requests_waiting 7
trtllm_num_requests_running 10
trtllm_kv_cache_utilization 0.5
trtllm_kv_cache_tokens_per_block 16
trtllm_kv_cache_max_blocks 1000
""",
    "triton": """\
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 7
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 10
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"} 0.5
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m",version="1"} 16
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m",version="1"} 1000
""",
}


@pytest.mark.parametrize("engine", PAGES)
def test_the_load_of_each_engine_is_read_from_its_own_names(engine: str) -> None:
    load = read_load(PAGES[engine].encode())
    assert (load.waiting, load.running, load.kv_used) == (7, 10, 0.5)
    if engine == "vllm":
        assert load.adapters == ("a", "b")
    assert load.cache_tokens == 16_000
    assert not load.asleep


@given(st.binary(max_size=2000))
def test_a_page_of_anything_is_read_without_a_failure(page: bytes) -> None:
    load = read_load(b"vllm:num_requests_waiting " + page)
    assert load.waiting is None or load.waiting >= 0

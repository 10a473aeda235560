"""An emulated server speaks OpenAI's interface and keeps the engine's time, whatever it is sent."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.live.emulated import Emulated, chat, with_server
from tests.live.inside import InsideReply
from windtunnel.admission.requests.headers import read_limits
from windtunnel.cli.live.emulate import EmulateOptions
from windtunnel.live.emulate.faults import RequestRateLimit, ResponseFault
from windtunnel.live.wire.client import NoReply
from windtunnel.workload.request import Request

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
INSTANT = EmulateOptions(speedup=float("inf"))


def events_of(text: bytes) -> list[Any]:
    """The data of a stream, whose last event must be the end."""
    *lines, last, rest = text.decode().split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    return [msgspec.json.decode(line.removeprefix("data: ")) for line in lines]


async def read(reply: InsideReply) -> bytes:
    return b"".join([piece async for piece in reply.pieces()])


def test_a_chat_is_answered_when_the_engine_has_all_its_tokens() -> None:
    async def use(server: Emulated) -> tuple[Any, float]:
        start_s = server.now_s()
        _, answer = await server.client.json(CHAT, chat("x" * 64, max_tokens=5))
        return answer, server.now_s() - start_s

    answer, took_s = with_server(use)
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "steady"
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert len(choice["message"]["content"].split()) == 5
    assert answer["usage"] == {
        "prompt_tokens": 24,  # two frames of 4, and 64 bytes
        "completion_tokens": 5,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    # Five steps, and 24 prompt tokens in the first.
    assert took_s == pytest.approx(0.524)


def test_a_stream_brings_each_token_when_its_step_ends() -> None:
    async def use(server: Emulated) -> tuple[list[float], bytes]:
        start_s = server.now_s()
        body = chat("x" * 64, max_tokens=4, stream=True, stream_options={"include_usage": True})
        times, text = [], b""
        async with server.client.post(CHAT, msgspec.json.encode(body)) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            assert server.now_s() == start_s  # the head does not wait for a token
            async for piece in reply.pieces():
                times.append(server.now_s() - start_s)
                text += piece
        return times, text

    times, text = with_server(use)
    assert times == pytest.approx([0.124, 0.224, 0.324, 0.424, 0.424])
    *pieces, usage = events_of(text)
    assert [piece["choices"][0]["delta"].get("role") for piece in pieces] == [
        "assistant",
        *[None] * 3,
    ]
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [*[None] * 3, "length"]
    said = "".join(piece["choices"][0]["delta"]["content"] for piece in pieces)
    assert len(said.split()) == 4
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("speedup", [1.0, 50.0])
def test_a_speedup_makes_everything_so_many_times_as_fast(speedup: float) -> None:
    async def use(server: Emulated) -> tuple[float, bytes]:
        start_s = server.now_s()
        await server.client.json(PLAIN, {"model": "steady", "prompt": "abcd", "max_tokens": 9})
        async with server.client.get("/metrics") as reply:
            page = await read(reply)
        return server.now_s() - start_s, page

    took_s, page = with_server(use, settings=EmulateOptions(speedup=speedup))
    assert took_s == pytest.approx(0.901 / speedup)
    (line,) = [
        line
        for line in page.splitlines()
        if line.startswith(b"vllm:e2e_request_latency_seconds_sum")
    ]
    assert float(line.split()[-1]) == pytest.approx(took_s)


def test_without_a_speed_limit_answers_come_at_once() -> None:
    async def use(server: Emulated) -> tuple[float, int, bytes]:
        start_s = server.now_s()
        status, _ = await server.client.json(CHAT, chat(max_tokens=100))
        async with server.client.post(
            CHAT, msgspec.json.encode(chat(stream=True, max_tokens=9))
        ) as reply:
            text = await read(reply)
        return server.now_s() - start_s, status, text

    took_s, status, text = with_server(use, settings=INSTANT)
    assert (took_s, status) == (0.0, 200)
    assert [len(e["choices"][0]["delta"]["content"].split()) for e in events_of(text)] == [9]


def test_prompts_that_begin_alike_hit_the_cache() -> None:
    async def use(server: Emulated) -> list[int]:
        hits = []
        for prompt in ("a" * 640, "a" * 640, "a" * 320 + "b" * 320, "b" * 640):
            body = {"model": "steady", "prompt": prompt, "max_tokens": 1}
            _, answer = await server.client.json(PLAIN, body)
            hits.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        return hits

    # 160 tokens are ten blocks, and the last token is always computed; 80 tokens are five.
    assert with_server(use) == [0, 144, 80, 0]


def test_turns_of_a_chat_hit_all_that_was_said_before() -> None:
    async def use(server: Emulated) -> int:
        messages = [{"role": "user", "content": "x" * 400}]
        _, first = await server.client.json(
            CHAT, {"model": "steady", "messages": messages, "max_tokens": 40}
        )
        messages.append(first["choices"][0]["message"])
        messages.append({"role": "user", "content": "go on"})
        _, second = await server.client.json(
            CHAT, {"model": "steady", "messages": messages, "max_tokens": 40}
        )
        cached: int = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert second["usage"]["prompt_tokens"] == 108 + 40 + 4 + 2 + 4
        return cached

    # All of the first prompt and of its answer but the last token: 147 tokens are nine blocks.
    assert with_server(use) == 144


def test_token_ids_are_tokens() -> None:
    async def use(server: Emulated) -> list[Any]:
        bodies = [[1, 2, 3], [[7] * 10], ["abcdefgh"], [5]]
        answers = []
        for prompt in bodies:
            body = {"model": "steady", "prompt": prompt, "max_tokens": 1}
            answers.append(await server.client.json(PLAIN, body))
        return answers

    answers = with_server(use, settings=INSTANT)
    assert [status for status, _ in answers] == [200] * 4
    assert [answer["usage"]["prompt_tokens"] for _, answer in answers] == [3, 10, 2, 1]
    assert answers[0][1]["object"] == "text_completion"


def test_an_answer_without_max_tokens_ends_by_itself() -> None:
    async def use(server: Emulated) -> list[tuple[str, int]]:
        ends = []
        for _ in range(200):
            _, answer = await server.client.json(CHAT, chat())
            ends.append(
                (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"])
            )
        return ends

    settings = INSTANT._replace(answer_tokens=50)
    ends = with_server(use, settings=settings)
    assert {finish for finish, _ in ends} == {"stop"}
    assert 40 < sum(tokens for _, tokens in ends) / len(ends) < 60
    assert ends == with_server(use, settings=settings)
    assert ends != with_server(use, "seed=1", settings=settings)


def test_a_client_that_hangs_up_makes_room() -> None:
    async def use(server: Emulated) -> tuple[float, str]:
        body = msgspec.json.encode(chat("x" * 1000, max_tokens=500, stream=True))
        async with server.client.post(CHAT, body) as reply:
            pieces = reply.pieces()
            for _ in range(3):
                await anext(pieces)
        quiet = asyncio.ensure_future(server.client.json(CHAT, chat(max_tokens=500)))
        await asyncio.sleep(1.0)
        quiet.cancel()
        await asyncio.wait([quiet])
        start_s = server.now_s()
        await server.client.json(CHAT, chat(max_tokens=2))
        took_s = server.now_s() - start_s
        async with server.client.get("/metrics") as reply:
            return took_s, (await read(reply)).decode()

    # One request fits at a time: the others are gone, or the last one would wait for them.
    took_s, page = with_server(use, "serving.pools.0.engine.max_num_seqs=1")
    assert took_s < 0.5
    assert 'finished_reason="abort",model_name="steady"} 2.0' in page
    assert 'vllm:num_requests_running{engine="0",model_name="steady"} 0.0' in page


def test_metrics_are_vllms() -> None:
    async def use(server: Emulated) -> tuple[str, str]:
        tasks = [
            asyncio.ensure_future(server.client.json(PLAIN, {**body, "max_tokens": tokens}))
            for tokens in (30, 30, 30)
            for body in ({"model": "steady", "prompt": "abcd" * 160},)
        ]
        await asyncio.sleep(1.0)
        async with server.client.get("/metrics") as reply:
            assert reply.headers["content-type"].startswith("text/plain")
            during = await read(reply)
        await asyncio.gather(*tasks)
        async with server.client.get("/metrics") as reply:
            return during.decode(), (await read(reply)).decode()

    during, after = (
        parsed(page) for page in with_server(use, "serving.pools.0.engine.max_num_seqs=2")
    )
    assert during["vllm:num_requests_running"] == 2
    assert during["vllm:num_requests_waiting"] == 1
    assert 0 < during["vllm:kv_cache_usage_perc"] < 0.1
    assert during["vllm:kv_cache_usage_perc"] == during["vllm:gpu_cache_usage_perc"]
    assert 0 < during["vllm:generation_tokens_total"] < 40
    assert after["vllm:generation_tokens_total"] == 90
    assert after["vllm:prompt_tokens_total"] == 480
    assert after["vllm:prefix_cache_queries_total"] == 480
    assert after["vllm:prefix_cache_hits_total"] == 2 * 144
    assert after["vllm:num_requests_running"] == 0
    assert after["vllm:num_preemptions_total"] == 0
    assert after["vllm:time_to_first_token_seconds_count"] == 3
    assert after["vllm:e2e_request_latency_seconds_count"] == 3
    assert after["vllm:inter_token_latency_seconds_count"] == 87
    assert after["vllm:time_per_output_token_seconds_sum"] == pytest.approx(8.7)
    assert 'vllm:cache_config_info{block_size="16",enable_prefix_caching="True"' in (
        with_server(page_of)
    )


async def page_of(server: Emulated) -> str:
    async with server.client.get("/metrics") as reply:
        return (await read(reply)).decode()


def parsed(page: str) -> dict[str, float]:
    """Samples of a metrics page; of those with more labels, the last."""
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {line.partition("{")[0].split()[0]: float(line.split()[-1]) for line in lines}


def test_each_replica_is_an_engine() -> None:
    async def use(server: Emulated) -> str:
        for _ in range(4):
            await server.client.json(CHAT, chat(max_tokens=1))
        return await page_of(server)

    page = with_server(use, "serving.pools.0.replicas=2")
    for engine in "01":
        line = (
            f'vllm:time_to_first_token_seconds_count{{engine="{engine}",model_name="steady"}} 2.0'
        )
        assert line in page


# What goes wrong on purpose


def test_faults_are_drawn_from_the_seed() -> None:
    settings = INSTANT._replace(
        faults=(ResponseFault(0.3, status=500), ResponseFault(0.2, status=429))
    )

    async def use(server: Emulated) -> list[int]:
        return [(await server.client.json(CHAT, chat(max_tokens=1)))[0] for _ in range(400)]

    statuses = with_server(use, settings=settings)
    assert 90 < statuses.count(500) < 150
    assert 50 < statuses.count(429) < 110
    assert statuses.count(200) == 400 - statuses.count(500) - statuses.count(429)
    assert statuses == with_server(use, settings=settings)
    assert statuses != with_server(use, "seed=9", settings=settings)


def test_latency_is_added_before_the_server() -> None:
    async def use(server: Emulated) -> float:
        start_s = server.now_s()
        await server.client.json(PLAIN, {"model": "steady", "prompt": "abcd", "max_tokens": 1})
        return server.now_s() - start_s

    faults = (ResponseFault(1.0, delay_s=2.0),)
    assert with_server(use, settings=EmulateOptions(faults=faults)) == pytest.approx(2.101)


@pytest.mark.parametrize("streams", [True, False])
def test_a_connection_can_break_in_the_middle_of_an_answer(streams: bool) -> None:
    async def use(server: Emulated) -> bytes:
        got = b""
        body = msgspec.json.encode(chat(max_tokens=10, stream=streams))
        async with server.client.post(CHAT, body) as reply:
            try:
                async for piece in reply.pieces():
                    got += piece
            except NoReply:
                return got
        raise AssertionError("it was whole")

    got = with_server(use, settings=EmulateOptions(faults=(ResponseFault(1.0, breaks=True),)))
    assert got
    assert b"[DONE]" not in got


def test_a_rate_limit_says_when_to_come_again() -> None:
    async def use(server: Emulated) -> list[tuple[int, Any]]:
        replies = []
        body = msgspec.json.encode(chat(max_tokens=1))
        for _ in range(4):
            async with server.client.post(CHAT, body) as reply:
                await read(reply)
                replies.append((reply.status, reply.headers))
        wait_s = float(replies[-1][1]["retry-after-ms"]) / 1e3
        await asyncio.sleep(wait_s)
        async with server.client.post(CHAT, body) as reply:
            await read(reply)
            replies.append((reply.status, reply.headers))
        return replies

    settings = INSTANT._replace(rate_limit=RequestRateLimit(0.5, 3.0))
    replies = with_server(use, settings=settings)
    assert [status for status, _ in replies] == [200, 200, 200, 429, 200]
    assert replies[0][1]["x-ratelimit-remaining-requests"] == "2"
    said = read_limits(replies[3][1], 0.0)
    assert said is not None
    assert (said.requests.limit, said.requests.left, said.retry_after_s) == (3, 0, 2.0)
    assert replies[3][1]["retry-after"] == "2"


def test_adapters_are_models_with_a_cache_of_their_own() -> None:
    sets = (
        "workload.0.adapters.weights={german: 1, french: 1}",
        "serving.pools.0.engine.lora={slots: 1, load: 500ms}",
    )

    async def use(server: Emulated) -> tuple[list[str], list[tuple[str, int, float]]]:
        async with server.client.get("/v1/models") as reply:
            models = msgspec.json.decode(await read(reply))["data"]
        found = []
        for model in ("steady", "german", "german", "french"):
            start_s = server.now_s()
            body = {"model": model, "prompt": "x" * 640, "max_tokens": 1}
            _, answer = await server.client.json(PLAIN, body)
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            found.append((answer["model"], cached, server.now_s() - start_s))
        return [f"{model['id']} of {model['parent']}" for model in models], found

    models, found = with_server(use, *sets)
    assert models == ["steady of None", "german of steady", "french of steady"]
    assert [(model, cached) for model, cached, _ in found] == [
        ("steady", 0),
        ("german", 0),
        ("german", 144),
        ("french", 0),
    ]
    # 160 tokens are computed, or 16, an adapter makes that 3% longer, and loading one takes 0.5 s.
    took_s = [took_s for _, _, took_s in found]
    assert took_s == pytest.approx([0.26, 0.7678, 0.11948, 0.7678])


def test_a_request_arrives_when_it_came_and_not_when_it_was_read() -> None:
    """Two that come together arrive together, although one is read after the other."""

    async def use(server: Emulated) -> list[float]:
        pace = server.desk.backend
        start_s = server.now_s()
        await asyncio.sleep(1.0)
        requests = [Request(number, 0.0, 10, 2) for number in range(3)]
        pace.ask(requests[0], streams=True, came_s=start_s + 0.9)
        pace.ask(requests[1], streams=True, came_s=start_s + 0.9)
        # By now a step has ended: nobody arrives before that any more.
        await asyncio.sleep(0.1)
        pace.ask(requests[2], streams=True, came_s=start_s + 0.95)
        return [request.arrived_s for request in requests]

    first, second, third = with_server(use)
    assert first == second == pytest.approx(0.9)
    assert third == pytest.approx(0.9 + 0.12)

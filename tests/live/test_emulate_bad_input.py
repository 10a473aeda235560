"""An emulated server answers whatever it is sent, and errors have OpenAI's shape."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.emulated import Emulated, chat, with_server
from tests.live.test_emulate import CHAT, INSTANT, PLAIN, read
from windtunnel.live.emulate.app import MOST_BODY_BYTES

BAD: list[tuple[Any, int, str]] = [
    (b"{", 400, "not JSON"),
    (b"", 400, "not JSON"),
    (b"\xff\xfe", 400, "not JSON"),
    (b"[" * 100_000, 400, ""),
    (b"[]", 400, "Expected `object`"),
    ({"model": "steady"}, 400, "messages"),
    ({"model": "steady", "messages": []}, 400, "no messages"),
    ({"model": "steady", "messages": [{"content": "x"}]}, 400, "role"),
    (chat(max_tokens=-1), 400, "max_tokens is -1"),
    (chat(max_tokens=0), 400, "max_tokens is 0"),
    (chat(max_tokens="many"), 400, "$.max_tokens"),
    (chat(max_tokens=10**30), 400, ""),
    (chat(max_completion_tokens=-5), 400, "max_completion_tokens is -5"),
    (chat(max_tokens=4096), 400, "maximum context length is 4096"),
    (chat("x" * 40_000), 400, "maximum context length is 4096"),
    (chat(n=2), 400, "n is 2"),
    (chat(stream_options={"include_usage": True}), 400, "stream_options"),
    (chat() | {"model": "other"}, 404, "`other` does not exist"),
    (chat() | {"model": "y" * 10_000}, 404, "does not exist"),
    (
        chat() | {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "'image_url' cannot be read",
    ),
]


@pytest.mark.parametrize(("body", "status", "says"), BAD)
def test_bad_requests_are_errors_in_openais_shape(body: Any, status: int, says: str) -> None:
    async def use(server: Emulated) -> tuple[int, Any, int]:
        got, answer = await server.client.json(CHAT, body)
        after, _ = await server.client.json(CHAT, chat(max_tokens=1))
        return got, answer, after

    got, answer, after = with_server(use)
    assert got == status
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert says in answer["error"]["message"]
    assert len(answer["error"]["message"]) < 1000
    assert after == 200


def test_a_body_has_a_limit_however_it_comes() -> None:
    async def use(server: Emulated) -> list[int]:
        part = b" " * (MOST_BODY_BYTES // 2 + 1)
        async with server.client.post(CHAT, part + part) as reply:
            await read(reply)
        async with server.client.parts(CHAT, part, part, part) as other:
            await read(other)
        return [reply.status, other.status]

    assert with_server(use) == [413, 413]


def test_what_can_never_fit_is_refused() -> None:
    async def use(server: Emulated) -> tuple[int, Any]:
        return await server.client.json(CHAT, chat("x" * 4000, max_tokens=100))

    status, answer = with_server(use, "serving.pools.0.engine.kv_blocks=20")
    assert status == 400
    assert "KV blocks" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"), [("get", CHAT), ("get", "/nowhere"), ("post", "/health")]
)
def test_wrong_places_are_errors_too(method: str, path: str) -> None:
    async def use(server: Emulated) -> tuple[int, Any]:
        request = server.client.get(path) if method == "get" else server.client.post(path, b"{}")
        async with request as reply:
            return reply.status, msgspec.json.decode(await read(reply))

    status, answer = with_server(use)
    assert status in (404, 405)
    assert answer["error"]["type"] == "invalid_request_error"


def test_what_is_served_can_be_asked() -> None:
    async def use(server: Emulated) -> list[Any]:
        found = []
        for path in ("/v1/models", "/v1/models/my/own", "/v1/models/steady", "/health"):
            async with server.client.get(path) as reply:
                text = await read(reply)
                found.append((reply.status, msgspec.json.decode(text) if text else None))
        return found

    found = with_server(use, settings=INSTANT._replace(served_name="my/own"))
    assert [status for status, _ in found] == [200, 200, 404, 200]
    (model,) = found[0][1]["data"]
    assert (model["id"], model["max_model_len"]) == ("my/own", 4096)
    assert found[1][1] == model


@given(
    st.binary(max_size=200) | st.text(max_size=50).map(lambda text: text.encode(errors="replace"))
)
def test_no_body_kills_the_server(body: bytes) -> None:
    async def use(server: Emulated) -> list[int]:
        return [(await server.client.json(path, body))[0] for path in (CHAT, PLAIN)]

    assert all(400 <= status < 500 for status in with_server(use, settings=INSTANT))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["model", "messages", "prompt", "stream", "stream_options", "max_tokens", "n", "stop", "tools"]
)


@given(st.dictionaries(FIELDS, VALUES, max_size=4))
def test_no_field_kills_the_server(fields: dict[str, Any]) -> None:
    async def use(server: Emulated) -> list[int]:
        statuses = []
        for path, body in ((CHAT, chat(max_tokens=2)), (PLAIN, {"model": "steady", "prompt": "x"})):
            async with server.client.post(path, msgspec.json.encode({**body, **fields})) as reply:
                await read(reply)
                statuses.append(reply.status)
        return statuses

    assert set(with_server(use, settings=INSTANT)) <= {200, 400, 404}

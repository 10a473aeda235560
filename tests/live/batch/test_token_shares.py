"""Tenants of a batch whose endpoint has a budget of tokens, in virtual time."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.live.batch.running import write_rows
from tests.live.virtual import run
from windtunnel.core.random import Streams
from windtunnel.core.telemetry import Telemetry
from windtunnel.live.batch import compose
from windtunnel.live.batch.endpoints import EndpointClient
from windtunnel.live.batch.run import Runner
from windtunnel.live.batch.settings import BatchSettings, EndpointSettings
from windtunnel.live.wire.addresses import Api
from windtunnel.live.wire.client import Reply

BUDGET = 60_000


class Counting(EndpointClient):
    """Answers after 0.2 s with ten tokens, and counts those of each tenant."""

    def __init__(self) -> None:
        super().__init__({})
        self.tokens: Counter[str] = Counter()

    async def post(self, endpoint: str, api: Api, body: bytes) -> Reply:
        prompt = json.loads(body)["messages"][0]["content"]
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 10}
        self.tokens[prompt[0]] += sum(usage.values())
        await asyncio.sleep(0.2)
        choices = [{"message": {"content": "ok"}}]
        return Reply(200, {}, json.dumps({"choices": choices, "usage": usage}).encode())


def test_equal_tenants_have_equal_shares_of_a_token_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 4,000 and of 40 tokens: it was 533,000 tokens to 58,000 in ten minutes."""
    client = Counting()

    @asynccontextmanager
    async def open_client(*_: Any) -> AsyncIterator[EndpointClient]:
        yield client

    async def find_models(*_: Any) -> dict[str, tuple[str, ...]]:
        return {"e": ("m",)}

    async def no_sync(*_: Any) -> None:
        """A thread would run while no time passes."""

    monkeypatch.setattr(compose, "open_client", open_client)
    monkeypatch.setattr(compose, "find_models", find_models)
    monkeypatch.setattr(Runner, "_sync", no_sync)
    rows = [{"prompt": "a" * 16_000, "tenant": "a"}] * 300
    rows += [{"prompt": "b" * 160, "tenant": "b"}] * 12_000
    endpoint = EndpointSettings(
        url="http://127.0.0.1:1/v1", concurrency=16, tokens_per_minute=BUDGET
    )
    plan = BatchSettings(
        input=write_rows(tmp_path / "in.jsonl", rows),
        output=tmp_path / "out.jsonl",
        endpoints={"e": endpoint},
        tenant_field="tenant",
    )

    async def main() -> None:
        prepared = compose.prepare(plan, {})
        work = compose.run_batch(plan, prepared, Telemetry(), Streams(1), [], print)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work, 600.0)

    run(main())
    shares = [client.tokens[tenant] / sum(client.tokens.values()) for tenant in "ab"]
    assert min(shares) >= 0.45
    assert sum(client.tokens.values()) >= 9.5 * BUDGET

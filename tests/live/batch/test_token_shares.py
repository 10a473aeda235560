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
        super().__init__({}, {})
        self.tokens: Counter[str] = Counter()
        self.refused = 0

    async def post(self, endpoint: str, api: Api, body: bytes) -> Reply:
        prompt = json.loads(body)["messages"][0]["content"]
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 10}
        tokens = sum(usage.values())
        headers = self.take(tokens, asyncio.get_running_loop().time())
        if headers is None:
            self.refused += 1
            return Reply(429, self.said(asyncio.get_running_loop().time()), b"{}")
        self.tokens[prompt[0]] += tokens
        await asyncio.sleep(0.2)
        choices = [{"message": {"content": "ok"}}]
        return Reply(200, headers, json.dumps({"choices": choices, "usage": usage}).encode())

    def take(self, tokens: int, now: float) -> dict[str, str] | None:
        """What the reply's headers say; None where so many tokens are too many."""
        del tokens
        return self.said(now)

    def said(self, now: float) -> dict[str, str]:
        del now
        return {}


class Limited(Counting):
    """Tells in its headers alone that it has a budget."""

    left = float(BUDGET)
    at_s = -1.0

    def take(self, tokens: int, now: float) -> dict[str, str] | None:
        self.refill(now)
        if tokens > self.left:
            return None
        self.left -= tokens
        return self.said(now)

    def said(self, now: float) -> dict[str, str]:
        return {
            "x-ratelimit-limit-tokens": str(BUDGET),
            "x-ratelimit-remaining-tokens": str(int(self.left)),
            "x-ratelimit-reset-tokens": f"{self.reset_s(now):.3f}s",
        }

    def refill(self, now: float) -> None:
        raise NotImplementedError

    def reset_s(self, now: float) -> float:
        raise NotImplementedError


class Refilled(Limited):
    """What was used comes back steadily."""

    def refill(self, now: float) -> None:
        if self.at_s >= 0.0:
            self.left = min(BUDGET, self.left + (now - self.at_s) * BUDGET / 60.0)
        self.at_s = now

    def reset_s(self, now: float) -> float:
        return (BUDGET - self.left) * 60.0 / BUDGET - (now - self.at_s)


class ByTheMinute(Limited):
    """What was used comes back at once, a minute after the first call of a window."""

    def refill(self, now: float) -> None:
        if self.at_s < 0.0:
            self.at_s = now
        while now >= self.at_s + 60.0:
            self.at_s += 60.0
            self.left = float(BUDGET)

    def reset_s(self, now: float) -> float:
        return self.at_s + 60.0 - now


@pytest.mark.parametrize(
    ("provider", "configured", "concurrency", "least"),
    [
        (Counting, BUDGET, 16, 0.48),
        (Refilled, None, 16, 0.45),
        (ByTheMinute, None, 16, 0.45),
        (ByTheMinute, None, 64, 0.4),
    ],
    ids=["configured", "refilled", "by-the-minute", "many-slots"],
)
def test_equal_tenants_have_equal_shares_of_a_token_budget(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    provider: type[Counting],
    configured: int | None,
    concurrency: int,
    least: float,
) -> None:
    """Rows of 4,000 and of 40 tokens: it was 541,000 tokens to 45,000 in ten minutes.

    Until the first reply says that there is a budget, rows of both kinds have started alike.
    """
    client = provider()

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
        url="http://127.0.0.1:1/v1", concurrency=concurrency, tokens_per_minute=configured
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
    assert min(shares) >= least
    assert client.refused <= 20
    assert sum(client.tokens.values()) >= 9.5 * BUDGET

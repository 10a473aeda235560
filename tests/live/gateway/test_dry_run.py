"""A gateway in a dry run decides and logs as always, and sends no request to a server."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.live.gateway.bed import bed, chat, friendly
from windtunnel.core.errors import InputError
from windtunnel.live.gateway.audit import audit
from windtunnel.live.gateway.settings import read_settings

DRY = ("live.dry_run=true", "serving.router.policy=round-robin")


def test_clients_get_the_decision_and_servers_get_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        logs = (
            f"live.log={tmp_path / 'log'}",
            f"live.access_log={tmp_path / 'access'}",
            f"live.trace.folder={tmp_path / 'trace'}",
        )
        async with bed(friendly, friendly, sets=(*DRY, "live.trace={}", *logs)) as it:
            got = [await it.ask(chat(stream=stream)) for stream in (True, False, True, False)]
            assert [one.status for one in got] == [200] * 4
            urls = [one.url for one in it.servers]
            assert [one.json["server"] for one in got] == [*urls, *urls]
            assert {one.json["reason"] for one in got} == {"next in turn"}
            assert {one.json["object"] for one in got} == {"windtunnel.decision"}
            assert [one.requests for one in it.servers] == [[], []]
            it.settled()

    asyncio.run(test())
    lines = [json.loads(line) for line in (tmp_path / "access").read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["decided"] * 4
    report = audit(tmp_path / "log")
    assert (report.difference, report.cut) == ("", False)
    assert report.decisions >= 4


def test_refusals_are_those_of_a_real_run() -> None:
    async def test() -> None:
        bucket = (
            "serving.admission.policy=token-bucket",
            "serving.admission.capacity=1",
            "serving.admission.refill=1/s",
        )
        async with bed(friendly, sets=(*DRY, *bucket)) as it:
            got = await it.ask(chat(messages=[{"role": "user", "content": "word " * 200}]))
            assert got.status == 413
            assert got.json["error"]["code"] == "bucket-too-small"
            assert it.servers[0].requests == []
            it.settled()

    asyncio.run(test())


def test_a_picker_has_no_dry_run() -> None:
    with pytest.raises(InputError, match="is not a dry run"):
        read_settings(None, (*DRY, "live.picker.listen=127.0.0.1:9002"), ["http://127.0.0.1:1"])

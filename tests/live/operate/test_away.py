"""An API server that is away or refuses: commands end with a sentence, the operator in order."""

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.live.kubernetes.test_config import kubeconfig
from windtunnel.core.errors import InputError
from windtunnel.live.kubernetes.errors import Forbidden, NoAnswer, NoCredentials
from windtunnel.live.operate import look
from windtunnel.live.operate.look import _look, live_status
from windtunnel.live.operate.program import OperatorOptions, OperatorProgram


def test_a_status_without_an_api_server_ends_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match=r"http://127.0.0.1:1: GET /apis/.*: no answer"):
        live_status(kubeconfig(tmp_path, {}), "", "")


def test_a_status_without_credentials_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(NoCredentials, match="the token cannot be read"):
        live_status(kubeconfig(tmp_path, {"tokenFile": "absent"}), "", "")


def test_a_status_that_is_forbidden_ends_at_once(tmp_path: Path) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"message": "nobody may do that", "code": 403}, status=403)

    async def ask() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", refuse)
        async with TestServer(app) as server:
            await _look(kubeconfig(tmp_path, {}, {"server": str(server.make_url("/"))}), "", "")

    with pytest.raises(Forbidden, match="nobody may do that"):
        asyncio.run(ask())


def test_a_status_ends_where_the_server_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "LONGEST_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match=r"has not listed everything within 0.1 s"):
            live_status(kubeconfig(tmp_path, {}, {"server": server}), "", "")


class Breaking(OperatorProgram):
    """Fails while it leads, and notes what is ended in order."""

    ended = False

    def _background(self, client: Any) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._release_at_the_end()

    async def _release_at_the_end(self) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            self.ended = True

    async def _lead(self, client: Any) -> None:
        async with asyncio.TaskGroup():
            await asyncio.sleep(0)
            raise ValueError("a fault of ours")


def test_an_operator_that_fails_gives_its_lease_back_and_closes_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = Breaking(
        OperatorOptions(kubeconfig(tmp_path, {}), host="127.0.0.1", metrics_port=0, log=log)
    )
    with pytest.raises(ValueError, match="a fault of ours"):
        asyncio.run(program.run(asyncio.Event(), lambda _: None))
    assert program.ended
    assert b"operator.started" in log.read_bytes()

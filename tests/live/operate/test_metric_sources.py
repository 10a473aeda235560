"""Pods, gateways and Prometheus servers that answer too late, too much, elsewhere, or nonsense."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.scaling.kubernetes.pods import HPA, page, target
from windtunnel.core.errors import InputError
from windtunnel.live.operate.scaling import sources as sources_module
from windtunnel.live.operate.scaling.sources import (
    Answers,
    PrometheusServer,
    open_sources,
    prometheus_server,
)
from windtunnel.scaling.kubernetes.autoscaler import autoscaler_plan
from windtunnel.scaling.kubernetes.pages import MetricSample, PodReading, reading_of
from windtunnel.scaling.kubernetes.plan import ExternalQuery
from windtunnel.scaling.kubernetes.prometheus import Unavailable
from windtunnel.scaling.kubernetes.snapshots import PodView, PoolObservation

ASK_S = 0.5
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def huge(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(64):
        await response.write(b"x" * (1 << 20))
    raise AssertionError  # nobody reads so much


async def slow(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def elsewhere(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/good")


async def good(_: web.Request) -> web.StreamResponse:
    return web.Response(body=page(4, 2))


def ask(path: str, handler: Handler, *, pods: int = 1, queue: str = "") -> Answers:
    """What one policy hears whose pods are asked at a path."""

    async def run() -> Answers:
        app = web.Application()
        app.router.add_get("/good", good)
        if path != "/good":
            app.router.add_get(path, handler)
        async with TestServer(app) as server, open_sources(None, ASK_S) as sources:
            made = {"targets": [target(port=server.port, path=path)], "scaling": HPA}
            if queue:
                made["queue"] = {"url": str(server.make_url(queue)), "metric": "windtunnel_queued"}
            plan = autoscaler_plan("ns", "chat", made)
            seen = [PodView(f"u{n}", f"p{n}", 0.0, "127.0.0.1") for n in range(pods)]
            return await sources.ask(plan, {"main": PoolObservation(pods, seen)}, 0.0)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (huge, "p0 sends more than 8 MiB"),
        (slow, "p0 does not answer within 0.5 s"),
        (elsewhere, "p0 answers 302"),
    ],
)
def test_a_pod_that_does_not_answer_as_it_should_has_not_answered(
    handler: Handler, says: str
) -> None:
    answers = ask("/odd", handler)
    assert answers.readings == {}
    assert answers.problems == [says]


def test_many_pods_are_asked_and_problems_are_few() -> None:
    answers = ask("/good", good, pods=150)
    assert len(answers.readings) == 150
    assert answers.readings["u7"].waiting == 4
    many = ask("/odd", elsewhere, pods=20)
    assert many.problems[-1] == "and 15 more problems"


def test_all_queries_of_a_policy_have_one_limit() -> None:
    """Ten queries of a server that hangs, each of which may take half a second."""

    async def run() -> Answers:
        app = web.Application()
        app.router.add_post("/api/v1/query", slow)
        async with TestServer(app) as server:
            prometheus = PrometheusServer(str(server.make_url("/")))
            async with open_sources(prometheus, ASK_S, 1.5 * ASK_S) as sources:
                made = {"targets": [target()], "scaling": HPA, "metrics": {"source": "prometheus"}}
                plan = autoscaler_plan("ns", "chat", made)
                seen = [PodView(f"u{n}", f"p{n}", 0.0) for n in range(5000)]
                return await sources.ask(plan, {"main": PoolObservation(5000, seen)}, 0.0)

    answers = asyncio.run(run())
    assert answers.readings == {}
    assert answers.problems[0] == "0 of 5000 pods have answered in 0.75 s"


def test_a_large_page_leaves_the_event_loop_free() -> None:
    """Other policies decide while it is parsed."""
    padding = b"# HELP a comment of a server that has much to say\n" * (80 << 10)

    async def large(_: web.Request) -> web.StreamResponse:
        return web.Response(body=padding + page(4, 2))

    threads: list[int] = []

    def noting(samples: Iterable[MetricSample]) -> PodReading:
        threads.append(threading.get_ident())
        return reading_of(samples)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources_module, "reading_of", noting)
        answers = ask("/large", large)
    assert [one.waiting for one in answers.readings.values()] == [4]
    assert threads != [threading.get_ident()]


def test_the_queue_of_a_gateway_is_that_of_the_model() -> None:
    async def gateway(_: web.Request) -> web.StreamResponse:
        lines = ('windtunnel_queued{model="chat"} 3', 'windtunnel_queued{model="other"} 9', "x 1")
        return web.Response(text="\n".join(lines))

    assert ask("/gateway", gateway, queue="/gateway").queued == 3
    silent = ask("/good", good, queue="/good")
    assert silent.queued is None
    assert silent.problems == ["the gateway does not report windtunnel_queued"]


def test_a_token_goes_to_its_own_server_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    heard: list[tuple[str, str | None]] = []

    async def query(request: web.Request) -> web.StreamResponse:
        heard.append((request.host, request.headers.get("Authorization")))
        result = {"resultType": "scalar", "result": [1.0, "2"]}
        return web.json_response({"status": "success", "data": result})

    async def run() -> Answers:
        app = web.Application()
        app.router.add_post("/api/v1/query", query)
        async with TestServer(app) as ours, TestServer(app) as theirs:
            url = str(ours.make_url("/"))
            async with open_sources(PrometheusServer(url, file), ASK_S) as sources:
                plan = autoscaler_plan("ns", "chat", {"targets": [target()], "scaling": HPA})
                urls = (url, str(theirs.make_url("/")))
                queries = tuple(ExternalQuery("main", f"m{n}", one, "x")
                                for n, one in enumerate(urls))  # fmt: skip
                plan = plan._replace(queries=queries, asks_pods=False)
                return await sources.ask(plan, {"main": PoolObservation(1)}, 0.0)

    answers = asyncio.run(run())
    assert answers.external == {"main": {"m0": 2.0, "m1": 2.0}}
    assert sorted(token or "" for _, token in heard) == ["", "Bearer secret"]


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    assert prometheus_server("", None, autoscale=False) is None
    for url, file, autoscale, said in (
        ("http://p", None, False, "without --autoscale"),
        ("", token, True, "no effect without --prometheus"),
        ("p:9090", None, True, "'p:9090' is not an http:// or https:// address"),
        ("http://[::1", None, True, "is not an http:// or https:// address"),
        ("http://me:pw@p", None, True, "has no user and no password"),
        ("http://p/?a=b", None, True, "has no '\\?'"),
        ("http://p", token, True, "the token for Prometheus cannot be read: no such file"),
        ("http://p", Path("/dev/zero"), True, "it is not a regular file"),
    ):
        with pytest.raises(InputError, match=said) as error:
            prometheus_server(url, file, autoscale=autoscale)
        assert "pw" not in str(error.value)
    with pytest.raises(Unavailable, match="the token for Prometheus cannot be read: it is not a"):
        PrometheusServer("http://p", Path("/dev/zero")).headers("http://p/")

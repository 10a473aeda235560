"""EndpointSlices of Kubernetes as lists of servers, and what is said while they cannot be read."""

import asyncio
import itertools
import logging
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.gateway.fake_api import FakeApi
from tests.live.virtual import run
from windtunnel.core.errors import InputError
from windtunnel.live.gateway.endpoint_slices import (
    SERVICE_LABEL,
    EndpointSlice,
    servers_in,
    watch_service,
)
from windtunnel.live.gateway.kubernetes_source import KubernetesSource
from windtunnel.live.gateway.settings import (
    KubernetesEntry,
    ServerEntry,
    read_settings,
    server_fault,
)
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.errors import NoAnswer, error_of
from windtunnel.live.kubernetes.resources import ENDPOINT_SLICES

HTTP = {"name": "http", "port": 8000, "protocol": "TCP"}
METRICS = {"name": "metrics", "port": 9000, "protocol": "TCP"}
REFUSED = error_of("GET /endpointslices", 403, b'{"message": "endpointslices is forbidden"}')


def pod(address: str, uid: str = "", **conditions: bool | None) -> dict[str, Any]:
    found: dict[str, Any] = {"addresses": [address], "conditions": conditions}
    return {**found, "targetRef": {"kind": "Pod", "uid": uid}} if uid else found


def plain(name: str, *pods: dict[str, Any], **more: Any) -> dict[str, Any]:
    meta = {"namespace": "prod", "name": name, "uid": name, "labels": {SERVICE_LABEL: "vllm"}}
    empty: dict[str, Any] = {"metadata": meta, "addressType": "IPv4", "ports": [HTTP]}
    return {**empty, "endpoints": list(pods), **more}


def found(*slices: dict[str, Any], port: int | str | None = None) -> tuple[list[str], list[str]]:
    read = [msgspec.convert(one, EndpointSlice) for one in slices]
    entry = KubernetesEntry(service="vllm")
    return servers_in(read, port, KubernetesSource(entry, "prod", server_fault, print).fault_of)


def test_only_ready_endpoints_that_stay_are_servers() -> None:
    pods = (
        pod("10.0.0.1", ready=True, serving=True, terminating=False),
        pod("10.0.0.2", ready=False, serving=False),
        pod("10.0.0.3", ready=False, serving=True, terminating=True),
        pod("10.0.0.4"),  # nothing is said: ready
        pod("10.0.0.5", ready=None, terminating=None),
        # A Service with publishNotReadyAddresses says ready of pods that terminate.
        pod("10.0.0.6", ready=True, serving=True, terminating=True),
    )
    urls, faults = found(plain("a", *pods))
    assert urls == [f"http://10.0.0.{last}:8000" for last in (1, 4, 5)]
    assert faults == []
    assert found() == ([], [])
    assert found(plain("a", endpoints=None, ports=None)) == ([], [])


def test_a_pod_in_several_slices_and_families_is_one_server() -> None:
    both = (
        plain("six", pod("fd00::1", "p"), pod("fd00::2", "q"), addressType="IPv6"),
        plain("four", pod("10.0.0.1", "p")),
        plain("again", pod("10.0.0.1", "p"), pod("10.0.0.9")),
        plain("and-again", pod("10.0.0.9")),
    )
    urls = ["http://10.0.0.1:8000", "http://10.0.0.9:8000", "http://[fd00::2]:8000"]
    for order in itertools.permutations(both):
        assert found(*order) == (urls, [])


@pytest.mark.parametrize(
    ("ports", "port", "expected"),
    [
        ([HTTP], None, 8000),
        ([HTTP, METRICS], "metrics", 9000),
        ([HTTP, METRICS], 8001, 8001),  # of pods, though the Service does not list it
        (None, 8001, 8001),
        ([{"name": "", "port": 80}], None, 80),
        ([{**HTTP, "protocol": "UDP"}, METRICS], None, 9000),
        ([HTTP, METRICS], None, "`port` must name one; TCP ports of the Service: http, metrics"),
        ([HTTP], "grpc", "there is no TCP port 'grpc'; the Service has http"),
        (None, "grpc", "there is no TCP port 'grpc'; the Service has none"),
    ],
)
def test_ports_by_name_by_number_or_the_only_one(
    ports: list[Any] | None, port: int | str | None, expected: int | str
) -> None:
    urls, faults = found(plain("a", pod("10.0.0.1"), ports=ports), port=port)
    if isinstance(expected, int):
        assert (urls, faults) == ([f"http://10.0.0.1:{expected}"], [])
    else:
        assert (urls, faults) == ([], [expected])


def test_addresses_that_no_server_has_are_left_out_with_a_sentence() -> None:
    odd = plain("odd", pod("169.254.1.1"), pod("x y"), pod("10.0.0.1"))
    names = plain("names", pod("a.example"), addressType="FQDN")
    urls, faults = found(odd, names)
    assert urls == ["http://10.0.0.1:8000"]
    assert len(faults) == 3
    assert "addresses of type FQDN are not used" in faults


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.booleans()), max_size=6)),
    st.randoms(use_true_random=False),
)
def test_slices_are_a_set(pods: list[list[tuple[int, bool, bool]]], shuffle: Any) -> None:
    slices = [
        plain(
            str(at), *(pod(f"10.0.0.{n}", ready=ready, terminating=ends) for n, ready, ends in one)
        )
        for at, one in enumerate(pods)
    ]
    expected = {
        f"http://10.0.0.{n}:8000" for one in pods for n, ready, ends in one if ready and not ends
    }
    shuffle.shuffle(slices)
    assert found(*slices) == (sorted(expected), [])


def test_what_is_known_stays_while_the_api_server_is_away_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "windtunnel.gateway")
    lists: list[list[ServerEntry]] = []
    api = FakeApi()
    entry = KubernetesEntry(service="prod/vllm", role="prefill", slots=7)

    def said() -> list[str]:
        lines = [one.getMessage() for one in caplog.records]
        caplog.clear()
        return lines

    async def test() -> None:
        source = KubernetesSource(entry, "elsewhere", server_fault, lists.append)
        api.error = REFUSED
        running = asyncio.create_task(watch_service(source, cast("Client", api)))
        await asyncio.sleep(60)
        (line,) = said()
        assert "Service prod/vllm: EndpointSlices cannot be read, no server is known" in line
        assert "endpointslices is forbidden" in line
        assert "list and watch endpointslices.discovery.k8s.io in the namespace prod" in line
        api.error = None
        api.put(ENDPOINT_SLICES, plain("a", pod("10.0.0.1"), pod("10.0.0.2")))
        await asyncio.sleep(60)
        assert said() == ["Service prod/vllm: EndpointSlices are read again"]
        first = [f"http://10.0.0.{last}:8000" for last in (1, 2)]
        assert [[one.url for one in some] for some in lists] == [first]
        assert {(one.role, one.slots) for one in lists[0]} == {("prefill", 7)}
        api.put(ENDPOINT_SLICES, plain("a", pod("10.0.0.1"), pod("10.0.0.2", terminating=True)))
        api.put(ENDPOINT_SLICES, plain("b", pod("10.0.0.3")))
        await asyncio.sleep(2)
        assert [one.url for one in lists[-1]] == ["http://10.0.0.1:8000", "http://10.0.0.3:8000"]
        told = len(lists)
        api.fail(NoAnswer("no answer came"))
        await asyncio.sleep(600)
        (line,) = said()
        assert "known servers stay (2): no answer came" in line
        assert len(lists) == told
        api.error = REFUSED  # as an API server does while it starts
        await asyncio.sleep(6)
        api.error = None
        api.delete(ENDPOINT_SLICES, "a")
        api.delete(ENDPOINT_SLICES, "b")
        await asyncio.sleep(600)
        assert lists[-1] == []
        lines = said()
        assert "Service prod/vllm has no ready endpoint" in lines
        assert not [one for one in lines if "forbidden" in one]
        running.cancel()

    run(test())


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("{service: Prod/vllm}", "NAME or NAMESPACE/NAME"),
        ("{service: a/b/c}", "NAME or NAMESPACE/NAME"),
        ("{service: vllm, port: 70000}", "70000 is not a port"),
        ("{service: vllm, port: true}", "not a port"),
        ("{service: vllm}, {service: vllm}", "it is listed twice"),
        ("{pool: vllm}, {pool: vllm}", "it is listed twice"),
        ("{pool: a/b/c}", "NAME or NAMESPACE/NAME"),
        ("{pool: vllm, port: 8000}", "the ports come from the InferencePool"),
        ("{pool: vllm, service: vllm}", "exactly one of a Service and"),
        ("{slots: 8}", "exactly one of a Service and an InferencePool is needed"),
    ],
)
def test_a_wrong_entry_is_a_sentence_with_its_place(entry: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as error:
        read_settings(None, [f"live.servers_kubernetes=[{entry}]"], [])
    assert "servers_kubernetes" in str(error.value)

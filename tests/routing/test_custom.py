"""Routers that a person brings: how they are found, what they see, and what goes wrong."""

from importlib.metadata import EntryPoint, EntryPoints
from math import inf
from pathlib import Path

import pytest

from tests.routing.fleet import Fleet, chosen, prompt
from windtunnel.core.errors import InputError
from windtunnel.core.random import Stream
from windtunnel.routing import custom
from windtunnel.routing.build import build_router
from windtunnel.routing.custom import RequestLabels
from windtunnel.routing.router import Router
from windtunnel.routing.settings import RouterSettings

POLICIES = """\
class Coldest:
    def choose(self, request, servers):
        return min(servers, key=lambda server: (server.kv_used, server.number))

class Warmest:
    def choose(self, request, servers):
        return max(servers, key=lambda server: server.prefix_tokens(request)).number

class Lucky:
    def __init__(self, stream):
        self.stream = stream
    def choose(self, request, servers):
        return servers[self.stream.integer(0, len(servers) - 1)]

class Telling:
    def choose(self, request, servers):
        self.seen = [(s.number, s.pool, s.slots, s.waiting, s.running, s.in_flight, s.kv_used,
                      list(s.adapters)) for s in servers]
        self.ages = [(s.load_age_s, s.adapters_age_s, s.cache_age_s) for s in servers]
        self.request = request
        return 0

class Nosy:
    def choose(self, request, servers):
        return request.output_tokens

class Broken:
    def choose(self, request, servers):
        return 1 // 0

class Stubborn:
    def __init__(self):
        raise ValueError("no mood")
    def choose(self, request, servers): ...

class Mute: ...

class Outer:
    class Inner(Coldest): ...

def function(): ...

for _name, _value in {"None": None, "Far": 99, "Wrong": "0", "True": True}.items():
    globals()["Says" + _name] = type("Says" + _name, (), {"choose": lambda s, r, x, v=_value: v})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policies_of_a_test.py").write_text(POLICIES)
    (tmp_path / "faulty_of_a_test.py").write_text("import math\nmath.nothing\n")
    (tmp_path / "needy_of_a_test.py").write_text("import nothing_of_that_name\n")
    return tmp_path


def build(fleet: Fleet, policy: str, folder: Path) -> Router:
    settings = RouterSettings(policy=policy, cache_delay_s=0.0)
    labels = RequestLabels(
        ["critical", "standard"], ["acme", "zeta"], [f"adapter-{n}" for n in range(8)]
    )
    inputs = fleet.inputs(labels, folder)
    return build_router(settings, fleet.everyone, inputs, Stream(1, "router"))


def own(fleet: Fleet, name: str, folder: Path) -> Router:
    return build(fleet, f"policies_of_a_test:{name}", folder)


def test_a_class_chooses_by_what_it_sees(folder: Path) -> None:
    fleet = Fleet(3)
    fleet.see(kv_used=[0.3, 0.1, 0.1])
    router = own(fleet, "Coldest", folder)
    assert router.reads_signals
    assert chosen(router, prompt(), 0.0) == 1
    router.set_candidates([0, 2])
    assert chosen(router, prompt(), 0.0) == 2


def test_a_class_may_answer_with_a_number_and_look_at_caches(folder: Path) -> None:
    fleet = Fleet(3)
    router = own(fleet, "Warmest", folder)
    fleet.caches(2, 1, 80)
    assert chosen(router, prompt(keys=[1]), 0.0) == 2


def test_a_class_that_takes_a_stream_draws_from_the_routers_own(folder: Path) -> None:
    fleet = Fleet(5)
    draws = Stream(1, "router")
    router = own(fleet, "Lucky", folder)
    for _ in range(20):
        assert chosen(router, prompt(), 0.0) == draws.integer(0, 4)


def test_what_a_class_sees_of_servers_and_requests(folder: Path) -> None:
    fleet = Fleet(2)
    fleet.signals.observe_adapters(1, [7], 0.25)
    fleet.see(waiting=[1, 2], running=[3, 4], kv_used=[0.5, 0.25])
    fleet.send(1)
    router = own(fleet, "Telling", folder)
    request = prompt(9, session=4, adapter=7)
    request.slo, request.tenant = 1, 0
    chosen(router, request, 0.5)
    told = router._policy.policy  # type: ignore[attr-defined]
    assert told.ages == [(0.5, inf, 0.0), (0.5, 0.25, 0.0)]
    assert told.seen == [
        (0, "main", 8, 1, 3, 0, 0.5, []),
        (1, "main", 8, 2, 4, 1, 0.25, ["adapter-7"]),
    ]
    seen = told.request
    assert (seen.id, seen.session, seen.adapter) == (9, 4, "adapter-7")
    assert (seen.slo, seen.tenant) == ("standard", "acme")
    chosen(router, prompt(), 0.0)
    assert told.request.adapter is None


def test_a_class_is_found_inside_another(folder: Path) -> None:
    assert chosen(own(Fleet(2), "Outer.Inner", folder), prompt()) == 0


def test_a_class_is_found_by_the_name_a_package_gave_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("coldest", "policies_of_a_test:Coldest", custom.ENTRY_POINTS)
    found = EntryPoints([point])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found.select(group=group))
    assert custom.names_installed() == ["coldest"]
    assert chosen(build(Fleet(2), "coldest", folder), prompt()) == 0


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ("nowhere_at_all:X", "nowhere_at_all:X cannot be imported: there is no module"),
        ("needy_of_a_test:X", "there is no module 'nothing_of_that_name'"),
        ("faulty_of_a_test:X", "faulty_of_a_test:X failed when it was imported: AttributeError"),
        ("policies_of_a_test:Coldset", "has no 'Coldset' (did you mean 'Coldest'?)"),
        ("policies_of_a_test:Mute", "not a class with a method choose(request, servers)"),
        ("policies_of_a_test:function", "not a class with a method choose(request, servers)"),
        ("policies_of_a_test:Stubborn", "failed when it was created: ValueError: no mood"),
        ("a b:c", "'a b:c' names no class; allowed: package.module:Class"),
        ("policies_of_a_test:", "names no class"),
    ],
)
def test_what_cannot_be_used_gets_a_sentence(policy: str, sentence: str, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        build(Fleet(2), policy, folder)
    assert sentence in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["SaysNone", "SaysFar", "SaysWrong", "SaysTrue"])
def test_an_answer_that_is_no_server_gets_a_sentence(name: str, folder: Path) -> None:
    router = own(Fleet(2), name, folder)
    with pytest.raises(InputError, match=r"chose .* for request 5; allowed: one of the servers"):
        chosen(router, prompt(5), 0.0)


def test_an_exception_is_told_with_the_line_that_raised_it(folder: Path) -> None:
    router = own(Fleet(2), "Broken", folder)
    with pytest.raises(InputError) as caught:
        chosen(router, prompt(), 0.0)
    told = str(caught.value)
    assert told.startswith("policies_of_a_test:Broken failed in choose: ZeroDivisionError")
    assert "return 1 // 0" in told
    assert "custom.py" not in told


def test_the_length_of_the_answer_is_nothing_a_router_can_know(folder: Path) -> None:
    with pytest.raises(InputError, match="no attribute 'output_tokens'"):
        own(Fleet(2), "Nosy", folder).choose(prompt(), 0.0)

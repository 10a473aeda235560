"""The driver of takeovers: once for each object, nothing in a dry run, the set last."""

import asyncio
from unittest.mock import AsyncMock

import msgspec

from tests.gangs.kubernetes.groves import as_groves
from tests.gangs.kubernetes.stored import StoredWorld
from tests.gangs.manifests import constraint, workload
from windtunnel.gangs.kubernetes.calls import PATCH, STATUS, ApiCall
from windtunnel.gangs.objects import CLIQUE, GROUP, SET
from windtunnel.gangs.pod_manifest import TEMPLATE_HASH
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.resources import Meta, OwnerReference
from windtunnel.live.operate.mirror import TOPOLOGY, Mirror
from windtunnel.live.operate.received import Received
from windtunnel.live.operate.takeover import AGAIN, Takeover
from windtunnel.live.operate.writer import DONE, CallAnswer, CallOutcome, Versions, Writer


class Scripted(Writer):
    """Answers what it is told to."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__(AsyncMock(spec=Client), mirror)
        self.made: list[ApiCall] = []
        self.bad: dict[str, CallAnswer] = {}

    async def carry_out(self, call: ApiCall, versions: Versions) -> CallAnswer:
        self.made.append(call)
        return self.bad.get(call.kind, DONE)


def groves() -> tuple[Mirror, list[Received]]:
    world = StoredWorld(20, workload(2))
    world.run(1.0)
    mirror = Mirror(AsyncMock(), lambda: 10.0, placing=True)
    shown = []
    for (kind, _), stored in world.stored.objects.items():
        if kind not in (SET, GROUP, CLIQUE):
            continue
        theirs = as_groves(kind, stored)
        meta = theirs["metadata"]
        owners = [
            OwnerReference(kind=one["kind"], name=one["name"], uid=one["uid"], controller=True)
            for one in meta.get("ownerReferences", [])
        ]
        made = Received(
            metadata=Meta(
                name=meta["name"], namespace="default", uid=meta["uid"], owner_references=owners,
                resource_version=meta["resourceVersion"], generation=meta["generation"],
                labels=meta.get("labels", {}), finalizers=meta["finalizers"],
            ),
            spec=theirs["spec"],
            status=theirs["status"],
        )  # fmt: skip
        shown.append(made)
        mirror.objects[kind].cache.show(made)
    return mirror, shown


def test_the_set_comes_last_and_is_not_shown_before() -> None:
    mirror, _ = groves()
    writer, failed = Scripted(mirror), []
    one = Takeover(mirror, writer, lambda calls: None, lambda call, answer: failed.append(answer))
    assert not mirror.view.sets
    assert asyncio.run(one.step()) == ""
    kinds = [(call.verb, call.kind) for call in writer.made]
    assert kinds == [*[(PATCH, CLIQUE)] * 5, (PATCH, SET), (STATUS, SET), (PATCH, GROUP)]
    # They are as they were: something has undone it. It is told once and not done again.
    assert asyncio.run(one.step()) == ""
    assert asyncio.run(one.step()) == ""
    assert len(writer.made) == 8
    assert failed
    assert set(failed) == {AGAIN}
    assert len(failed) == len({call.uid for call in writer.made})


def test_a_clique_that_cannot_be_written_holds_up_its_set() -> None:
    mirror, _ = groves()
    writer, failed = Scripted(mirror), []
    one = Takeover(mirror, writer, lambda calls: None, lambda call, answer: failed.append(answer))
    writer.bad[CLIQUE] = CallAnswer(CallOutcome.FAILED, "no")
    assert asyncio.run(one.step()) == "failed"
    assert [call for call in writer.made if call.kind == SET] == []
    assert len(failed) == 5
    writer.bad.clear()
    assert asyncio.run(one.step()) == ""
    assert writer.made[-1].verb == STATUS


def test_a_dry_run_says_what_it_would_do_once() -> None:
    mirror, _ = groves()
    decided: list[ApiCall] = []
    one = Takeover(mirror, None, decided.extend, lambda call, answer: None)
    asyncio.run(one.step())
    asyncio.run(one.step())
    assert len(decided) == 8


def test_what_is_being_deleted_is_let_go() -> None:
    mirror, shown = groves()
    (owner,) = [one for one in shown if one.metadata.name == "web"]
    meta = Meta(
        name="web", namespace="default", uid=owner.metadata.uid, resource_version="9999",
        deletion_timestamp="2026-11-16T10:00:00Z", finalizers=owner.metadata.finalizers,
    )  # fmt: skip
    mirror.objects[SET].cache.show(Received(metadata=meta, spec=owner.spec, status=owner.status))
    writer = Scripted(mirror)
    asyncio.run(Takeover(mirror, writer, lambda _: None, lambda *_: None).step())
    about = [call.body for call in writer.made if call.kind == SET]
    assert about == [{"metadata": {"finalizers": []}}]
    assert {call.kind for call in writer.made} == {SET, GROUP, CLIQUE}


def test_a_clique_that_gets_its_note_belongs_to_its_set() -> None:
    mirror, shown = groves()
    (raw,) = [one for one in shown if one.metadata.name == "web-0-pc-a"]
    assert mirror.view.cliques["web-0-pc-a"].set_name == ""
    writer = Scripted(mirror)
    asyncio.run(Takeover(mirror, writer, lambda _: None, lambda *_: None).step())
    (note,) = [call.body for call in writer.made if call.name == "web-0-pc-a"]
    assert note is not None
    meta = msgspec.structs.replace(
        raw.metadata, resource_version="9999", finalizers=[],
        annotations=note["metadata"]["annotations"],
    )  # fmt: skip
    mirror.objects[CLIQUE].cache.show(msgspec.structs.replace(raw, metadata=meta))
    clique = mirror.view.cliques["web-0-pc-a"]
    assert (clique.set_name, clique.role, clique.min_available) == ("web", "pc-a", 1)
    assert clique.template.hash == raw.metadata.labels[TEMPLATE_HASH]


def test_a_set_of_an_unknown_topology_is_invalid_until_the_topology_comes() -> None:
    mirror, shown = groves()
    (owner,) = [one for one in shown if one.metadata.name == "web"]
    template = {**owner.spec["template"], "topologyConstraint": constraint("rack", "", "racks")}
    spec = {**owner.spec, "template": template}

    def show(version: str) -> None:
        meta = msgspec.structs.replace(owner.metadata, resource_version=version)
        mirror.objects[SET].cache.show(msgspec.structs.replace(owner, metadata=meta, spec=spec))

    def topology(name: str) -> None:
        levels = [{"domain": "rack", "key": "rack-key"}]
        mirror.take(TOPOLOGY, name, Received(metadata=Meta(name=name), spec={"levels": levels}))

    show("9998")
    assert not mirror.invalid  # no topology is known yet
    topology("others")
    writer = Scripted(mirror)
    one = Takeover(mirror, writer, lambda _: None, lambda *_: None)
    mirror.woken.clear()
    asyncio.run(one.step())
    assert "racks" in mirror.invalid["web"].says
    assert mirror.woken.is_set()
    assert {call.kind for call in writer.made} == {GROUP}  # its cliques wait with it
    show("9999")  # with the condition that says it
    mirror.woken.clear()
    asyncio.run(one.step())
    assert not mirror.woken.is_set()  # it is told once
    topology("racks")
    asyncio.run(one.step())
    assert [call.version for call in writer.made if call.kind == SET][:1] == ["9999"]

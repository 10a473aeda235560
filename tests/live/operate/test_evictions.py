"""Where one of the pods that would make way for a gang may not be evicted, none is."""

import asyncio
from unittest.mock import AsyncMock

from windtunnel.gangs.objects import POD
from windtunnel.gangs.placement.placer import Eviction, Pass, PlacementVerdict
from windtunnel.gangs.placement.scheduler import Planned
from windtunnel.gangs.placement.why import Waiting
from windtunnel.live.kubernetes.errors import error_of
from windtunnel.live.kubernetes.resources import Meta
from windtunnel.live.operate.mirror import Mirror
from windtunnel.live.operate.placement import Placement
from windtunnel.live.operate.received import Received


def test_one_pod_that_may_not_go_keeps_the_others_too() -> None:
    mirror, client = Mirror(AsyncMock(), lambda: 0.0, placing=True), AsyncMock()
    names = ("a", "b", "c", "d")
    pods = [Received(metadata=Meta(name=name, namespace="default", uid=name)) for name in names]
    mirror.objects[POD].cache.replace(pods, "1")
    body = b'{"kind": "Status", "message": "a budget says no"}'

    async def evict(pod: Meta, *, dry_run: bool) -> None:
        assert dry_run
        if pod.name == "b":
            raise error_of("POST", 429, body)
        if pod.name == "d":
            raise error_of("POST", 404, b"")  # it is gone

    client.evict = evict
    evictions = [Eviction(f"gang-{name}", name, "n", "high") for name in ("a", "b")]
    evictions += [Eviction("gang-c", name, "n", "other") for name in ("c", "d")]
    verdicts = [PlacementVerdict(name, Waiting.PREEMPTING, "evicted") for name in ("high", "other")]
    planned = Planned([], [], Pass([], evictions, verdicts), [], 0)
    placement = Placement(mirror, client, lambda: 7.0)
    asyncio.run(placement._check_evictions(client, planned))
    assert [one.pod for one in planned.done.evictions] == ["c", "d"]
    assert [one.says for one in planned.done.verdicts] == [
        "pods of gang-a, gang-b would make way, and may not be evicted: a budget says no",
        "evicted",
    ]
    assert placement.refused == 1
    assert placement.next_s() == 12.0

"""KV in slower tiers: what the section means, and what is wrong with it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.twin.scenario.offload_spec import TierSpec
from windtunnel.twin.scenario.plan import OffloadPlan, TierPlan
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.serving_spec import EngineSpec

WAYS = {"cpu": (25e9, 10e-6), "disk": (7e9, 100e-6), "remote": (1e9, 30e-3)}
"""From fast to slow: bytes per second and latency, of a bus, a good disk and a network."""


def offload_plan(engine: EngineSpec) -> OffloadPlan | None:
    """None where what is evicted is gone."""
    if engine.offload is None:
        return None
    return OffloadPlan(tuple(_tier(one) for one in engine.offload), engine.kv_bytes_per_token)


def _tier(spec: TierSpec) -> TierPlan:
    bandwidth, latency = WAYS[spec.tier]
    return TierPlan(
        name=spec.tier,
        size_bytes=spec.size,
        bytes_per_s=bandwidth if spec.bandwidth is None else spec.bandwidth,
        latency_s=latency if spec.latency is None else spec.latency,
    )


def offload_faults(spec: Scenario) -> Iterator[Fault]:
    for index, pool in enumerate(spec.serving.pools):
        path = ("serving", "pools", index, "engine")
        engine = pool.engine
        if engine.offload is not None:
            yield from _order_faults((*path, "offload"), engine.offload)
            if not engine.prefix_caching:
                what = "prefix_caching is off, so that nothing is cached that could go there"
                because = ((*path, "prefix_caching"),)
                yield Fault((*path, "offload"), what, because_of=because)
            if spec.model is None and engine.kv_bytes_per_token is None:
                what = "missing, and the scenario has no model that says how large it is"
                yield Fault((*path, "kv_bytes_per_token"), what, "a size, such as 128KiB")
        elif engine.kv_bytes_per_token is not None:
            what = "nothing of this pool asks for it"
            yield Fault((*path, "kv_bytes_per_token"), what, "only with offload")


def _order_faults(path: KeyPath, tiers: Sequence[TierSpec]) -> Iterator[Fault]:
    order = list(WAYS)
    for index, (one, next_) in enumerate(pairwise(tiers)):
        if order.index(next_.tier) <= order.index(one.tier):
            again = next_.tier == one.tier
            what = f"{next_.tier!r} comes " + ("twice" if again else f"after {one.tier!r}")
            yield Fault(
                (*path, index + 1, "tier"), what, f"each once, in the order {', '.join(order)}"
            )

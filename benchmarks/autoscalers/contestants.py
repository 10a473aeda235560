"""The policies, each with the knobs that its users turn, over the range in which they turn them.

Everyone has eight tries at most: four values of its own, from lax to strict, on two floors (`min`).
"""

from collections.abc import Callable

FLOORS = (1, 6)
"""Replicas that stay, whatever the policy says: the knob that all autoscalers have."""


def _section(policy: str, floor: float, body: str, interval: str = "15s") -> str:
    bounds = f"  pools: {{main: {{min: {floor:g}, max: 24}}}}\n"
    return f"scaling:\n  policy: {policy}\n  interval: {interval}\n{bounds}{body}"


def _hpa(target: float, floor: float) -> str:
    metric = f"  metrics: [{{name: requests, target: {target:g}}}]\n"
    return _section("hpa", floor, metric + "  down: {window: 2m}\n")


def _keda(target: float, floor: float) -> str:
    metric = f"  metrics: [{{name: requests, target: {target:g}, type: total}}]\n"
    return _section("keda", floor, metric + "  down: {window: 2m}\n")


def _hpa_kv(target: float, floor: float) -> str:
    metric = f"  metrics: [{{name: kv_used, target: {target:g}}}]\n"
    return _section("hpa", floor, metric + "  down: {window: 2m}\n")


def _knative(target: float, floor: float) -> str:
    return _section("knative", floor, f"  target: {target:g}\n  utilization_percent: 100\n", "2s")


def _aibrix(target: float, floor: float) -> str:
    return _section("aibrix", floor, f"  metrics: {{requests: {target:g}}}\n")


def _kthena(target: float, floor: float) -> str:
    body = f"  metrics: {{requests: {target:g}}}\n"
    body += "  behavior: {down: {window: 2m}, panic: {hold: 60s}}\n"
    return _section("kthena-homogeneous", floor, body)


def _wva(up: float, floor: float) -> str:
    body = f"  up: {up:g}\n  down: {up * 0.8:g}\n  stabilization: {{up: 0s, down: 2m}}\n"
    return _section("wva", floor, body)


def _wva_v1(queue: float, floor: float) -> str:
    body = f"  queue_threshold: {queue:g}\n  queue_spare: {queue * 0.6:g}\n"
    return _section("wva-v1", floor, body + "  stabilization: {up: 0s, down: 2m}\n")


def _saturation(up: float, floor: float) -> str:
    body = f"  up: {up:g}\n  down: {up * 0.7:g}\n  stabilization: {{up: 0s, down: 2m}}\n"
    return _section("saturation", floor, body)


def _blis(up: float, floor: float) -> str:
    return _section("blis", floor, f"  up: {up:g}\n  down: {up * 0.5:g}\n")


def _dynamo(itl: float, floor: float) -> str:
    body = f"  adjustment: 60s\n  itl: {itl:g}ms\n  accelerator_budget: 96\n  predictor: kalman\n"
    return _section("dynamo", floor, body)


def _fixed(replicas: float) -> str:
    """No autoscaler: a pool of one size, which somebody chose who knew the traffic."""
    size = f"{replicas:g}"
    return f"scaling:\n  policy: saturation\n  pools: {{main: {{min: {size}, max: {size}}}}}\n"


def _predictive(probability: float, headroom: float, floor: float) -> str:
    body = f"  probability: {probability:g}\n  headroom: {headroom:g}\n  season: SEASON\n"
    return _section("predictive", floor, body)


Knob = tuple[float, ...]
"""The last of it is the floor."""


def _each(*values: float | Knob) -> list[list[Knob]]:
    own = [value if isinstance(value, tuple) else (value,) for value in values]
    return [[(*value, floor) for value in own] for floor in FLOORS]


CONTESTANTS: dict[str, tuple[Callable[..., str], list[list[Knob]]]] = {
    "hpa, requests": (_hpa, _each(80, 60, 40, 20)),
    "hpa, KV cache": (_hpa_kv, _each(0.25, 0.15, 0.08, 0.05)),
    "keda, requests": (_keda, _each(80, 60, 40, 20)),
    "knative": (_knative, _each(80, 60, 40, 20)),
    "aibrix APA": (_aibrix, _each(60, 40, 30, 20)),
    "kthena": (_kthena, _each(80, 60, 40, 20)),
    "wva v1": (_wva_v1, _each(10, 5, 2, 0.5)),
    "wva v2": (_wva, _each(0.3, 0.2, 0.1, 0.06)),
    "saturation": (_saturation, _each(0.3, 0.2, 0.1, 0.06)),
    "blis": (_blis, _each(0.3, 0.2, 0.1, 0.06)),
    "dynamo": (_dynamo, _each(60, 40, 30, 25)),
    "fixed": (_fixed, [[(size,) for size in (6, 7, 8, 9, 10)]]),
    "predictive": (_predictive, _each((0.9, 0), (0.9, 0.1), (0.9, 0.2), (0.98, 0.4))),
}
"""By name: what makes its section from the values of its knobs, and for each floor those values."""

OURS = "predictive"
FIXED = "fixed"

"""The policies, each with the knob that its users turn, over the range in which they turn it."""

from collections.abc import Callable

BOUNDS = "  pools: {main: {min: 1, max: 24}}\n"


def _section(policy: str, body: str, interval: str = "15s") -> str:
    return f"scaling:\n  policy: {policy}\n  interval: {interval}\n{BOUNDS}{body}"


def _hpa(target: float) -> str:
    metric = f"  metrics: [{{name: requests, target: {target:g}}}]\n"
    return _section("hpa", metric + "  down: {window: 2m}\n")


def _keda(target: float) -> str:
    metric = f"  metrics: [{{name: requests, target: {target:g}, type: total}}]\n"
    return _section("keda", metric + "  down: {window: 2m}\n")


def _hpa_kv(target: float) -> str:
    metric = f"  metrics: [{{name: kv_used, target: {target:g}}}]\n"
    return _section("hpa", metric + "  down: {window: 2m}\n")


def _knative(target: float) -> str:
    return _section("knative", f"  target: {target:g}\n  utilization_percent: 100\n", "2s")


def _aibrix(target: float) -> str:
    return _section("aibrix", f"  metrics: {{requests: {target:g}}}\n")


def _kthena(target: float) -> str:
    body = f"  metrics: {{requests: {target:g}}}\n"
    body += "  behavior: {down: {window: 2m}, panic: {hold: 60s}}\n"
    return _section("kthena-homogeneous", body)


def _wva(up: float) -> str:
    body = f"  up: {up:g}\n  down: {up * 0.8:g}\n  stabilization: {{up: 0s, down: 2m}}\n"
    return _section("wva", body)


def _wva_v1(queue: float) -> str:
    body = f"  queue_threshold: {queue:g}\n  queue_spare: {queue * 0.6:g}\n"
    return _section("wva-v1", body + "  stabilization: {up: 0s, down: 2m}\n")


def _saturation(up: float) -> str:
    body = f"  up: {up:g}\n  down: {up * 0.7:g}\n  stabilization: {{up: 0s, down: 2m}}\n"
    return _section("saturation", body)


def _blis(up: float) -> str:
    return _section("blis", f"  up: {up:g}\n  down: {up * 0.5:g}\n")


def _dynamo(itl: float) -> str:
    body = f"  adjustment: 60s\n  itl: {itl:g}ms\n  accelerator_budget: 96\n  predictor: kalman\n"
    return _section("dynamo", body)


def _fixed(replicas: float) -> str:
    """No autoscaler: a pool of one size, which somebody chose who knew the traffic."""
    size = f"{replicas:g}"
    return f"scaling:\n  policy: saturation\n  pools: {{main: {{min: {size}, max: {size}}}}}\n"


def _predictive(probability: float, headroom: float) -> str:
    body = f"  probability: {probability:g}\n  headroom: {headroom:g}\n  season: SEASON\n"
    return _section("predictive", body)


Knob = tuple[float, ...]


def _each(*values: float) -> list[Knob]:
    return [(value,) for value in values]


CONTESTANTS: dict[str, tuple[Callable[..., str], list[Knob]]] = {
    "hpa, requests": (_hpa, _each(20, 30, 40, 60, 80)),
    "hpa, KV cache": (_hpa_kv, _each(0.05, 0.08, 0.15, 0.25)),
    "keda, requests": (_keda, _each(20, 30, 40, 60, 80)),
    "knative": (_knative, _each(20, 30, 40, 60, 80)),
    "aibrix APA": (_aibrix, _each(20, 30, 40, 60)),
    "kthena": (_kthena, _each(20, 30, 40, 60, 80)),
    "wva v1": (_wva_v1, _each(0.5, 2, 5)),
    "wva v2": (_wva, _each(0.06, 0.08, 0.1, 0.2, 0.3)),
    "saturation": (_saturation, _each(0.06, 0.08, 0.1, 0.2, 0.3)),
    "blis": (_blis, _each(0.05, 0.06, 0.07, 0.08, 0.1)),
    "dynamo": (_dynamo, _each(25, 30, 40, 60)),
    "fixed": (_fixed, _each(6, 7, 8, 9, 10)),
    "predictive": (
        _predictive,
        [(0.75, 0), (0.9, 0), (0.98, 0), (0.98, 0.2), (0.98, 0.4), (0.98, 0.7), (0.98, 1.0)],
    ),
}
"""By name: what makes its section from the value of its knob, and the values that are tried."""

OURS = "predictive"
FIXED = "fixed"

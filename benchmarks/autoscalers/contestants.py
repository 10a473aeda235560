"""The policies, each with the knob that its users turn, over the range in which they turn it."""

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


def _predictive(probability: float) -> str:
    return _section("predictive", f"  probability: {probability:g}\n  season: SEASON\n")


CONTESTANTS = {
    "hpa, requests": (_hpa, [20.0, 30.0, 40.0, 60.0, 80.0]),
    "hpa, KV cache": (_hpa_kv, [0.08, 0.15, 0.25, 0.35]),
    "keda, requests": (_keda, [20.0, 30.0, 40.0, 60.0, 80.0]),
    "knative": (_knative, [20.0, 30.0, 40.0, 60.0, 80.0]),
    "aibrix APA": (_aibrix, [20.0, 30.0, 40.0, 60.0]),
    "kthena": (_kthena, [20.0, 30.0, 40.0, 60.0, 80.0]),
    "wva v1": (_wva_v1, [0.5, 2.0, 5.0]),
    "wva v2": (_wva, [0.1, 0.2, 0.3, 0.5, 0.85]),
    "saturation": (_saturation, [0.1, 0.2, 0.3, 0.5, 0.8]),
    "blis": (_blis, [0.1, 0.2, 0.4, 0.8]),
    "dynamo": (_dynamo, [25.0, 30.0, 40.0, 60.0]),
    "predictive": (_predictive, [0.75, 0.9, 0.97, 0.99, 0.995]),
}
"""By name: what makes its section from the value of its knob, and the values that are tried."""

OURS = "predictive"

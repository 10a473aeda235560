"""Pods, pages of metrics and Autoscalers of the tests."""

from typing import Any

from windtunnel.scaling.kubernetes.autoscaler import autoscaler_plan
from windtunnel.scaling.kubernetes.pages import PodReading, page_samples, reading_of
from windtunnel.scaling.kubernetes.plan import ScalingPlan
from windtunnel.scaling.kubernetes.snapshots import PodView

HPA: dict[str, Any] = {
    "policy": "hpa",
    "metrics": [{"name": "vllm:num_requests_waiting", "target": 5}],
    "pools": {"main": {"min": 1, "max": 8}},
}


def target(name: str = "main", **more: Any) -> dict[str, Any]:
    return {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, **more}


def plan(scaling: dict[str, Any] = HPA, **more: Any) -> ScalingPlan:
    return autoscaler_plan("ns", "chat", {"targets": [target()], "scaling": scaling, **more})


def pods(count: int, **more: Any) -> list[PodView]:
    return [PodView(f"uid-{number}", f"pod-{number}", 0.0, **more) for number in range(count)]


def page(
    waiting: int = 0, running: int = 0, kv: float = 0.5, *, ended: int = 0, first: int = 0
) -> bytes:
    """As vLLM has it, of two engines; `first` is how many have had their first token, in 0.3 s."""
    return b"\n".join(
        line.encode()
        for line in (
            "# TYPE vllm:num_requests_waiting gauge",
            f'vllm:num_requests_waiting{{engine="0",model_name="a}}\\"b"}} {waiting}',
            f'vllm:num_requests_running{{engine="0"}} {running - running // 2}.0',
            f'vllm:num_requests_running{{engine="1"}} {running // 2}.0',
            f'vllm:kv_cache_usage_perc{{engine="0"}} {kv}',
            'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0',
            f'vllm:request_success_total{{finished_reason="stop"}} {ended}.0',
            f"vllm:prompt_tokens_total {100 * first}.0",
            f"vllm:generation_tokens_total {20 * ended}.0",
            'vllm:time_to_first_token_seconds_bucket{le="0.1"} 0.0',
            f'vllm:time_to_first_token_seconds_bucket{{le="0.5"}} {first}.0',
            f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {first}.0',
            f"vllm:time_to_first_token_seconds_count {first}.0",
            f"vllm:time_to_first_token_seconds_sum {0.3 * first}",
        )
    )


def reading(*args: Any, **more: Any) -> PodReading:
    return reading_of(page_samples(page(*args, **more)))

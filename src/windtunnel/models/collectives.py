"""How long GPUs of one machine take to add up their partial results."""

from __future__ import annotations

from windtunnel.models.accelerators import Accelerator

__all__ = ["all_reduce_latency_s", "all_reduce_s"]

# The time of a message too small to load the links, in a captured graph: switched links hardly
# notice how many GPUs take part, a shared PCIe tree serves them one after the other.
SWITCHED_LATENCY_S = 5e-6
PCIE_LATENCY_S_PER_GPU = 3e-6


def all_reduce_latency_s(gpus: int, accelerator: Accelerator) -> float:
    if gpus <= 1:
        return 0.0
    return PCIE_LATENCY_S_PER_GPU * gpus if accelerator.link == "pcie" else SWITCHED_LATENCY_S


def all_reduce_s(message_bytes: float, gpus: int, accelerator: Accelerator) -> float:
    """Latency, plus the least traffic an all-reduce needs at the links' full rate.

    Each GPU must send (n-1)/n of the message once to reduce it and once more to share the sum.
    """
    if gpus <= 1:
        return 0.0
    sent_bytes = 2 * (gpus - 1) / gpus * message_bytes
    return all_reduce_latency_s(gpus, accelerator) + sent_bytes / accelerator.link_bytes_per_s

"""Defects of other simulators' disaggregation that must not be here, each by its name."""

import pytest

from tests.twin.runs import one_server, run
from tests.twin.test_disaggregation import split

KINDS = """\
name: two-kinds
model: llama-3.1-8b
workload:
  - {name: chat, count: 20, arrivals: {process: constant, rate: 2/s}, prompt_tokens: 500,
     output_tokens: 50}
serving:
  pools:
    - {name: first, role: prefill, accelerator: h100}
    - {name: second, role: decode, accelerator: h100}
"""
"""Prompts and answers on accelerators of their own; TTFT is mostly the first, TPOT the second."""


def test_ttft_does_not_lack_the_last_prefill_step() -> None:
    """The peer starts the transfer at the start of that step: of a prompt in one step, all of it.

    Prefill 10 + 1001 ms, transfer 1 + 1000 ms, the last token of the prompt 20 + 2 ms.
    """
    slow = split(prompt=1001)["latency"]["ttft"]["mean"]
    assert slow == pytest.approx((0.010 + 1.001) + (0.001 + 1.0) + 0.022, rel=1e-9)


@pytest.mark.parametrize(("pool", "figure"), [(0, "ttft"), (1, "tpot")])
def test_another_accelerator_in_a_pool_with_a_role_changes_its_speed(
    pool: int, figure: str
) -> None:
    """The peer changes the number of KV blocks alone."""
    fast = run(KINDS)["latency"][figure]["mean"]
    slow = run(KINDS, f"serving.pools.{pool}.accelerator=l40s")["latency"][figure]["mean"]
    assert slow > 1.5 * fast


def test_another_accelerator_in_a_pool_that_does_both_changes_its_speed() -> None:
    """Every other request goes to a pool of L40S beside one of H100, and is as slow as there."""
    whole = ("serving.pools.0.role=both", "serving.pools.1.role=both")
    slow = ("serving.pools.0.accelerator=l40s", "serving.pools.1.accelerator=l40s")
    tpot = [run(KINDS, *whole, *sets)["latency"]["tpot"] for sets in ((), (slow[1],), slow)]
    fast, mixed, alone = tpot
    assert alone["mean"] > 2 * fast["mean"]
    assert mixed["max"] == pytest.approx(alone["max"], rel=0.05)
    assert mixed["mean"] == pytest.approx((fast["mean"] + alone["mean"]) / 2, rel=0.05)


def test_what_the_decode_server_has_cached_is_not_moved_again() -> None:
    """The second request's first 96 tokens (six blocks) are in both caches by then."""
    result = split(count=2, prompt=5, more="prefix: {tokens: 96}")
    assert result["requests"]["completed"] == 2
    assert result["disaggregation"]["moved_tokens"] == 100 + 4
    assert result["disaggregation"]["present_tokens"] == 96


def test_transfers_share_the_bandwidth_until_one_ends() -> None:
    """Both prefills end together; 200 kB at 1 MB/s for two transfers are there after 200 ms.

    The second one arrives a microsecond after the first, whose step it has to wait for.
    """
    result = split(count=2, rate="1000000/s", prefills=2, latency="0s")
    latest = 0.111 + 0.200 + 0.022 + (0.020 + 0.002 + 0.004)
    assert result["latency"]["ttft"]["max"] == pytest.approx(latest, abs=1e-5)


def test_a_transfer_that_is_left_alone_has_all_of_the_bandwidth() -> None:
    """The second prefill ends 50 ms after the first; a share that is fixed at the start is wrong.

    The first has 50 of its 100 kB across then, and at half the rate needs 100 ms for the rest. The
    second has 50 kB left by then, and all of the link for them: 50 ms. Both took 150 ms.
    """
    result = split(count=2, rate="20/s", prefills=2, latency="0s")["disaggregation"]
    assert result["transfer"]["mean"] == pytest.approx(0.150, abs=1e-6)
    assert result["transfer"]["max"] == pytest.approx(0.150, abs=1e-6)


def test_encoding_costs_time() -> None:
    """An encoder takes 50 + 100 ms for each of two requests that come together, one at a time."""
    text = one_server(count=2, rate="1000000/s", output=1)
    media = "workload.0.media={tokens: 100}"
    encode = "serving.encode={fixed: 50ms, per_token: 1ms}"
    alone = run(one_server(output=1), media)["latency"]["ttft"]["mean"]
    slowest = run(text, media, encode)["latency"]["ttft"]["max"]
    assert slowest == pytest.approx(2 * 0.150 + alone, abs=1e-5)

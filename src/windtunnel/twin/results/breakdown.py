"""The breakdowns of a result: by class, source, tenant and server, sessions, the gateway."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windtunnel.admission.gateway.tickets import KIND_NAMES
from windtunnel.core.statistics.distribution import Distribution, summary
from windtunnel.core.statistics.histogram import merged
from windtunnel.engine.server import Server
from windtunnel.engine.tiers import Tier
from windtunnel.twin.requests.gateway import SimGateway
from windtunnel.twin.results.accounts import (
    MOST_LISTED,
    Account,
    ClassAccount,
    LatencyAccount,
    OutcomeTally,
    TenantAccount,
    WorkAccount,
)
from windtunnel.twin.results.recorder import COMPLETED, OUTCOMES
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import cost_of, offload_token_bytes, shape_of
from windtunnel.twin.servers.replicas import READY, STARTING, Pool
from windtunnel.twin.settings import PoolSettings
from windtunnel.twin.simulation import Simulation

MOST_SERVERS = 1_000
"""The most servers that a result lists; `timeline.parquet` has all of them."""


def per(amount: float, of: float) -> float | None:
    """A ratio; None when the divisor is 0."""
    return amount / of if of else None


def classes_of(plan: ScenarioPlan, accounts: list[ClassAccount], seconds: float) -> dict[str, Any]:
    """The figures of the classes that sources or requests use, by name.

    A target that is not set is neither met nor missed.
    """
    named = {entry.slo for entry in plan.workload}
    return {
        account.name: {
            **_tally(account),
            "attained_by": {
                name: per(int(kept), int(account.requests)) if target < float("inf") else None
                for name, target, kept in (
                    ("ttft", account.targets.ttft_s, account.kept_ttft),
                    ("tpot", account.targets.tpot_s, account.kept_tpot),
                    ("e2e", account.targets.e2e_s, account.kept_e2e),
                )
            },
            "goodput_requests_per_s": per(int(account.attained), seconds),
            "ttft": summary(account.latencies.ttft),
            "tpot": summary(account.latencies.tpot),
            "e2e": summary(account.latencies.e2e),
            "queue": summary(account.latencies.queue),
        }
        for account in sorted(accounts, key=lambda account: account.name)
        if account.requests or account.name in named
    }


def sources_of(accounts: Iterable[Account], seconds: float) -> dict[str, Any]:
    """The figures of each source, in the scenario's order."""
    return {account.name: _account(account, seconds) for account in accounts}


def tenants_of(accounts: Iterable[TenantAccount], seconds: float) -> dict[str, Any]:
    """The figures of each tenant with its latencies, in order of appearance."""
    return {
        account.name: {
            **_account(account, seconds),
            "ttft": summary(account.ttft),
            "e2e": summary(account.e2e),
        }
        for account in accounts
    }


def _tally(account: OutcomeTally) -> dict[str, Any]:
    return {
        "requests": int(account.requests),
        "completed": int(account.completed),
        **{name: account.others.get(name, 0) for name in OUTCOMES if name != COMPLETED},
        "attained": per(int(account.attained), int(account.requests)),
    }


def _account(account: Account, seconds: float) -> dict[str, Any]:
    return {
        **_tally(account),
        "goodput_requests_per_s": per(int(account.attained), seconds),
        "prompt_tokens": int(account.prompt_tokens),
        "output_tokens": int(account.output_tokens),
        "served_share": _served(account),
    }


def _served(account: Account) -> float | None:
    """The share of the requested tokens that were served."""
    return per(int(account.prompt_tokens + account.output_tokens), int(account.asked_tokens))


def fairness_of(
    accounts: Iterable[Account], weights: Mapping[str, float] | None = None
) -> dict[str, float | None]:
    """Jain's index over tenants of what each received relative to what it requested.

    Relative, since a tenant that requests twice as much and gets twice as much has been treated as
    fairly as the others. Where tenants have weights, tokens are relative to each tenant's fair
    amount: all served tokens, divided by weight among those that request more.
    """
    asking = [account for account in accounts if account.requests]
    served = [_served(account) or 0.0 for account in asking]
    if weights:
        asked = [float(account.asked_tokens) for account in asking]
        got = [share * amount for share, amount in zip(served, asked, strict=True)]
        due = fair_amounts(sum(got), asked, [weights.get(one.name, 1.0) for one in asking])
        served = [one / fair if fair else 1.0 for one, fair in zip(got, due, strict=True)]
    good = [int(account.attained) / int(account.requests) for account in asking]
    return {"served_tokens": jain(served), "goodput": jain(good)}


def fair_amounts(total: float, asked: list[float], weights: list[float]) -> list[float]:
    """Divides a total by weight; what a smaller demand leaves of its part goes to the others."""
    amounts = [0.0] * len(asked)
    hungry = list(range(len(asked)))
    while hungry:
        each = total / sum(weights[n] for n in hungry)
        sated = [n for n in hungry if asked[n] <= each * weights[n]]
        for n in sated or hungry:
            amounts[n] = asked[n] if sated else each * weights[n]
        total -= sum(asked[n] for n in sated)
        hungry = [n for n in hungry if n not in sated] if sated else []
    return amounts


def jain(shares: list[float]) -> float | None:
    """1 when all are equal, 1/n when one of n has everything; None when all have nothing."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def sessions_of(simulation: Simulation) -> dict[str, Any]:
    """The figures of sessions: the first turn finds a cold cache, later ones a warm one."""
    sessions, ends = simulation.recorder.sessions, simulation.traffic.sessions
    return {
        "count": sessions.count,
        "turns": sessions.turns,
        "ended": {
            "completed": ends.completed,
            "cancelled": ends.cancelled,
            "interrupted": ends.interrupted,
        },
        "cold_ttft": summary(sessions.cold_ttft),
        "warm_ttft": summary(sessions.warm_ttft),
        "duration": summary(sessions.durations()),
    }


def gateway_of(gateways: Sequence[SimGateway | None]) -> dict[str, Any] | None:
    """Decisions of the gateways; None without a gateway, where every request is admitted."""
    drivers = [gateway.driver for gateway in gateways if gateway is not None]
    if not drivers:
        return None
    decisions: dict[str, dict[str, int]] = {kind: {} for kind in KIND_NAMES}
    for driver in drivers:
        for kind, counts in zip(KIND_NAMES, driver.counts, strict=True):
            for reason, count in counts.items():
                decisions[kind][str(reason)] = decisions[kind].get(str(reason), 0) + count
    return {
        "waiting_peak": max(driver.queued_peak for driver in drivers),
        "decisions": {kind: dict(sorted(counts.items())) for kind, counts in decisions.items()},
    }


def models_of(plan: ScenarioPlan, simulation: Simulation) -> dict[str, Any] | None:
    """The figures of each of several models, with the keys of the whole; None with one model."""
    accounts, measured = simulation.recorder.models, simulation.recorder.measured.models
    seconds, window_s = simulation.now_s, measured_s(simulation)
    if not accounts:
        return None
    found = {}
    for number, account in enumerate(accounts):
        one = measured[number]
        pools = [
            (pool, own)
            for pool, own in zip(plan.pools, simulation.cluster.pools, strict=True)
            if own.model == number
        ]
        cost = sum(cost_of(pool, own.paid_s(seconds)) for pool, own in pools)
        found[account.name] = {
            "pools": [pool.name for pool, _ in pools],
            "attained": per(int(one.attained), int(one.requests)),
            "cost": {
                "total": cost,
                "per_million_output_tokens": per(cost * 1e6, int(account.output_tokens)),
            },
            "requests": {
                "arrived": int(account.requests),
                "completed": int(account.completed),
                **{name: account.others.get(name, 0) for name in OUTCOMES if name != COMPLETED},
            },
            "tokens": tokens_of(account),
            "latency": latency_of(
                one.latencies, [server for _, own in pools for server in own.servers]
            ),
            "throughput": throughput_of(one, window_s),
        }
    return found


def measured_s(simulation: Simulation) -> float:
    """The length of the measurement window within the run."""
    window, seconds = simulation.recorder.window, simulation.now_s
    return seconds if window is None else window.length_s(seconds)


def tokens_of(account: WorkAccount) -> dict[str, int]:
    return {
        "prompt": int(account.prompt_tokens),
        "output": int(account.output_tokens),
        "prefix_hit": int(account.prefix_hit_tokens),
    }


def throughput_of(account: WorkAccount, seconds: float) -> dict[str, float | None]:
    return {
        "requests_per_s": per(int(account.completed), seconds),
        "output_tokens_per_s": per(int(account.output_tokens), seconds),
        "goodput_requests_per_s": per(int(account.attained), seconds),
    }


def latency_of(latencies: LatencyAccount, servers: Iterable[Server]) -> dict[str, Any]:
    """Latencies of requests, and inter-token times as the servers produced them."""
    gaps = merged(server.token_gaps for server in servers)
    return {
        "ttft": summary(latencies.ttft),
        "tpot": summary(latencies.tpot),
        "itl": summary(gaps) | {"max": gaps.high if gaps.count else None},
        "e2e": summary(latencies.e2e),
        "queue": summary(latencies.queue),
    }


def speculative_of(pool: Pool) -> dict[str, Any]:
    """The figures of drafts of a pool's servers; empty without speculative decoding."""
    counts = [server.drafts for server in pool.servers if server.drafts is not None]
    if pool.limits.drafts is None:
        return {}
    drafts = sum(int(one.steps) for one in counts)
    drafted = sum(int(one.drafted) for one in counts)
    accepted = sum(int(one.accepted) for one in counts)
    return {
        "speculative": {
            "drafts": drafts,
            "drafted_tokens": drafted,
            "accepted_tokens": accepted,
            "acceptance_rate": per(accepted, drafted),
            "acceptance_length": per(drafts + accepted, drafts),
        }
    }


def adapters_of(simulation: Simulation, seconds: float) -> dict[str, Any] | None:
    """The figures of LoRA adapters, by number; None when no server has slots."""
    slots = [server.slots for server in simulation.servers if server.slots is not None]
    if not slots:
        return None
    accounts = simulation.recorder.adapters.accounts
    loads, evictions = [0] * len(accounts), [0] * len(accounts)
    for one in slots:
        for counts, total in ((one.loads, loads), (one.evictions, evictions)):
            for adapter, count in counts.items():
                total[min(adapter, MOST_LISTED)] += count
    return {
        name: {
            **figures,
            "output_tokens_per_s": per(figures["output_tokens"], seconds),
            "loads": loads[number],
            "evictions": evictions[number],
        }
        for number, (name, figures) in enumerate(tenants_of(accounts, seconds).items())
    }


def replicas_of(plan: PoolSettings, pool: Pool) -> dict[str, int]:
    """How many servers a pool had, and the results of scaling it."""
    return {
        "initial": plan.replicas,
        "final": pool.counts[STARTING] + pool.counts[READY],
        "most": pool.most,
        "started": int(pool.started),
        "drained": int(pool.drained),
        "redirected": int(pool.redirected),
        "lost": int(pool.lost),
        "retried": int(pool.retried),
        "failed": int(pool.failed),
        "lost_tokens": int(pool.lost_tokens),
        "rate_limited": int(pool.rate_limited),
    }


def servers_of(simulation: Simulation) -> list[dict[str, Any]]:
    """The figures of each server, pool by pool."""
    accounts = simulation.recorder.servers
    listed: list[dict[str, Any]] = []
    for replica in (one for pool in simulation.cluster.pools for one in pool.replicas):
        if len(listed) == MOST_SERVERS:
            break
        server, account = replica.server, accounts[replica.server.index]
        listed.append(
            {
                "pool": replica.pool.name,
                "server": replica.number,
                "requests": int(account.requests),
                "queue_mean": per(account.waited_s, int(account.prompts)),
                "utilization": per(server.busy_s, replica.served_s(simulation.now_s)),
                "steps": int(server.steps),
                "preemptions": int(server.preemptions),
                "kv_peak": kv_peak_of(server),
                "prefix_hit_tokens": int(account.prefix_hit_tokens),
                "output_tokens": int(account.output_tokens),
            }
        )
    return listed


def offload_of(pool: PoolSettings, own: Pool, seconds: float) -> dict[str, Any] | None:
    """What slower tiers stored and loaded, by tier; None when there are none.

    `seconds` is the total time in which the pool's servers could serve.
    """
    offload = pool.engine.offload
    if offload is None:
        return None
    block_bytes = pool.engine.block_size * offload_token_bytes(pool.engine, shape_of(pool))
    waits = Distribution()
    found: list[list[Tier]] = [[] for _ in offload]
    most = [int(tier.blocks) for tier in own.limits.tiers or []]
    for server in own.servers:
        assert server.tiers is not None
        waits.take(server.tiers.waits)
        for place, tier in enumerate(server.tiers.tiers):
            found[place].append(tier)
    return {
        "tiers": {
            one.tier: _tier(tiers, blocks, block_bytes, pool.engine.block_size, seconds)
            for one, blocks, tiers in zip(offload, most, found, strict=True)
        },
        "wait": summary(waits),
    }


def _tier(
    tiers: list[Tier], blocks: int, block_bytes: float, block_size: int, seconds: float
) -> dict[str, Any]:
    """One tier over all servers of a pool."""
    loaded = sum(int(tier.loaded) for tier in tiers)
    return {
        "blocks": blocks,
        "peak": max((int(tier.most_used) / blocks for tier in tiers), default=0.0),
        "loads": sum(int(tier.loads) for tier in tiers),
        "loaded_tokens": loaded * block_size,
        "loaded_bytes": loaded * block_bytes,
        "stored_bytes": sum(int(tier.stored) for tier in tiers) * block_bytes,
        "evicted_bytes": sum(int(tier.evicted) for tier in tiers) * block_bytes,
        "busy": per(sum(tier.busy_s for tier in tiers), seconds),
    }


def kv_peak_of(server: Server) -> float:
    """The largest share of its KV blocks that a server had in use."""
    return 1.0 - int(server.pool.lowest_free) / int(server.pool.blocks)

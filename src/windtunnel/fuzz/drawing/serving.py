"""Draws `serving:` without its gateway: pools, engines with odd limits, routers, disaggregation,
and the model and the cluster of each pool."""

import copy
import math

from windtunnel.engine.settings import EngineSettings
from windtunnel.fuzz.drawing.swarm import Swarm
from windtunnel.fuzz.drawing.workload import TrafficDraw
from windtunnel.routing.build import BY_CACHE, POLICIES, SCORERS, reads_signals
from windtunnel.routing.settings import RouterSettings
from windtunnel.settings.drawing import Dice, Values, draw_section

MODEL = "qwen2.5-0.5b"
MODELS = (MODEL, "llama-3.2-1b")
ELSEWHERE = ("east", "west")
APART = "apart"
"""The pool of the second model, if the other pools depend on each other."""
ACCELERATORS = ("h100", "l40s", "a100-80gb")
KV_BYTES = 1000
"""KV bytes per token, if no model determines them."""
SHORTEST_STEP_S = 1e-3
LONGEST_STEP_S = 0.5
POOLS = ("main", "spare", "far")
SWITCHES = (
    "scheduling",
    "null_block",
    "reserve_full_prompt",
    "unhashed_blocks_first",
    "async_scheduling",
    "mixed_batches",
)
"""Engine options that are compatible with all others."""

ROLES: tuple[tuple[str, ...], ...] = (
    ("prefill", "decode"),
    ("both", "prefill"),
    ("decode", "both"),
    ("prefill", "both", "decode"),
    ("prefill", "decode", "decode"),
)


class Pools:
    """The drawn pools, and whether any of them needs a model."""

    def __init__(self, pools: list[Values]) -> None:
        self.pools = pools
        self.names: list[str] = [pool["name"] for pool in pools]
        self.roles: list[str] = [pool.get("role", "both") for pool in pools]

    @property
    def models(self) -> list[str]:
        """The models that pools name; empty if none does."""
        return sorted({pool["model"] for pool in self.pools if "model" in pool})

    @property
    def is_split(self) -> bool:
        return any(role != "both" for role in self.roles)

    @property
    def needs_model(self) -> bool:
        return any(
            pool["step_time"]["model"] != "linear" or pool["engine"]["kv_blocks"] == "auto"
            for pool in self.pools
        )


def draw_pools(swarm: Swarm, traffic: TrafficDraw) -> Pools:
    dice = swarm.dice("pools")
    roles: tuple[str, ...] = ("both",) * (dice.few(1, 3) if swarm.has("several-pools") else 1)
    if swarm.has("disaggregation"):
        roles = dice.pick(*ROLES)
    pools = []
    for number, role in enumerate(roles):
        one = swarm.dice(f"pools.{number}")
        pool: Values = {"name": POOLS[number], "replicas": one.few(1, 3)}
        if role != "both":
            pool["role"] = role
        if swarm.has("accelerators"):
            pool["accelerator"] = one.pick(*ACCELERATORS)
        pool["engine"] = _engine(one, swarm, traffic)
        pool["step_time"] = _step_time(one, pool, swarm, traffic)
        _draw_drafts(swarm.dice(f"pools.{number}.drafts"), swarm, pool["engine"])
        _draw_degrees(swarm.dice(f"pools.{number}.degrees"), swarm, pool)
        if swarm.has("overheads") and one.chance(0.7):
            keys = one.some(("queueing", "per_token", "completion"))
            pool["overheads"] = {key: one.span(1e-5, 0.05) for key in keys}
            if one.chance(0.3):
                pool["overheads"]["per_prompt_token"] = one.span(1e-7, 1e-4)
        pools.append(pool)
    return Pools(pools)


def _engine(dice: Dice, swarm: Swarm, traffic: TrafficDraw) -> Values:
    """Draws an engine whose limits barely fit one large request, or fit several."""
    engine: Values = {}
    size, tokens = 16, traffic.tokens()
    if swarm.has("odd-blocks"):
        size = engine["block_size"] = dice.pick(1, 2, 3, 7, 16, 32, 64)
    room = dice.span(0.7, 4.0) if swarm.has("small-cache") else dice.span(1.5, 200.0)
    engine["kv_blocks"] = max(2, math.ceil(room * tokens / size))
    if swarm.has("small-batch"):
        engine["max_num_seqs"] = dice.few(1, 8)
        engine["max_num_batched_tokens"] = engine["max_num_seqs"] + dice.few(0, tokens)
    if swarm.has("no-caching") and dice.chance(0.5):
        engine["prefix_caching"] = False
    if swarm.has("short-models") and dice.chance(0.5):
        engine["max_model_len"] = max(2, int(tokens * dice.span(0.5, 3.0)))
        engine["over_length"] = dice.pick("cut", "refuse")
    if swarm.has("whole-prompts") and dice.chance(0.6):
        engine["chunked_prefill"] = False
        if "max_model_len" in engine:
            most = max(2, engine.get("max_num_batched_tokens", 8192))
            engine["max_model_len"] = min(engine["max_model_len"], most)
            engine["max_num_batched_tokens"] = most
    if traffic.asks("adapters"):
        engine["lora"] = {"slots": dice.few(1, 4), "load": dice.span(0.001, 0.5)}
        if dice.chance(0.5):
            engine["lora"]["step_cost"] = dice.span(0.01, 1.0)
    if swarm.has("offload") and engine.get("prefix_caching", True):
        engine["offload"] = [
            _tier(dice, name, engine.get("block_size", 16))
            for name in dice.some(("cpu", "disk", "remote"))
        ]
        engine["kv_bytes_per_token"] = KV_BYTES
    if swarm.has("odd-engine"):
        _habits(engine, dice)
    return engine


def _draw_degrees(dice: Dice, swarm: Swarm, pool: Values) -> None:
    """Draws data and pipeline parallelism for servers whose accelerators are not counted."""
    engine = pool["engine"]
    counted = "accelerator" in pool or swarm.has("gangs") or swarm.has("fleet")
    if counted or not engine.get("chunked_prefill", True) or not dice.chance(0.2):
        return
    dense = swarm.has("several-models") or swarm.has("physics")  # models that share no experts
    if "lora" not in engine and not dense:
        pool["data_parallel"] = dice.pick(1, 2, 3)
    if "speculative" not in engine:
        pool["pipeline_parallel"] = dice.pick(1, 2, 4)
    if pool.get("data_parallel", 1) > 1 and dice.chance(0.5):
        engine["prompt_wait_steps"] = dice.few(1, 60)


def _draw_drafts(dice: Dice, swarm: Swarm, engine: Values) -> None:
    """Draws speculative decoding for engines without options that conflict with it."""
    if swarm.has("odd-engine") or not dice.chance(0.2):
        return
    rates = sorted((dice.span(0.01, 1.0) for _ in range(dice.few(1, 6))), reverse=True)
    engine["speculative"] = {
        "method": dice.pick("ngram", "eagle3"),
        "num_speculative_tokens": len(rates),
        "acceptance": rates,
    }


def _tier(dice: Dice, name: str, block_size: int) -> Values:
    """Draws an offload tier that holds at least one block."""
    tier: Values = {"tier": name, "size": block_size * KV_BYTES * dice.span(1.0, 300.0)}
    if dice.chance(0.7):
        tier["bandwidth"] = dice.span(1e4, 1e9)
    if dice.chance(0.5):
        tier["latency"] = dice.span(1e-6, 0.5)
    return tier


def _habits(engine: Values, dice: Dice) -> None:
    """Draws rarely used engine options."""
    engine.update(draw_section(dice, EngineSettings, SWITCHES))
    if dice.chance(0.3):
        engine["long_prefill_threshold"] = dice.few(1, 64)
    if dice.chance(0.3):
        engine["host_overhead"] = dice.span(1e-5, 0.02)
    if engine.get("async_scheduling", True):
        return
    engine.update(draw_section(dice, EngineSettings, ("preemption",)))
    waits = "offload" in engine  # requests that wait for a tier are not answered at once
    for key in ("store_last_token", *(() if waits else ("compute_whole_hits", "last_step_blocks"))):
        if dice.chance(0.4):
            engine[key] = dice.chance(0.5)


def _step_time(dice: Dice, pool: Values, swarm: Swarm, traffic: TrafficDraw) -> Values:
    """Step times with which the pool alone is between mostly idle and overloaded twofold."""
    if "accelerator" in pool and swarm.has("physics") and dice.chance(0.6):
        return {"model": dice.pick("physics", "roofline")}
    engine = pool["engine"]
    fit = engine["kv_blocks"] * engine.get("block_size", 16) / traffic.tokens()
    slots = pool["replicas"] * min(engine.get("max_num_seqs", 256), max(1.0, fit))
    fixed_s = dice.span(0.1, 2.0) * slots / traffic.answer_tokens_per_s()
    step = {"model": "linear", "fixed": min(max(fixed_s, SHORTEST_STEP_S), LONGEST_STEP_S)}
    for key, low, high in (
        ("per_prefill_token", 1e-6, 1e-3),
        ("per_decode", 1e-5, 5e-3),
        ("per_context_token", 1e-7, 1e-5),
    ):
        if dice.chance(0.6):
            step[key] = dice.span(low, high)
    return step


def draw_split(swarm: Swarm, pools: Pools) -> Values | None:
    """Draws `disaggregation:` if pools have roles."""
    if not pools.is_split:
        return None
    dice = swarm.dice("disaggregation")
    decider = dice.pick("always", "always", "never", "prefix-threshold")
    split: Values = {"decider": decider}
    if decider == "prefix-threshold" and dice.chance(0.7):
        split["threshold"] = dice.few(0, 200)
    split["transfer"] = {
        "bandwidth": dice.span(1e4, 1e9),
        "latency": dice.span(1e-6, 0.3),
        "contention": dice.chance(0.6),
        "bytes_per_token": KV_BYTES,
    }
    if dice.chance(0.3):
        split["transfer"]["fabric"] = dice.span(1e4, 1e9)
    if dice.chance(0.3):
        split["transfer"]["rack"] = {"servers": dice.few(1, 3), "uplink": dice.span(1e4, 1e9)}
    return split


def draw_encoders(swarm: Swarm, traffic: TrafficDraw) -> Values | None:
    if not (traffic.asks("media") and swarm.has("encoders")):
        return None
    dice = swarm.dice("encode")
    return {
        "servers": dice.few(1, 3),
        "fixed": dice.span(1e-4, 0.5),
        "per_token": dice.span(1e-6, 0.01),
    }


def draw_router(swarm: Swarm, *, watched: bool) -> Values:
    """Draws the router; `watched` says whether the gateway also reads load signals."""
    dice = swarm.dice("router")
    policy = dice.pick(*POLICIES, "weighted", "weighted")
    router: Values = {"policy": policy}
    scorers = ["prefix-cache", "queue-depth", "kv-utilization"]
    if policy == "weighted" and dice.chance(0.8):
        scorers = dice.some(SCORERS)
        router["scorers"] = {name: dice.span(0.1, 5.0) for name in scorers}
    weighted = policy == "weighted"
    looks = watched or (weighted and any(map(reads_signals, scorers)))
    if looks and dice.chance(0.7):
        router["staleness"] = dice.pick(0, 0.01, 0.3, 2.0)
    if weighted and any(name in BY_CACHE for name in scorers) and dice.chance(0.5):
        router["cache_delay"] = dice.pick(0, 0.02, 1.0)
    if swarm.has("counterfactual"):
        router["counterfactual"] = dice.few(1, 3)
    if policy == "consistent-hash":
        router.update(draw_section(dice, RouterSettings, ("virtual_nodes", "load_factor")))
    return router


def draw_coming_and_going(swarm: Swarm, lasts_s: float) -> Values:
    """Draws `startup:` and `drain:`, for scenarios in which servers start and stop."""
    dice = swarm.dice("lifecycle")
    drawn: Values = {}
    if swarm.has("startup"):
        mean_s = dice.pick(0.0, min(lasts_s * dice.span(0.01, 0.5), 20.0))
        drawn["startup"] = {"load": {"mean": mean_s, "stddev": dice.pick(0.0, 0.5 * mean_s, 3.0)}}
    if dice.chance(0.8):
        drawn["drain"] = {"policy": dice.pick("wait", "redirect", "immediate", "immediate")}
    return drawn


def draw_models(swarm: Swarm, traffic: TrafficDraw, pools: Pools) -> Pools:
    """Gives pools and sources models of their own, or leaves them as they are."""
    if not swarm.has("several-models"):
        return pools
    dice = swarm.dice("several-models")
    made = pools.pools
    if pools.is_split or len(made) == 1:
        one = copy.deepcopy(made[0])
        one.pop("role", None)
        other = {**one, "name": APART}
        for pool in made:
            pool["model"] = MODELS[0]
        made = [*made, {**other, "model": MODELS[1]}]
    else:
        for number, pool in enumerate(made):
            pool["model"] = MODELS[min(number, 1)]
    for source in traffic.sources:
        source["model"] = dice.pick(*MODELS)
    return Pools(made)


def draw_clusters(swarm: Swarm, pools: Pools) -> Values | None:
    """Draws `serving.clusters`; pools that split requests are in the same cluster."""
    if not swarm.has("clusters"):
        return None
    dice = swarm.dice("clusters")
    together = dice.pick("", *ELSEWHERE)
    for pool in pools.pools:
        alone = not pools.is_split or pool["name"] == APART
        where = dice.pick("", *ELSEWHERE) if alone else together
        if where:
            pool["cluster"] = where
    used = sorted({pool["cluster"] for pool in pools.pools if "cluster" in pool})
    far = {name: {"latency": dice.span(1e-4, 0.5)} for name in used if dice.chance(0.7)}
    return far or None

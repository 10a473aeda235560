"""The saturation analyzer: demand for KV tokens against the KV tokens that replicas can hold.

A replica's capacity is the smaller of two: a share of its KV cache (`k1`), and the tokens that it
holds when compute-bound (`k2`). Demand is what is in use and what is queued.
"""

from dataclasses import dataclass
from typing import Any, Final

from windtunnel.scaling.analyzers import Analyzer, Finding, Group, unknown
from windtunnel.scaling.snapshot import Flow, ReplicaView, Variant

SHORT_OUTPUT: Final = 100.0
LONG_OUTPUT: Final = 500.0
REMEMBERED: Final = 10  # observations of a compute-bound capacity
PROMPT: Final = 0  # indices into the lengths of a group
OUTPUT: Final = 1


@dataclass(frozen=True, kw_only=True)
class Counting:
    """What counts as demand and as capacity."""

    compute_bound: bool = True
    """Whether `k2` counts."""
    measured_prompt: bool = True
    """Whether measured lengths replace the given average."""
    answers: bool = True
    """Whether queued requests also count with their output tokens."""
    gateway: bool = True
    """Whether requests queued at the gateway count."""
    check_last: bool = False
    """Whether a group shrinks only if the rest suffices without its largest, and never to zero."""


class Saturation(Analyzer):
    """Tokens in use and queued over the tokens that replicas can hold.

    `up` and `down` are loads: a group grows above `up` of its present and starting capacity, and
    may shrink below `down` of its ready capacity.
    """

    def __init__(
        self,
        *,
        up: float,
        down: float,
        kv_threshold: float,
        average_prompt: float,
        full_queue: int,
        counting: Counting | None = None,
    ) -> None:
        super().__init__("saturation")
        self._up: Final = up
        self._down: Final = down
        self._kv_threshold: Final = kv_threshold
        self._average_prompt: Final = average_prompt
        self._full_queue: Final = full_queue
        self._counting: Final = Counting() if counting is None else counting
        self._kept: Final = self.remember("groups")
        self._seen: Final[dict[str, _Memory]] = {}  # by key of a group

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        memory = self._seen.get(group.key)
        if memory is None:
            kept = self._kept.setdefault(group.key, {})
            memory = self._seen[group.key] = _Memory(self._average_prompt, kept)
        counting = self._counting
        if counting.measured_prompt:
            memory.learn_lengths(group.model.flow)
        per_waiting = memory.lengths[PROMPT]
        if counting.answers and group.role != "prefill":
            per_waiting += memory.lengths[OUTPUT]
        demand = self._queued_tokens(group, memory) if counting.gateway else 0.0
        supply = coming = largest = 0.0
        waiting = missing = 0
        known = False
        per_replica: list[float] = []
        capacities: list[float] = []  # of one variant at a time
        for variant in group.variants:
            expected = self._compute_capacity(variant, memory) if counting.compute_bound else 0.0
            capacities.clear()
            for replica in variant.replicas:
                waiting += replica.waiting
                demand += replica.kv_tokens_used
                capacity = self._capacity(replica, variant, expected, memory)
                capacities.append(capacity)
                if capacity > largest:
                    largest = capacity
            missing += variant.counts.missing
            each = self._each(capacities, variant, expected, memory)
            per_replica.append(each)
            if each > 0:
                known = True
            supply += _supply(capacities, each, variant)
            coming_ones = variant.target - variant.ready
            if coming_ones > 0:
                coming += coming_ones * each
        demand += waiting * per_waiting
        if missing and missing == group.ready:
            return unknown(group, "No replica answered: no change.")
        if not known:
            return unknown(group, "The token capacity of a replica is unknown.")
        return self._finding(group, demand, supply, coming, per_replica, largest, missing, waiting)

    def _finding(
        self,
        group: Group,
        demand: float,
        supply: float,
        coming: float,
        per_replica: list[float],
        largest: float,
        missing: int,
        waiting: int,
    ) -> Finding:
        required = max(0.0, demand / self._up - (supply + coming))
        spare = 0.0
        if required <= 0 and not missing:  # never shrink on missing data
            enough = demand / self._down
            spare = max(0.0, supply - enough)
            if self._counting.check_last and (group.ready <= 1 or supply - largest <= enough):
                spare = 0.0
        load = demand / supply if supply > 0 else 0.0
        text = f"Demand is {demand:.0f} tokens, {load:.0%} of a capacity of {supply:.0f}"
        if required > 0:
            sentence = f"{text}: scale up."
        elif spare > 0:
            sentence = f"{text}: scale down."
        else:
            sentence = f"{text}: no change."
        evidence = {
            "demand_tokens": demand,
            "supply_tokens": supply,
            "coming_tokens": coming,
            "required_tokens": required,
            "spare_tokens": spare,
            "load": load,
            "waiting": float(waiting),
            "queued": float(group.model.queued),
            "missing": float(missing),
        }
        return Finding(
            demand=demand,
            supply=supply,
            required=required,
            spare=spare,
            per_replica=per_replica,
            evidence=evidence,
            sentence=sentence,
        )

    def _queued_tokens(self, group: Group, memory: "_Memory") -> float:
        """Tokens queued at the gateway, minus expected prefix-cache hits."""
        model = group.model
        if model.queued == 0:
            return 0.0
        tokens = model.queued_prompt_tokens
        if tokens <= 0:
            tokens = model.queued * memory.lengths[PROMPT]
        tokens *= 1.0 - model.flow.lengths.prefix_hit
        if group.role == "prefill":
            return tokens
        return tokens + model.queued * memory.lengths[OUTPUT]

    def _capacity(
        self, replica: ReplicaView, variant: Variant, expected: float, memory: "_Memory"
    ) -> float:
        kv_tokens = replica.kv_tokens if replica.kv_tokens > 0 else variant.spec.kv_tokens
        by_compute = expected
        if (
            self._counting.compute_bound
            and replica.waiting >= self._full_queue
            and replica.kv_tokens_used > 0
        ):
            by_compute = replica.kv_tokens_used
            memory.observe(variant, by_compute)
        return _smaller(kv_tokens * self._kv_threshold, by_compute)

    def _compute_capacity(self, variant: Variant, memory: "_Memory") -> float:
        """Tokens that a compute-bound replica holds: as observed, or derived from its limits."""
        seen = memory.observed_mean(variant)
        if seen > 0:
            return seen
        return derived_capacity(variant, memory.lengths[PROMPT], memory.lengths[OUTPUT])

    def _each(
        self, capacities: list[float], variant: Variant, expected: float, memory: "_Memory"
    ) -> float:
        """Tokens that a replica of a variant holds: the median of those there, or an estimate."""
        if capacities:
            each = _median(capacities)
            memory.capacity[variant.name] = each
            return each
        each = memory.capacity.get(variant.name, 0.0)
        return each if each > 0 else _smaller(variant.spec.kv_tokens * self._kv_threshold, expected)

    def restore(self, state: dict[str, object]) -> None:
        super().restore(state)
        self._seen.clear()


class _Memory:
    """Observations about a group: lengths, compute-bound capacities, capacities of variants.

    They are kept in a dict of plain data in the analyzer's memory.
    """

    def __init__(self, prompt: float, kept: dict[str, Any]) -> None:
        self.lengths: Final[list[float]] = kept.setdefault("lengths", [prompt, 0.0])
        """Mean tokens of prompts and of outputs, as last observed."""
        self.capacity: Final[dict[str, float]] = kept.setdefault("capacity", {})  # by variant
        # By length, then by hardware and limits: the latest observations.
        self._observed: Final[dict[str, dict[str, list[float]]]] = kept.setdefault("observed", {})
        self._hardware: Final[dict[str, str]] = {}  # by variant

    def learn_lengths(self, flow: Flow) -> None:
        if flow.lengths.prompt_tokens > 0:
            self.lengths[PROMPT] = flow.lengths.prompt_tokens
        if flow.lengths.output_tokens > 0:
            self.lengths[OUTPUT] = flow.lengths.output_tokens

    def observe(self, variant: Variant, tokens: float) -> None:
        of_length = self._observed.setdefault(self._length(), {})
        seen = of_length.setdefault(self._hardware_of(variant), [])
        seen.append(tokens)
        del seen[:-REMEMBERED]

    def observed_mean(self, variant: Variant) -> float:
        """The mean observed capacity; 0: none."""
        if not self._observed:
            return 0.0
        seen = self._observed.get(self._length(), {}).get(self._hardware_of(variant))
        return sum(seen) / len(seen) if seen else 0.0

    def _length(self) -> str:
        output = self.lengths[OUTPUT]
        if output < SHORT_OUTPUT:
            return "short"
        return "medium" if output < LONG_OUTPUT else "long"

    def _hardware_of(self, variant: Variant) -> str:
        """A key shared by variants that can learn from each other."""
        hardware = self._hardware.get(variant.name)
        if hardware is None:
            spec = variant.spec
            kind = spec.accelerator or f"that of {variant.name}"
            limits = f"{spec.max_num_seqs}|{spec.max_num_batched_tokens}"
            hardware = f"{kind}|{spec.accelerators}|{limits}"
            self._hardware[variant.name] = hardware
        return hardware


def derived_capacity(variant: Variant, prompt: float, output: float) -> float:
    """Tokens that a replica holds when its steps are full; 0: its limits are unknown.

    Each output of `output` tokens comes with `prompt` tokens of prompt, so a token budget per step
    lets `budget * output / (prompt + output)` sequences run; each holds its prompt and, on average,
    half its output.
    """
    budget, slots = variant.spec.max_num_batched_tokens, variant.spec.max_num_seqs
    if budget <= 0 or slots <= 0 or output <= 0:
        return 0.0
    running = min(budget * output / (prompt + output), float(slots))
    return running * (prompt + output / 2)


def _supply(capacities: list[float], each: float, variant: Variant) -> float:
    """The capacity of the ready replicas that will stay, without those already asked to stop."""
    supply = variant.counts.missing * each
    for capacity in capacities:
        supply += capacity
    ready = len(capacities) + variant.counts.missing
    return supply * variant.target / ready if 0 < ready > variant.target else supply


def _smaller(by_memory: float, by_compute: float) -> float:
    """The smaller of two bounds, either of which may be unknown (0)."""
    if by_memory <= 0:
        return by_compute
    if by_compute <= 0 or by_memory < by_compute:
        return by_memory
    return by_compute


def _median(values: list[float]) -> float:
    if len(values) == 1:
        return values[0]
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2

"""The settings of one server's scheduler, with vLLM's current defaults."""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.errors import InputError

FCFS: Final = 0
PRIORITY: Final = 1
SHORTEST_PROMPT: Final = 2
SCHEDULING: Final = {"fcfs": FCFS, "priority": PRIORITY, "shortest-prompt": SHORTEST_PROMPT}

PREEMPTION: Final = ("recompute", "restart")
OVER_LENGTH: Final = ("cut", "refuse")

LENGTH_CAPPED: Final = "the answer was cut short at max_model_len"


class LoraLimits:
    """Adapters that are on the accelerator at once, and what loading and using them costs."""

    def __init__(self, slots: int, load_s: float = 0.0, step_cost: float = 0.0) -> None:
        if slots < 1:
            raise InputError(f"slots is {slots}", allowed="1 or more")
        self.slots: Final = slots
        self.load_s: Final = load_s  # the step that needs an adapter first takes so much longer
        self.step_cost: Final = step_cost  # share by which each adapter in a step makes it longer

    def __repr__(self) -> str:
        return f"LoraLimits({self.slots}, {self.load_s}, {self.step_cost})"


class TierLimits:
    """One place below the accelerator for KV blocks, and the way from it."""

    def __init__(self, name: str, blocks: int, block_s: float, latency_s: float) -> None:
        if blocks < 1:
            what = f"tier {name} has room for {blocks} blocks"
            raise InputError(what, allowed="1 or more", hint="make it larger")
        self.name: Final = name
        self.blocks: Final[i64] = blocks
        self.block_s: Final = block_s  # loads come one after another, and take this for a block
        self.latency_s: Final = latency_s  # and arrive so much later

    def __repr__(self) -> str:
        return f"TierLimits({self.name!r}, {self.blocks}, {self.block_s}, {self.latency_s})"


SETTINGS: Final = (
    "kv_blocks",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "max_model_len",
    "long_prefill_threshold",
    "scheduling",
    "prefix_caching",
    "chunked_prefill",
    "async_scheduling",
    "host_overhead_s",
    "reserve_full_prompt",
    "unhashed_blocks_first",
    "lora",
    "tiers",
    "null_block",
    "preemption",
    "over_length",
    "last_step_blocks",
    "store_last_token",
    "compute_whole_hits",
)


class EngineLimits:
    """What bounds a step and what orders the queue; see docs/explanation/engine.md for each."""

    def __init__(
        self,
        kv_blocks: int,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        block_size: int = 16,
        max_model_len: int = 1 << 40,
        long_prefill_threshold: int = 0,
        scheduling: str = "fcfs",
        prefix_caching: bool = True,  # noqa: FBT001, FBT002 - always passed by name
        chunked_prefill: bool = True,  # noqa: FBT001, FBT002
        async_scheduling: bool = True,  # noqa: FBT001, FBT002
        host_overhead_s: float = 0.0,
        reserve_full_prompt: bool = True,  # noqa: FBT001, FBT002
        unhashed_blocks_first: bool = True,  # noqa: FBT001, FBT002
        lora: LoraLimits | None = None,
        tiers: list[TierLimits] | None = None,  # from fast to slow
        null_block: bool = True,  # noqa: FBT001, FBT002
        preemption: str = "recompute",
        over_length: str = "cut",
        last_step_blocks: bool = True,  # noqa: FBT001, FBT002
        store_last_token: bool = False,  # noqa: FBT001, FBT002
        compute_whole_hits: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        if max_num_batched_tokens < max_num_seqs:
            raise InputError(
                f"max_num_batched_tokens is {max_num_batched_tokens}, "
                f"but max_num_seqs is {max_num_seqs}",
                allowed="a token budget that lets every sequence decode one token per step",
                hint="raise max_num_batched_tokens or lower max_num_seqs",
            )
        if kv_blocks < 2:
            raise InputError(
                f"kv_blocks is {kv_blocks}", allowed="2 or more, of which one is never used"
            )
        if tiers and not prefix_caching:
            what = "there are tiers below the accelerator, but prefix_caching is off"
            raise InputError(what, hint="without it nothing is kept that could go there")
        if tiers and not (last_step_blocks and compute_whole_hits):
            what = "there are tiers below the accelerator, where requests wait for what they hit"
            allowed = "last_step_blocks: true and compute_whole_hits: true"
            raise InputError(what, allowed=allowed)
        self.kv_blocks: Final[i64] = kv_blocks
        self.usable_blocks: Final[i64] = kv_blocks - 1 if null_block else kv_blocks
        self.max_num_seqs: Final[i64] = max_num_seqs
        self.max_num_batched_tokens: Final[i64] = max_num_batched_tokens
        self.block_size: Final[i64] = block_size
        self.max_model_len: Final[i64] = max_model_len
        self.long_prefill_threshold: Final[i64] = long_prefill_threshold
        self.scheduling: Final[i64] = SCHEDULING[scheduling]
        self.prefix_caching: Final = prefix_caching
        self.chunked_prefill: Final = chunked_prefill
        self.async_scheduling: Final = async_scheduling
        self.host_overhead_s: Final = host_overhead_s
        self.reserve_full_prompt: Final = reserve_full_prompt
        self.unhashed_blocks_first: Final = unhashed_blocks_first
        self.lora: Final = lora
        self.tiers: Final = tiers or None
        self.null_block: Final = null_block
        self.preemption: Final = preemption
        self.restarts: Final = preemption == "restart"
        self.over_length: Final = over_length
        self.last_step_blocks: Final = last_step_blocks
        self.store_last_token: Final = store_last_token
        self.compute_whole_hits: Final = compute_whole_hits
        if async_scheduling:
            self._refuse_sync_habits()

    def _refuse_sync_habits(self) -> None:
        """Some habits are about what is between two steps; planned ahead, there is nothing."""
        if self.restarts:
            setting = "preemption is restart"
        elif not self.last_step_blocks:
            setting = "last_step_blocks is false"
        elif not self.compute_whole_hits:
            setting = "compute_whole_hits is false"
        elif self.store_last_token:
            setting = "store_last_token is true"
        else:
            return
        raise InputError(
            f"{setting}, but async_scheduling is true",
            allowed="only where each step is planned when the one before has ended",
            hint="set async_scheduling: false",
        )

    def __repr__(self) -> str:
        return f"EngineLimits({', '.join(f'{name}={getattr(self, name)}' for name in SETTINGS)})"

    def refusal(self, prompt_tokens: i64, output_tokens: i64) -> str:
        """Why a request of this size can never run here; empty when it can.

        vLLM itself trusts that one request of full length fits; a simulator is asked about small
        machines too, where such a request would be preempted by itself for ever.
        """
        if prompt_tokens >= self.max_model_len:
            return f"prompt of {prompt_tokens} tokens, max_model_len is {self.max_model_len}"
        if self.over_length == "refuse" and prompt_tokens + output_tokens > self.max_model_len:
            return (
                f"prompt of {prompt_tokens} and answer of {output_tokens} tokens, "
                f"max_model_len is {self.max_model_len}"
            )
        tokens = prompt_tokens + self.answer_tokens(prompt_tokens, output_tokens) - 1
        blocks = -(-tokens // self.block_size)
        if blocks > self.usable_blocks:
            return f"needs {blocks} KV blocks, the server has {self.usable_blocks}"
        if not self.chunked_prefill and tokens > self.max_num_batched_tokens:
            return (
                f"needs {tokens} tokens in one step without chunked prefill, "
                f"max_num_batched_tokens is {self.max_num_batched_tokens}"
            )
        return ""

    def answer_tokens(self, prompt_tokens: i64, output_tokens: i64) -> i64:
        """The tokens that are really generated: max_model_len cuts an answer short."""
        return min(output_tokens, self.max_model_len - prompt_tokens)

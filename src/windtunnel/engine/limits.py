"""The limits of one server's steps: its options, and what memory and model allow."""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.errors import InputError
from windtunnel.engine.settings import EngineSettings, LoraSettings
from windtunnel.engine.speculation import DraftLimits
from windtunnel.settings.limits import MOST_TOKENS

FCFS: Final = 0
PRIORITY: Final = 1
SHORTEST_PROMPT: Final = 2
SCHEDULING: Final = {"fcfs": FCFS, "priority": PRIORITY, "shortest-prompt": SHORTEST_PROMPT}

LENGTH_CAPPED: Final = "the answer was cut short at max_model_len"


class TierLimits:
    """The limits of a KV tier below the accelerator: capacity, load time per block, latency."""

    def __init__(self, name: str, blocks: int, block_s: float, latency_s: float) -> None:
        if blocks < 1:
            what = f"tier {name} has room for {blocks} blocks"
            raise InputError(what, allowed="1 or more", hint="make it larger")
        self.name: Final = name
        self.blocks: Final[i64] = blocks
        self.block_s: Final = block_s  # loads are sequential; time per block
        self.latency_s: Final = latency_s  # added to the arrival of each load

    def __repr__(self) -> str:
        return f"TierLimits({self.name!r}, {self.blocks}, {self.block_s}, {self.latency_s})"


class WindowGroups:
    """Layers that keep a sliding window or a state per request, beside full-attention layers.

    A request holds blocks for them as long as it runs: as many as its tokens need, up to those of
    its window; a state is one block. Layers share one pool of blocks in groups of equal size; a
    block of this engine has one block of that pool for each of the `full` groups.
    """

    def __init__(self, full: int, windowed: int, most_blocks: int) -> None:
        self.full: Final[i64] = full
        self.windowed: Final[i64] = windowed
        self.most_blocks: Final[i64] = most_blocks  # of one group, for one request

    def __repr__(self) -> str:
        return f"WindowGroups({self.full}, {self.windowed}, {self.most_blocks})"


def _drafts(options: EngineSettings, seed: int) -> DraftLimits | None:
    given = options.speculative
    if given is None:
        return None
    return DraftLimits(
        given.num_speculative_tokens,
        given.rates(),
        keeps_kv=given.method != "ngram",
        settles_late=options.async_scheduling,
        seed=seed,
    )


class EngineLimits:
    """The limits of a step and the order of the queue; docs/explanation/engine.md explains each."""

    def __init__(
        self,
        options: EngineSettings,
        kv_blocks: int,
        max_model_len: int = 1 << 40,
        tiers: list[TierLimits] | None = None,  # from fast to slow
        windows: WindowGroups | None = None,
        seed: int = 0,  # for the draws of which drafts are right
        ranks: int = 1,  # data-parallel ranks, each with its own blocks, batch and budget
        stages: int = 1,  # pipeline stages, each with a batch in progress
    ) -> None:
        if options.max_num_batched_tokens < options.max_num_seqs:
            raise InputError(
                f"max_num_batched_tokens is {options.max_num_batched_tokens}, "
                f"but max_num_seqs is {options.max_num_seqs}",
                allowed="a token budget that lets every sequence decode one token per step",
                hint="raise max_num_batched_tokens or lower max_num_seqs",
            )
        if kv_blocks < 2:
            raise InputError(
                f"kv_blocks is {kv_blocks}", allowed="2 or more, of which one is never used"
            )
        if tiers and not options.prefix_caching:
            what = "there are tiers below the accelerator, but prefix_caching is off"
            raise InputError(what, hint="without it there are no cached blocks to offload")
        if tiers and not (options.last_step_blocks and options.compute_whole_hits):
            what = "there are tiers below the accelerator, and requests wait for what they load"
            allowed = "last_step_blocks: true and compute_whole_hits: true"
            raise InputError(what, allowed=allowed)
        self.options: Final = options
        self.kv_blocks: Final[i64] = kv_blocks * ranks
        # A request is on one rank, with all its blocks.
        self.request_blocks: Final[i64] = kv_blocks - 1 if options.null_block else kv_blocks
        self.usable_blocks: Final[i64] = self.request_blocks * ranks
        self.max_model_len: Final[i64] = max_model_len
        self.tiers: Final = tiers or None
        self.windows: Final = windows
        self.drafts: Final = _drafts(options, seed)
        self.ranks: Final[i64] = ranks
        self.prompt_wait_steps: Final[i64] = options.prompt_wait_steps
        # Each goes to the rank where a request has ended last, at random: so many come on average
        # until every rank has one.
        self.prompts_for_ranks: Final[i64] = round(sum(ranks / one for one in range(1, ranks + 1)))
        self.max_num_seqs: Final[i64] = options.max_num_seqs * ranks
        self.max_num_batched_tokens: Final[i64] = options.max_num_batched_tokens * ranks * stages
        self.block_size: Final[i64] = options.block_size
        threshold = options.long_prefill_threshold
        if ranks > 1:
            threshold = min(threshold or MOST_TOKENS, options.max_num_batched_tokens)
        self.long_prefill_threshold: Final[i64] = threshold * stages
        self.scheduling: Final[i64] = SCHEDULING[options.scheduling]
        self.prefix_caching: Final[bool] = options.prefix_caching
        self.chunked_prefill: Final[bool] = options.chunked_prefill
        self.mixed_batches: Final[bool] = options.mixed_batches
        self.async_scheduling: Final[bool] = options.async_scheduling
        self.host_overhead_s: Final[float] = options.host_overhead_s
        self.reserve_full_prompt: Final[bool] = options.reserve_full_prompt
        self.unhashed_blocks_first: Final[bool] = options.unhashed_blocks_first
        self.lora: Final[LoraSettings | None] = options.lora
        self.restarts: Final[bool] = options.preemption == "restart"
        self.over_length: Final[str] = options.over_length
        self.last_step_blocks: Final[bool] = options.last_step_blocks
        self.store_last_token: Final[bool] = options.store_last_token
        self.compute_whole_hits: Final[bool] = options.compute_whole_hits
        if options.async_scheduling:
            self._refuse_sync_habits()

    def _refuse_sync_habits(self) -> None:
        """Rejects options that act between two steps: when planning ahead, there is no such
        moment."""
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
            allowed="only where each step is planned after the one before has ended",
            hint="set async_scheduling: false",
        )

    def __repr__(self) -> str:
        own = f"kv_blocks={self.kv_blocks}, max_model_len={self.max_model_len}, tiers={self.tiers}"
        own += f", windows={self.windows}"
        return f"EngineLimits({self.options!r}, {own})"

    def refusal(self, prompt_tokens: i64, output_tokens: i64) -> str:
        """Why a request of this size can never run here; empty when it can.

        vLLM itself assumes that one request of full length fits; a simulator is asked about small
        machines too, where such a request would preempt itself endlessly.
        """
        if prompt_tokens >= self.max_model_len:
            return f"prompt of {prompt_tokens} tokens, max_model_len is {self.max_model_len}"
        if self.over_length == "refuse" and prompt_tokens + output_tokens > self.max_model_len:
            return (
                f"prompt of {prompt_tokens} and answer of {output_tokens} tokens, "
                f"max_model_len is {self.max_model_len}"
            )
        tokens = prompt_tokens + self.answer_tokens(prompt_tokens, output_tokens) - 1
        blocks = self.blocks_of(tokens)
        if blocks > self.request_blocks:
            return f"needs {blocks} KV blocks, the server has {self.request_blocks}"
        if not self.chunked_prefill and tokens > self.max_num_batched_tokens:
            return (
                f"needs {tokens} tokens in one step without chunked prefill, "
                f"max_num_batched_tokens is {self.max_num_batched_tokens}"
            )
        return ""

    def blocks_of(self, tokens: i64) -> i64:
        """The most blocks that a request holds if it grows to this many tokens."""
        ahead = tokens
        if self.drafts is not None:
            ahead = max(tokens, min(tokens + self.drafts.most_ahead, self.max_model_len))
        blocks = (ahead + self.block_size - 1) // self.block_size
        return blocks if self.windows is None else blocks + self.window_blocks(tokens)

    def window_blocks(self, tokens: i64) -> i64:
        """Blocks that a request of this many tokens holds for sliding-window layers."""
        windows = self.windows
        if windows is None:
            return 0
        kept = windows.windowed * min(
            (tokens + self.block_size - 1) // self.block_size, windows.most_blocks
        )
        return (kept + windows.full - 1) // windows.full

    def answer_tokens(self, prompt_tokens: i64, output_tokens: i64) -> i64:
        """The tokens that are actually generated: max_model_len cuts an answer short."""
        most = self.max_model_len - prompt_tokens
        return output_tokens if output_tokens < most else most

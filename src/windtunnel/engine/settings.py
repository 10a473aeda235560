"""The options of one inference server; defaults are those of vLLM, or of BLIS."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_size
from windtunnel.models.catalog.accelerators import (
    Accelerator,
    is_accelerator,
    resolve_accelerator,
)
from windtunnel.models.releases import NEWEST, engine_defaults, release_of
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import (
    Bandwidth,
    Duration,
    Flag,
    ModelName,
    Number,
    Share,
    Size,
    Text,
    Whole,
)
from windtunnel.settings.limits import (
    LARGEST_BLOCK,
    LONGEST_STEP_COST,
    MOST_ADAPTERS,
    MOST_BLOCKS,
    MOST_SEQUENCES,
    MOST_TOKENS,
)
from windtunnel.settings.section import Added, Context, Section

Cost = Annotated[float, Duration("0s", LONGEST_STEP_COST)]
Switch = Annotated[bool, Flag()]

TIERS = {"cpu": (25e9, 10e-6), "disk": (7e9, 100e-6), "remote": (1e9, 30e-3)}
"""Tiers from fast to slow: bytes per second and latency of a bus, a good disk and a network."""


class LoraSettings(Section):
    """LoRA adapters on a server."""

    slots: Annotated[int, Whole(1, MOST_ADAPTERS)] = Field(
        default=1,
        description="vLLM's max_loras: adapters on the accelerator, and so in a batch.",
    )
    load_s: Annotated[float, Duration("0s", LONGEST_STEP_COST)] = Field(
        default=0.005,
        description="Time to load an adapter from host memory, added to the step that needs it.",
    )
    step_cost: Annotated[float, Number(0, 10)] = Field(
        default=0.03,
        description="Relative step time per adapter in a batch; the default is assumed, for rank "
        "16.",
    )
    memory_bytes: Annotated[float, Size("0B", "1TB")] = Field(
        default=0.0,
        description="Memory of one slot on each accelerator.",
    )


class OffloadTier(Section):
    """A tier for KV that does not fit on the accelerator."""

    tier: Literal["cpu", "disk", "remote"] = Field(description="Each tier evicts to the next.")
    size_bytes: Annotated[float, Size("0B", "100PB", above=True)] = Field(
        description="Capacity for one server."
    )
    bandwidth_bytes_per_s: Annotated[float, Bandwidth("1kB/s", "1PB/s")] | None = Field(
        default=None,
        description="To a server's accelerators, one load at a time. Default: `cpu` 25GB/s, "
        "`disk` 7GB/s, `remote` 1GB/s.",
    )
    latency_s: Annotated[float, Duration("0s", LONGEST_STEP_COST)] | None = Field(
        default=None,
        description="Latency after the last byte. Default: `cpu` 10us, `disk` 100us, `remote` "
        "30ms.",
    )

    @property
    def bytes_per_s(self) -> float:
        given = self.bandwidth_bytes_per_s
        return TIERS[self.tier][0] if given is None else given

    @property
    def delay_s(self) -> float:
        return TIERS[self.tier][1] if self.latency_s is None else self.latency_s


MOST_DRAFTED = 16
MOST_HELD_STEPS = 10_000

PUBLISHED_ACCEPTANCE = {
    "eagle3": (0.83, 0.60, 0.45, 0.36, 0.22, 0.16, 0.09, 0.06),
    "mtp": (0.84, 0.66, 0.49, 0.34, 0.28, 0.17, 0.13),
}
"""Acceptance by position, from the mean acceptance lengths that InferenceX publishes for vLLM on
SPEED-Bench coding: Kimi-K2.5 (thinking) with EAGLE-3, and GLM-5.2-FP8 with MTP. Longer drafts were
also measured with the second, but noise puts their last rate above the one before it."""


class SpeculativeSettings(Section):
    """Speculative decoding."""

    method: Literal["eagle3", "mtp", "ngram", "draft_model"] = Field(
        description="vLLM's name of the drafter."
    )
    num_speculative_tokens: Annotated[int, Whole(1, MOST_DRAFTED)] = Field(
        description="Tokens drafted per request and step."
    )
    acceptance: list[Annotated[float, Share()]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_DRAFTED,
        description="Per-position acceptance rates as vLLM logs them. Default: published rates "
        "of `eagle3` and `mtp`.",
    )
    model: ModelName | None = Field(
        default=None,
        description="The model that drafts, for `draft_model`, if the step time needs it.",
    )
    draft_time_s: Cost | None = Field(
        default=None,
        description="Drafting time per step. Default: from the drafter's shape (`physics`, "
        "`roofline`), 0 with `linear`.",
    )

    def rates(self) -> list[float]:
        """For each position, the share of drafts that are accepted up to there."""
        known = self.acceptance or PUBLISHED_ACCEPTANCE[self.method]
        return list(known[: self.num_speculative_tokens])

    def check(self, where: Context) -> Iterator[Fault]:
        drafted, given = self.num_speculative_tokens, self.acceptance
        if given is None:
            known = PUBLISHED_ACCEPTANCE.get(self.method, ())
            if not known:
                what = f"missing, and no rates are published for {self.method}"
                hint = "vLLM logs them as 'Per-position acceptance rate'"
                yield where.fault("acceptance", what, f"{drafted} rates", hint, beside=("method",))
            elif drafted > len(known):
                what = (
                    f"{drafted}, but {self.method} has published rates for {len(known)} positions"
                )
                allowed = f"1 to {len(known)}, or your own rates in acceptance"
                yield where.fault(
                    "num_speculative_tokens", what, allowed, beside=("method", "acceptance")
                )
        elif len(given) != drafted:
            what = f"{len(given)} rates for {drafted} tokens"
            allowed = "one for each of num_speculative_tokens"
            yield where.fault("acceptance", what, allowed, beside=("num_speculative_tokens",))
        elif any(later > before for before, later in pairwise(given)):
            what = "a rate is above the one before it"
            hint = "a token is accepted only if all before it are"
            yield where.fault("acceptance", what, "rates that never rise", hint)
        yield from self._drafter_faults(where)

    def _drafter_faults(self, where: Context) -> Iterator[Fault]:
        pool = where.around[-2]
        step = pool.step_time.model
        because = ((*where.path[:-2], "step_time"), (*where.path[:-2], "step_time", "model"))
        if step in ("table", "blis-trained-physics"):
            what = f"drafts, but the step time {step!r} cannot time their verification"
            yield where.fault((), what, "physics, roofline or linear", because_of=because)
        if self.method != "draft_model":
            if self.model is not None:
                what = f"{self.model!r}, but the method {self.method} has no model of its own"
                yield where.fault("model", what, "only with draft_model", beside=("method",))
        elif self.model is None and step != "linear":
            what = f"missing, but draft_model with the step time {step!r} needs one"
            yield where.fault("model", what, "a model", beside=("method",), because_of=because)


class EngineSettings(Section):
    """Limits and behaviour of one inference engine."""

    version: Annotated[str, Text("a release of vLLM, such as '0.19'"), Added()] = Field(
        default=NEWEST,
        description="The vLLM release whose defaults and memory use apply.",
    )
    max_num_seqs: Annotated[int, Whole(1, MOST_SEQUENCES)] = Field(
        default=256,
        description="Most requests in one batch. Default with model and accelerator: vLLM's, "
        "1024 from 70 GiB on (not on an A100), otherwise 256.",
    )
    max_num_batched_tokens: Annotated[int, Whole(1, MOST_TOKENS)] = Field(
        default=8192,
        description="Most tokens in one step. Default with model and accelerator: vLLM's, 16384 "
        "from 160 GiB on, 8192 from 70 GiB on (not on an A100), 2048 below.",
    )
    block_size: Annotated[int, Whole(1, LARGEST_BLOCK)] = Field(
        default=16, description="Tokens in one block of the KV cache."
    )
    memory_utilization: Annotated[float, Share(above=True)] = Field(
        default=0.9,
        description="Usable share of the accelerator's memory. Default with model and "
        "accelerator: vLLM's, 0.92 from release 0.22 on.",
    )
    prefix_caching: Switch = Field(default=True, description="Prefix caching.")
    chunked_prefill: Switch = Field(
        default=True,
        description="Whether a prompt may be split over steps.",
    )
    mixed_batches: Annotated[bool, Flag(), Added()] = Field(
        default=True,
        description="Whether a step may compute prompts and decodes; false, as in SGLang: decodes "
        "wait while there are prompts to compute.",
    )
    prompt_wait_steps: Annotated[int, Whole(0, MOST_HELD_STEPS), Added()] = Field(
        default=0,
        description="Most steps that queued prompts wait until each data-parallel rank has one, "
        "while all ranks have requests to decode; as timeout_iters of TensorRT-LLM's "
        "attention_dp_config. 0: they do not wait, as in vLLM.",
    )
    long_prefill_threshold: Annotated[int, Whole(0, MOST_TOKENS)] = Field(
        default=0,
        description="Most prompt tokens of one request in one step; 0: no limit.",
    )
    max_model_len: Annotated[int, Whole(2, MOST_TOKENS)] | None = Field(
        default=None,
        description="Most tokens of one request, prompt and output. Default: the model's limit.",
    )
    scheduling: Literal["fcfs", "priority", "shortest-prompt"] = Field(
        default="fcfs",
        description="Queue order: first come first served, highest priority, or shortest prompt.",
    )
    preemption: Literal["recompute", "restart"] = Field(
        default="recompute",
        description="A preempted request recomputes its KV, or starts over, which needs "
        "async_scheduling: false.",
    )
    over_length: Literal["cut", "refuse"] = Field(
        default="cut",
        description="Beyond max_model_len: the output is cut, or the request is dropped.",
    )
    async_scheduling: Switch = Field(
        default=True,
        description="Whether the next step is scheduled while one runs; hides host_overhead.",
    )
    kv_blocks: Annotated[int | Literal["auto"], Whole(2, MOST_BLOCKS, word="auto")] = Field(
        default="auto",
        description="KV cache blocks; `auto`: what memory holds.",
    )
    kv_cache_dtype: Annotated[Literal["auto", "fp8"], Added()] = Field(
        default="auto",
        description="`auto` follows the model; `fp8` takes one byte per value and needs an "
        "accelerator with fp8.",
    )
    null_block: Switch = Field(
        default=True,
        description="Whether one block is never allocated, as in vLLM.",
    )
    host_overhead_s: Cost = Field(
        default=0.0,
        description="Host time to schedule one step; usually hidden.",
    )
    reserve_full_prompt: Switch = Field(
        default=True,
        description="Whether requests wait until their whole prompt fits.",
    )
    unhashed_blocks_first: Switch = Field(
        default=True,
        description="Whether freed blocks without a hash are reused first.",
    )
    compute_whole_hits: Switch = Field(
        default=True,
        description="Whether a fully cached prompt recomputes its last block; false needs "
        "async_scheduling: false.",
    )
    store_last_token: Switch = Field(
        default=False,
        description="Whether an answer's last token takes KV cache; needs async_scheduling: false.",
    )
    last_step_blocks: Switch = Field(
        default=True,
        description="Whether a step in which every request ends blocks the next; false needs "
        "async_scheduling: false.",
    )
    lora: LoraSettings | None = Field(
        default=None,
        description="Slots for LoRA adapters. Default: none.",
    )
    offload: list[OffloadTier] | None = Field(
        default=None,
        min_length=1,
        max_length=3,
        description="Tiers, fast to slow, for evicted cached blocks. Default: none.",
    )
    speculative: Annotated[SpeculativeSettings | None, Added()] = Field(
        default=None,
        description="Speculative decoding: vLLM's speculative_config.",
    )
    kv_bytes_per_token: Annotated[float, Size("1B", "1GB")] | None = Field(
        default=None,
        description="KV bytes per token, for `offload`. Default: the model's.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        budget = self.max_num_batched_tokens
        if budget < self.max_num_seqs:
            what = f"{budget} is less than max_num_seqs, which is {self.max_num_seqs}"
            hint = "each running request needs a token of every step"
            yield where.fault("max_num_batched_tokens", what, hint=hint, beside=("max_num_seqs",))
        longest = self.max_model_len
        if not self.chunked_prefill and longest is not None and longest > budget:
            what = f"{longest} is more than max_num_batched_tokens, which is {budget}"
            hint = "without chunked_prefill a longer prompt would wait forever"
            beside = ("max_num_batched_tokens", "chunked_prefill")
            yield where.fault("max_model_len", what, hint=hint, beside=beside)
        if self.lora is not None and self.lora.memory_bytes and self.kv_blocks != "auto":
            what = f"{format_size(self.lora.memory_bytes)}, but kv_blocks is {self.kv_blocks}"
            hint = "a given number of blocks already excludes the memory of adapters"
            only = "only with kv_blocks: auto"
            yield where.fault(("lora", "memory"), what, only, hint, beside=("kv_blocks",))
        if self.prompt_wait_steps and where.around[-1].data_parallel == 1:
            what = f"{self.prompt_wait_steps}, but the pool's data_parallel is 1"
            yield where.fault("prompt_wait_steps", what, "only with data_parallel above 1")
        if self.kv_cache_dtype == "fp8":
            yield from self._fp8_faults(where)
        try:
            release_of(self.version)
        except InputError as fault:
            yield where.fault("version", fault.what, fault.allowed)
        yield from self._offload_faults(where)
        if self.speculative is not None:
            yield from self._speculative_faults(where, self.speculative)

    def _speculative_faults(
        self, where: Context, speculative: SpeculativeSettings
    ) -> Iterator[Fault]:
        for name, habit in (
            ("preemption", self.preemption == "restart"),
            ("last_step_blocks", not self.last_step_blocks),
            ("compute_whole_hits", not self.compute_whole_hits),
            ("store_last_token", self.store_last_token),
        ):
            if habit:
                what = f"{getattr(self, name)!r}, an option for BLIS, which does not draft"
                yield where.fault(name, what, "vLLM's, with speculative", beside=("speculative",))
        if (
            speculative.method == "ngram"
            and self.async_scheduling
            and self.written("async_scheduling")
        ):
            what = "true, but the host makes n-gram drafts after a step has ended"
            hint = "the default with ngram is false, as in vLLM"
            yield where.fault("async_scheduling", what, "false", hint, beside=("speculative",))

    def with_method(self) -> "EngineSettings":
        """With the options that vLLM turns off when the host drafts between steps."""
        if self.speculative is not None and self.speculative.method == "ngram":
            return self.with_defaults({"async_scheduling": False})
        return self

    def on(self, accelerator: Accelerator) -> "EngineSettings":
        """With vLLM's defaults for an accelerator where the file sets nothing."""
        chosen = engine_defaults(accelerator, self.version)
        seqs, tokens = chosen.max_num_seqs, chosen.max_num_batched_tokens
        if self.written("max_num_batched_tokens"):
            seqs = min(seqs, self.max_num_batched_tokens)
        if self.written("max_num_seqs"):
            tokens = max(tokens, self.max_num_seqs)
        if not self.chunked_prefill:  # a longer prompt would wait forever
            tokens = max(tokens, type(self).model_fields["max_num_batched_tokens"].default)
        options = {
            "max_num_seqs": seqs,
            "max_num_batched_tokens": tokens,
            "memory_utilization": chosen.memory_utilization,
        }
        return self.with_defaults(options)

    def _fp8_faults(self, where: Context) -> Iterator[Fault]:
        pool, path = where.around[-1], where.path[:-1]
        because = ((*path, "accelerator"), (*path, "step_time"), (*path, "step_time", "model"))
        if pool.step_time.model == "blis-trained-physics":
            what = "'fp8', but the step time 'blis-trained-physics' assumes two bytes"
            yield where.fault("kv_cache_dtype", what, "auto", because_of=because)
        known = pool.accelerator is not None and is_accelerator(pool.accelerator)
        if known and not resolve_accelerator(pool.accelerator).fp8_flops:
            what = f"'fp8', but the accelerator {pool.accelerator} has no fp8"
            yield where.fault("kv_cache_dtype", what, "auto", because_of=because)

    def _offload_faults(self, where: Context) -> Iterator[Fault]:
        if self.offload is None:
            if self.kv_bytes_per_token is not None:
                what = "this pool does not use it"
                yield where.note("kv_bytes_per_token", what, "only with offload")
            return
        order = list(TIERS)
        for index, (one, next_) in enumerate(pairwise(self.offload)):
            if order.index(next_.tier) <= order.index(one.tier):
                again = next_.tier == one.tier
                what = f"{next_.tier!r} comes " + ("twice" if again else f"after {one.tier!r}")
                allowed = f"each once, in the order {', '.join(order)}"
                yield where.fault(("offload", index + 1, "tier"), what, allowed)
        if not self.prefix_caching:
            what = "prefix_caching is off, so there are no cached blocks to offload"
            yield where.fault("offload", what, beside=("prefix_caching",))
        named = where.root.model is not None or where.around[-1].model is not None
        if not named and self.kv_bytes_per_token is None:
            what = "missing, and the scenario has no model to take it from"
            yield where.fault("kv_bytes_per_token", what, "a size, such as 128KiB")

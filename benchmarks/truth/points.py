"""Published measurements of served models, each with its source; none of them are our own.

Sources, with the revision that was read:
`fp8-kv`: vLLM's post of 2026-04-22 about FP8 KV caches (vLLM 0.19.1). For one request at a time
  it publishes straight lines of inter-token latency over prompt length; two points of each line are
  used here.
`cookbook`: SGLang's cookbook, each setting's own version, medians. Prompts have one length, but
  those of Qwen3.5 (sglang at ca0bad7) were run without `--random-range-ratio`: its client then
  draws ten lengths between 1 and the nominal ones, with seed 42. With recurrent layers SGLang
  limits how many requests run: `state_share` has the share of memory (`--mem-fraction-static`)
  that its rule starts from.
`inferencex`: SemiAnalysis InferenceX, fixtures of its app at 3a600f1, medians. Its client draws
  lengths between 80 % and 100 % of the nominal ones, and sends ten requests per user. Its scripts
  of February 2026 set step sizes and cache types; TensorRT-LLM spreads whole experts over its GPUs
  and, for 256 users, attention by request.
`tpu`: the TPU snapshot of the same app, whose precision is not stated. The model does not fit four
  chips in bf16, and the app's later preview of it (dd58073) says fp8.
`recipes`: vllm-project/recipes at 8959cf6, means. The run on H20s decoded a hundred requests at
  once, which do not fit in 96 GB; the recipes' H20s have 141 GB. `tops`: vLLM's post of 2026-05-11.
"""

from typing import NamedTuple

K = 1024


class Point(NamedTuple):
    """A published setting and its measurements; None for what was not published."""

    source: str
    engine: str
    gpu: str
    model: str
    family: str  # dense, mixture, latent mixture, hybrid
    dtype: str
    tp: int
    isl: int
    osl: int
    users: int
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    output_per_s: float | None = None  # tokens, over all GPUs
    kv: str = "auto"
    ep: bool = False
    spread: tuple[float, float] = (1.0, 1.0)  # lengths are drawn between these parts of isl and osl
    statistic: str = "mean"
    gap: str = "tpot"  # what `tpot_ms` is: a mean over a request's tokens, or "itl", of all gaps
    requests: int = 0  # 0: as many as settle the figures
    lengths: tuple[tuple[int, int], ...] = ()  # of prompts and outputs, if known one by one
    budget: int = 0  # most tokens of a step; 0: the engine's default
    ranks: int = 1  # over which attention is spread by request; experts are spread whole
    rate: float = 0.0  # requests per second of an open loop, instead of so many at once
    state_share: float = 0.0  # of memory, from which SGLang derives how many requests may run
    release: str = ""  # of vLLM, where kernels of that release were timed
    mtp: int = 0  # tokens drafted by the model's own layers, accepted as the simulator's defaults

    @property
    def parallelism(self) -> str:
        drafts = f" MTP {self.mtp}" if self.mtp else ""
        group = f"DP {self.ranks}" if self.ranks > 1 else f"TP {self.tp}"
        return group + (" EP" if self.ep else "") + drafts

    def measured(self) -> dict[str, float]:
        """The published figures, in seconds and tokens per second."""
        found = {
            "ttft": None if self.ttft_ms is None else 1e-3 * self.ttft_ms,
            "tpot": None if self.tpot_ms is None else 1e-3 * self.tpot_ms,
            "throughput": self.output_per_s,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def title(self) -> str:
        kv = " kv fp8" if self.kv == "fp8" else ""
        return (
            f"{self.gpu} {self.model.rsplit('/', 1)[-1]} {self.dtype}{kv} {self.parallelism}, "
            f"{self.isl}/{self.osl}, {self.users} at once ({self.engine})"
        )


LLAMA, GPT_OSS = "meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b"
R1, R1_FP4 = "deepseek-ai/DeepSeek-R1-0528", "nvidia/DeepSeek-R1-0528-NVFP4"

# fmt: off
# GPU, model, family, dtype, KV type, ms of a token without a prompt, ms per prompt token
_LINES = (
    ("h100", LLAMA, "dense", "bf16", "auto", 6.44, 4.37e-5),
    ("h100", LLAMA, "dense", "bf16", "fp8", 6.58, 2.37e-5),
    ("h100", GPT_OSS, "mixture", "mxfp4", "auto", 4.05, 8.94e-6),
    ("h100", GPT_OSS, "mixture", "mxfp4", "fp8", 4.05, 7.14e-6),
    ("b200", LLAMA, "dense", "bf16", "auto", 3.93, 1.80e-5),
    ("b200", LLAMA, "dense", "bf16", "fp8", 3.96, 9.72e-6),
    ("b200", GPT_OSS, "mixture", "mxfp4", "auto", 3.15, 3.56e-6),
    ("b200", GPT_OSS, "mixture", "mxfp4", "fp8", 3.17, 2.06e-6),
)
_LINE_PROMPTS, _LINE_OUTPUT = (2 * K, 64 * K), 16

# The same post: 150 requests, eight at once, 20,000/2,000 tokens within 15 %: TTFT, ITL, tokens/s.
# Eight users at its ITL would get more tokens than it says: the ITL is a median, without the gaps
# in which other prompts are computed.
_EIGHT = (
    (LLAMA, "dense", "bf16", "auto", 763.6, 15.18, 450.3),
    (LLAMA, "dense", "bf16", "fp8", 742.8, 12.93, 517.5),
    (GPT_OSS, "mixture", "mxfp4", "auto", 468.9, 8.09, 831.6),
    (GPT_OSS, "mixture", "mxfp4", "fp8", 451.7, 7.90, 853.0),
)

# SGLang's cookbook, 8,192/1,024, one GPU: model, family, dtype, users, TTFT, TPOT.
_COOKBOOK = (
    ("h200", "ibm-granite/granite-4.2-3b", "dense", "bf16", 1, 131.0, 3.51),
    ("h200", "ibm-granite/granite-4.2-3b", "dense", "bf16", 16, 1093.0, 7.23),
    ("h200", "ibm-granite/granite-4.2-8b", "dense", "bf16", 1, 261.0, 6.28),
    ("h200", "ibm-granite/granite-4.2-8b", "dense", "bf16", 16, 2168.0, 13.06),
    ("h200", "ibm-granite/granite-4.2-30b", "dense", "bf16", 1, 807.0, 17.14),
    ("h200", "ibm-granite/granite-4.2-30b", "dense", "bf16", 16, 6860.0, 31.19),
    ("b200", "ibm-granite/granite-4.2-3b", "dense", "bf16", 1, 74.93, 2.76),
    ("b200", "ibm-granite/granite-4.2-3b", "dense", "bf16", 16, 559.1, 4.66),
    ("b200", "ibm-granite/granite-4.2-8b", "dense", "bf16", 1, 132.85, 4.44),
    ("b200", "ibm-granite/granite-4.2-8b", "dense", "bf16", 16, 1060.55, 8.08),
    ("b200", "ibm-granite/granite-4.2-30b", "dense", "bf16", 1, 386.03, 12.01),
    ("b200", "ibm-granite/granite-4.2-30b", "dense", "bf16", 16, 3391.21, 18.78),
)

# The same for prompts and outputs of these lengths, one request at a time: TTFT, TPOT, and tokens/s
# of which a ninth are counted as output.
_DRAWN = (
    *((7271, 467), (7604, 215), (861, 331), (5391, 459), (5227, 88)),
    *((5192, 373), (3773, 100), (3093, 872), (5735, 664), (6266, 131)),
)
_QWEN = (
    ("Qwen/Qwen3.5-0.8B", "bf16", 40.0, 1.18, None),
    ("Qwen/Qwen3.5-2B", "bf16", 40.0, 1.58, 5158.0),
    ("Qwen/Qwen3.5-4B", "bf16", 60.0, 2.58, 3282.0),
    ("Qwen/Qwen3.5-9B", "bf16", 84.0, 3.91, 2192.0),
    ("Qwen/Qwen3.5-27B", "bf16", 258.0, 10.45, 814.0),
    ("Qwen/Qwen3.5-27B-FP8", "fp8", 185.0, 7.54, 1126.0),
    ("Qwen/Qwen3.5-35B-A3B", "bf16", 88.0, 3.00, 2783.0),
    ("Qwen/Qwen3.5-35B-A3B-FP8", "fp8", 104.0, 2.91, 2817.0),
)

# The same, 2,048 requests, 1,024 at once, of which SGLang runs as many as it has states for: share
# of memory, total tokens/s of the GPU, of which a ninth are output, TTFT, and TPOT.
_SATURATED = (
    ("h200", "Qwen/Qwen3.6-35B-A3B", "bf16", 0.92, 21029.0, 390479.0, 32.67),
    ("h200", "Qwen/Qwen3.6-35B-A3B-FP8", "fp8", 0.8, 30201.0, 263654.0, 27.9),
    ("b200", "Qwen/Qwen3.6-35B-A3B", "bf16", 0.8, 38134.0, 206078.0, 22.45),
    ("b200", "Qwen/Qwen3.6-35B-A3B-FP8", "fp8", 0.8, 46963.0, 166960.0, 24.3),
    ("b300", "Qwen/Qwen3.6-35B-A3B", "bf16", 0.8, 49190.0, 140285.0, 33.17),
    ("b300", "Qwen/Qwen3.6-35B-A3B-FP8", "fp8", 0.8, 54080.0, 112976.0, 34.69),
    ("b200", "Qwen/Qwen3.6-27B", "bf16", 0.8, 12154.0, 724659.0, 31.56),
    ("b200", "Qwen/Qwen3.6-27B-FP8", "fp8", 0.8, 16229.0, 538675.0, 29.35),
    ("b300", "Qwen/Qwen3.6-27B", "bf16", 0.8, 14272.0, 575160.0, 45.8),
    ("b300", "Qwen/Qwen3.6-27B-FP8", "fp8", 0.8, 18327.0, 440199.0, 42.42),
)

# The same with three tokens drafted by the model's own layers: TTFT and TPOT of one request at a
# time (8 requests), and of 16 (64 requests).
_DRAFTED = (
    ("h200", "Qwen/Qwen3.6-35B-A3B", "bf16", (182.0, 2.23), (223.0, 8.13)),
    ("h200", "Qwen/Qwen3.6-35B-A3B-FP8", "fp8", (138.0, 1.98), (189.0, 6.2)),
    ("h200", "Qwen/Qwen3.6-27B", "bf16", (734.0, 5.61), (1198.0, 17.28)),
    ("h200", "Qwen/Qwen3.6-27B-FP8", "fp8", (487.0, 4.3), (734.0, 12.58)),
    ("b200", "Qwen/Qwen3.6-35B-A3B", "bf16", (98.0, 1.81), (126.0, 5.27)),
    ("b200", "Qwen/Qwen3.6-35B-A3B-FP8", "fp8", (116.0, 1.81), (221.0, 4.62)),
    ("b200", "Qwen/Qwen3.6-27B", "bf16", (402.0, 4.29), (605.0, 10.84)),
    ("b200", "Qwen/Qwen3.6-27B-FP8", "fp8", (292.0, 3.4), (321.0, 8.59)),
    ("b300", "Qwen/Qwen3.6-35B-A3B", "bf16", (95.0, 1.7), (153.0, 5.17)),
    ("b300", "Qwen/Qwen3.6-35B-A3B-FP8", "fp8", (101.0, 1.71), (161.0, 4.47)),
    ("b300", "Qwen/Qwen3.6-27B", "bf16", (389.0, 4.04), (410.0, 11.03)),
    ("b300", "Qwen/Qwen3.6-27B-FP8", "fp8", (284.0, 3.31), (420.0, 8.28)),
)

# InferenceX, DeepSeek-R1 without speculation: engine, GPU, dtype, TP, prompt; users, TTFT, TPOT,
# and where it was published the tokens per second of all GPUs, prompts included.
_Served = tuple[int, float, float, float | None]
_INFERENCEX: tuple[tuple[str, str, str, int, int, tuple[_Served, ...]], ...] = (
    ("TRT-LLM", "h200", "fp8", 8, K, (
        (4, 119.0, 13.8, None), (8, 106.0, 16.3, None), (16, 130.0, 20.4, None),
        (32, 124.0, 25.9, None))),
    ("TRT-LLM", "h200", "fp8", 8, 8 * K, (
        (4, 374.0, 14.9, None), (8, 384.0, 18.7, None), (16, 404.0, 25.5, None))),
    ("SGLang", "h200", "fp8", 8, K, ((4, 156.0, 10.3, None),)),
    ("TRT-LLM", "b200", "fp4", 4, K, ((256, 841.0, 34.9, 4 * 3421.0),)),
    ("TRT-LLM", "b200", "fp4", 4, 8 * K, ((256, 2090.0, 65.1, 4 * 8354.0),)),
    ("SGLang", "mi355x", "fp4", 4, K, (
        (4, 107.0, 10.6, None), (8, 109.0, 12.4, None), (16, 115.0, 15.1, None),
        (32, 112.0, 19.7, None), (64, 125.0, 26.7, None))),
    ("SGLang", "mi355x", "fp4", 8, 8 * K, (
        (8, 373.0, 12.8, None), (16, 377.0, 16.5, None), (32, 400.0, 23.5, None),
        (64, 656.0, 36.3, None))),
)

# TPU, eight prompt tokens to one of output, taken as 8,192/1,024.
_TPU = ((4, 269.0, 7.60), (8, 269.0, 9.65), (16, 269.0, 14.0), (32, 282.0, 20.6), (64, 458.0, 32.5))

_OTHERS = (
    Point("tops", "vLLM", "b300", "deepseek-ai/DeepSeek-V3.2", "latent mixture", "fp8", 8, K, K, 1,
          tpot_ms=1000 / 125),
    Point("recipes", "vLLM", "h20-141", "deepseek-ai/DeepSeek-V3.2", "latent mixture", "fp8", 8,
          2 * K, K, 100, 21147.2, 99.71, 791.7, requests=100, rate=10.0),
    Point("recipes", "vLLM", "h200", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "hybrid", "fp8",
          1, K, K, 1024, 4490.58, 59.45, 15828.3, kv="fp8", requests=2048),
)
# fmt: on


def drafted() -> list[tuple[Point, Point]]:
    """Settings without and with drafts, for the ratio of the two.

    They are not points of their own: a model's error would count twice.
    """
    plain = _OTHERS[0]
    return [(plain, plain._replace(tpot_ms=1000 / 234, mtp=1))]


def guessed() -> list[Point]:
    """Settings with drafts of unpublished acceptance, kept apart from the others."""
    return [
        Point(
            *("cookbook", "SGLang", gpu, model, "hybrid", dtype, 1, 8 * K, K, users, *measured),
            statistic="p50",
            requests=requests,
            mtp=3,
        )
        for gpu, model, dtype, one, sixteen in _DRAFTED
        for users, requests, measured in ((1, 8, one), (16, 64, sixteen))
    ]


def _budget(engine: str, gpu: str, prompt: int, users: int) -> int:
    """The most tokens of a step in InferenceX's scripts."""
    if engine == "TRT-LLM":
        return max(8192, (users + prompt + 127) // 64 * 64)
    return 32768 if gpu == "h200" or (prompt > K and users > 32) else 196608


def points() -> list[Point]:
    """All other points, in the order of their sources."""
    found = [
        Point(
            *("fp8-kv", "vLLM", gpu, model, family, dtype, 1, prompt, _LINE_OUTPUT, 1),
            tpot_ms=base + slope * prompt,
            kv=kv,
            release="0.19",
        )
        for gpu, model, family, dtype, kv, base, slope in _LINES
        for prompt in _LINE_PROMPTS
    ]
    found += [
        Point(
            *("fp8-kv", "vLLM", "h100", model, family, dtype, 1, 20_000, 2_000, 8),
            *(ttft, tpot, rate),
            kv=kv,
            spread=(0.85, 1.15),
            statistic="p50",
            gap="itl",
            requests=150,
            release="0.19",
        )
        for model, family, dtype, kv, ttft, tpot, rate in _EIGHT
    ]
    found += [
        Point(
            *("cookbook", "SGLang", gpu, model, family, dtype, 1, 8 * K, K, users, ttft, tpot),
            statistic="p50",
        )
        for gpu, model, family, dtype, users, ttft, tpot in _COOKBOOK
    ]
    found += [
        Point(
            *("cookbook", "SGLang", "b200", model, "hybrid", dtype, 1, 8 * K, K, 1, ttft, tpot),
            output_per_s=None if total is None else total / 9,
            statistic="p50",
            lengths=_DRAWN,
        )
        for model, dtype, ttft, tpot, total in _QWEN
    ]
    found += [
        Point(
            *("cookbook", "SGLang", gpu, model, "hybrid", dtype, 1, 8 * K, K, 1024),
            *(ttft, tpot, total / 9),
            statistic="p50",
            requests=2048,
            state_share=share,
        )
        for gpu, model, dtype, share, total, ttft, tpot in _SATURATED
    ]
    for engine, gpu, dtype, tp, prompt, rows in _INFERENCEX:
        model = R1 if dtype == "fp8" else R1_FP4
        for users, ttft, tpot, total in rows:
            share = K / (prompt + K)
            found.append(
                Point(
                    *("inferencex", engine, gpu, model, "latent mixture", dtype, tp, prompt, K),
                    *(users, ttft, tpot),
                    output_per_s=None if total is None else total * share,
                    spread=(0.8, 1.0),
                    statistic="p50",
                    requests=10 * users,
                    kv="auto" if (engine, gpu) == ("SGLang", "h200") else "fp8",
                    ep=engine == "TRT-LLM",
                    budget=_budget(engine, gpu, prompt, users),
                    ranks=tp if engine == "TRT-LLM" and users == 256 else 1,
                )
            )
    found += [
        Point(
            *("tpu", "not stated", "tpu7x", "Qwen/Qwen3.5-397B-A17B-FP8", "hybrid", "fp8", 4),
            *(8 * K, K, users, ttft, tpot),
            spread=(0.8, 1.0),
            statistic="p50",
        )
        for users, ttft, tpot in _TPU
    ]
    return [*found, *_OTHERS]

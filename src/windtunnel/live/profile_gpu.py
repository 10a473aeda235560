"""Measures how long inference steps take on this machine's GPU; needs PyTorch and nothing else.

A Llama-shaped decoder with random bf16 weights runs one step at a time from a CUDA graph:
`prefill` new prompt tokens of one sequence with `prior` cached ones, and `decodes` sequences of
`context` cached tokens. The KV cache is contiguous per sequence, attention is PyTorch's flash
attention, once for the prompt and once for the decodes, and the step ends with logits and argmax
for each sequence that produces a token. Norms and rotary embedding are fused by `torch.compile`,
as serving engines fuse them; there is no sampler, scheduler or tokenizer in it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.core.clock import monotonic_s
from windtunnel.core.errors import InputError, OutputError
from windtunnel.core.system.extras import install_command, need

__all__ = ["DecoderShape", "StepPoint", "grid", "measure"]

DECODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16384)
PREFILLS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
PRIORS = (0, 2048, 8192)
MIXED_PREFILLS = (128, 512, 1024, 1920)
MIXED_DECODES = (8, 32, 128)
MIXED_CONTEXTS = (512, 2048)

PASSES = (0, 3, 1, 4, 2)  # each pass over the grid takes every fifth point, from here

LARGEST_CACHE_BYTES = 48e9
CACHE_SHARE = 0.5  # of the memory that the weights leave free
TARGET_MS = 600.0  # replays of one point, so that clocks settle under its load
FEWEST_RUNS = 5
MOST_RUNS = 60
WARM_UP_RUNS = 3
NORM_EPSILON = 1e-5
COMPILED_FOR_ROWS = (64, 512)


class DecoderShape:
    """The sizes of a dense decoder with grouped-query attention, or of one GPU's slice of it."""

    __slots__ = ("ffn", "head_dim", "heads", "hidden", "kv_heads", "layers", "name", "vocab")

    def __init__(self, name: str, sizes: tuple[int, int, int, int, int, int, int]) -> None:
        """`sizes`: layers, hidden, heads, KV heads, head dimension, MLP width, vocabulary."""
        self.name = name
        self.layers, self.hidden, self.heads, self.kv_heads = sizes[:4]
        self.head_dim, self.ffn, self.vocab = sizes[4:]

    @property
    def weight_bytes(self) -> int:
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.ffn
        return 2 * (self.layers * layer + 2 * self.hidden * self.vocab)

    def cache_bytes(self, point: StepPoint) -> int:
        tokens = point.decodes * (point.context + 1) + point.prefill + point.prior
        return 4 * self.layers * self.kv_heads * self.head_dim * tokens


class StepPoint(NamedTuple):
    """One step to measure."""

    prefill: int
    prior: int
    decodes: int
    context: int


def grid() -> Iterator[StepPoint]:
    """The steps of a full profile, ordered so that every prefix of the list has all kinds."""
    points = list(_points())
    for first in PASSES:
        yield from points[first :: len(PASSES)]


def _points() -> Iterator[StepPoint]:
    for decodes in DECODES:
        for context in CONTEXTS:
            yield StepPoint(0, 0, decodes, context)
    for prefill in PREFILLS:
        for prior in PRIORS:
            yield StepPoint(prefill, prior, 0, 0)
    for prefill in MIXED_PREFILLS:
        for decodes in MIXED_DECODES:
            for context in MIXED_CONTEXTS:
                yield StepPoint(prefill, 0, decodes, context)


def measure(
    shapes: list[DecoderShape],
    output: Path,
    *,
    limit_s: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> int:
    """Measures the grid for each shape into a JSON-lines file; returns the number of lines.

    Lines are written as they are measured, so an interrupted profile keeps what it has. With a
    limit the time is shared evenly between the shapes.
    """
    torch = _torch()
    say = progress or _silent
    started = monotonic_s()
    written = 0
    try:
        file = output.open("w", encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise OutputError(f"cannot be written: {reason}", where=str(output)) from error
    with file:
        for place, shape in enumerate(shapes):
            until = None if limit_s is None else started + limit_s * (place + 1) / len(shapes)
            for row in _measure_shape(torch, shape, until, say):
                file.write(json.dumps(row) + "\n")
                file.flush()
                written += 1
    return written


def _silent(_: str) -> None:
    """Ignores progress messages."""


def _torch() -> Any:
    need("torch", None, "profile", "measuring a GPU needs PyTorch")
    import torch

    if not torch.cuda.is_available():
        raise InputError(
            "PyTorch finds no GPU on this machine",
            hint=f"run this where the GPU is, after {install_command('profile')}",
        )
    return torch


def _measure_shape(
    torch: Any, shape: DecoderShape, until: float | None, say: Callable[[str], None]
) -> Iterator[dict[str, object]]:
    free = float(torch.cuda.mem_get_info()[0])
    if shape.weight_bytes > 0.9 * free:
        needed = f"{shape.weight_bytes / 2**30:.0f} GiB of weights"
        what = f"{shape.name} has {needed}, the GPU has {free / 2**30:.0f} GiB free"
        raise InputError(what, hint="measure a tensor-parallel slice, such as NAME-tp8-slice")
    cache_limit = min(LARGEST_CACHE_BYTES, CACHE_SHARE * (free - shape.weight_bytes))
    decoder = Decoder(torch, shape)
    points = [point for point in grid() if shape.cache_bytes(point) <= cache_limit]
    for number, point in enumerate(points, start=1):
        if until is not None and monotonic_s() > until:
            say(f"{shape.name}: time is up after {number - 1} of {len(points)} points")
            return
        times = _time_point(torch, decoder, point)
        median = statistics.median(times)
        say(
            f"{shape.name} {number}/{len(points)}: prefill {point.prefill}+{point.prior}, "
            f"decodes {point.decodes} x {point.context}: {median:.3f} ms"
        )
        yield {
            "shape": shape.name,
            **point._asdict(),
            "ms": round(median, 4),
            "ms_min": round(min(times), 4),
            "ms_max": round(max(times), 4),
            "runs": len(times),
        }


def _time_point(torch: Any, decoder: Decoder, point: StepPoint) -> list[float]:
    """Milliseconds of each replay of the step's graph."""
    state = StepState(torch, decoder.shape, point)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(2):
            decoder.step(state)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        decoder.step(state)
    warm = _replay_ms(torch, graph, WARM_UP_RUNS)
    runs = max(FEWEST_RUNS, min(MOST_RUNS, int(TARGET_MS / min(warm))))
    times = _replay_ms(torch, graph, runs)
    graph.reset()
    del state
    torch.cuda.empty_cache()
    return times


def _replay_ms(torch: Any, graph: Any, runs: int) -> list[float]:
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2 * runs)]
    for run in range(runs):
        marks[2 * run].record()
        graph.replay()
        marks[2 * run + 1].record()
    torch.cuda.synchronize()
    return [float(marks[2 * run].elapsed_time(marks[2 * run + 1])) for run in range(runs)]


class StepState:
    """The inputs and the KV cache of one step."""

    def __init__(self, torch: Any, shape: DecoderShape, point: StepPoint) -> None:
        rows = point.prefill + point.decodes
        half = torch.arange(0, shape.head_dim, 2, device="cuda", dtype=torch.float32)
        rates = 500000.0 ** (-half / shape.head_dim)
        prompt = torch.arange(point.prior, point.prior + point.prefill, device="cuda")
        decodes = torch.full((point.decodes,), point.context, device="cuda")
        angles = torch.cat([prompt, decodes]).float()[:, None] * rates[None, :]
        angles = torch.cat([angles, angles], dim=-1)[:, None, :]
        self.point = point
        self.tokens = torch.randint(0, shape.vocab, (rows,), device="cuda")
        self.cos = angles.cos().bfloat16()
        self.sin = angles.sin().bfloat16()
        prompt_keys = (1, point.prior + point.prefill, shape.kv_heads, shape.head_dim)
        decode_keys = (point.decodes, point.context + 1, shape.kv_heads, shape.head_dim)
        self.prompt_cache = [_cache(torch, prompt_keys) for _ in range(shape.layers)]
        self.decode_cache = [_cache(torch, decode_keys) for _ in range(shape.layers)]
        last = [point.prefill - 1] if point.prefill else []
        sampled = [*last, *range(point.prefill, rows)]
        self.sampled = torch.tensor(sampled, device="cuda")


def _cache(torch: Any, size: tuple[int, int, int, int]) -> tuple[Any, Any]:
    keys = torch.randn(size, device="cuda", dtype=torch.bfloat16)
    return keys, torch.randn_like(keys)


class SmallKernels:
    """The kernels between a step's matrix multiplications, one compiled kernel per function."""

    def __init__(self, torch: Any, shape: DecoderShape) -> None:
        # Code compiled for another width would make this width dynamic: start afresh.
        torch._dynamo.reset()  # noqa: SLF001

        def norm(x: Any, weight: Any) -> Any:
            wide = x.float()
            scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPSILON)
            return (wide * scale).to(x.dtype) * weight

        def add_norm(x: Any, change: Any, weight: Any) -> tuple[Any, Any]:
            total = x + change
            return total, norm(total, weight)

        def rotate(x: Any, cos: Any, sin: Any) -> Any:
            low, high = x.chunk(2, dim=-1)
            return x * cos + torch.cat([-high, low], dim=-1) * sin

        self.norm = torch.compile(norm)
        self.add_norm = torch.compile(add_norm)
        self.rotate = torch.compile(rotate)
        try:
            self._compile(torch, shape)
        except RuntimeError as error:
            hint = "torch.compile needs Triton and a C compiler"
            raise InputError("PyTorch cannot compile kernels here", hint=hint) from error

    def _compile(self, torch: Any, shape: DecoderShape) -> None:
        """Compiles for any number of rows: a second row count makes the dimension dynamic."""

        def ones(*size: int) -> Any:
            return torch.ones(size, device="cuda", dtype=torch.bfloat16)

        for rows in COMPILED_FOR_ROWS:
            x = ones(rows, shape.hidden)
            weight = ones(shape.hidden)
            self.norm(x, weight)
            self.add_norm(x, ones(rows, shape.hidden), weight)
            heads = ones(rows, shape.heads + 2 * shape.kv_heads, shape.head_dim)
            rotated = heads[:, : shape.heads + shape.kv_heads]
            self.rotate(rotated, ones(rows, 1, shape.head_dim), ones(rows, 1, shape.head_dim))


class Decoder:
    """Random weights of one shape, and the step through them."""

    def __init__(self, torch: Any, shape: DecoderShape) -> None:
        self.torch = torch
        self.shape = shape
        self.small = SmallKernels(torch, shape)
        torch.manual_seed(0)
        queries = shape.heads * shape.head_dim
        keys = shape.kv_heads * shape.head_dim
        self.layers = [
            {
                "qkv": self._matrix(queries + 2 * keys, shape.hidden),
                "out": self._matrix(shape.hidden, queries),
                "gate_up": self._matrix(2 * shape.ffn, shape.hidden),
                "down": self._matrix(shape.hidden, shape.ffn),
            }
            for _ in range(shape.layers)
        ]
        self.embedding = self._matrix(shape.vocab, shape.hidden)
        self.head = self._matrix(shape.vocab, shape.hidden)
        ones = torch.ones(shape.hidden, device="cuda", dtype=torch.bfloat16)
        self.norms = [ones.clone() for _ in range(2 * shape.layers + 1)]

    def _matrix(self, outputs: int, inputs: int) -> Any:
        size = (outputs, inputs)
        weights = self.torch.randn(size, device="cuda", dtype=self.torch.bfloat16)
        return weights.mul_(inputs**-0.5)

    def step(self, state: StepState) -> Any:
        """Runs one step; returns the token that each sequence produces."""
        functional = self.torch.nn.functional
        x = self.embedding[state.tokens]
        normed = self.small.norm(x, self.norms[0])
        for number, layer in enumerate(self.layers):
            mixed = self._attention(state, number, functional.linear(normed, layer["qkv"]))
            change = functional.linear(mixed, layer["out"])
            x, normed = self.small.add_norm(x, change, self.norms[2 * number + 1])
            gate, up = functional.linear(normed, layer["gate_up"]).chunk(2, dim=-1)
            change = functional.linear(functional.silu(gate) * up, layer["down"])
            x, normed = self.small.add_norm(x, change, self.norms[2 * number + 2])
        return functional.linear(normed[state.sampled], self.head).argmax(dim=-1)

    def _attention(self, state: StepState, number: int, qkv: Any) -> Any:
        shape = self.shape
        point = state.point
        qkv = qkv.view(-1, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        rotated = self.small.rotate(qkv[:, : shape.heads + shape.kv_heads], state.cos, state.sin)
        q = rotated[:, : shape.heads]
        k = rotated[:, shape.heads :]
        v = qkv[:, shape.heads + shape.kv_heads :]
        parts = []
        cut = point.prefill
        if cut:
            keys, values = state.prompt_cache[number]
            keys[0, point.prior :] = k[:cut]
            values[0, point.prior :] = v[:cut]
            parts.append(self._flash(q[:cut][None], keys, values, causal=True)[0])
        if point.decodes:
            keys, values = state.decode_cache[number]
            keys[:, point.context] = k[cut:]
            values[:, point.context] = v[cut:]
            parts.append(self._flash(q[cut:][:, None], keys, values, causal=False)[:, 0])
        out = parts[0] if len(parts) == 1 else self.torch.cat(parts)
        return out.reshape(-1, shape.heads * shape.head_dim)

    def _flash(self, q: Any, k: Any, v: Any, *, causal: bool) -> Any:
        """Calls PyTorch's flash kernel directly: its causal mask ends at the last cached token.

        `scaled_dot_product_attention` aligns the mask with the first token instead, which is wrong
        behind a cached prefix.
        """
        flash = self.torch.ops.aten._scaled_dot_product_flash_attention  # noqa: SLF001
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        return flash(*heads_first, 0.0, causal)[0].transpose(1, 2)

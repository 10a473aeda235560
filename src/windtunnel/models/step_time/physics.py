"""Step times from the operators that a step runs, each relative to the accelerator's peaks.

Terms that depend only on the number of tokens are computed once per number and cached; terms that
depend on the context are a few multiplications. `docs/explanation/step-time-models.md` explains
each term.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

from windtunnel.models.catalog.accelerators import Accelerator
from windtunnel.models.catalog.shapes import MAMBA2, ModelShape
from windtunnel.models.step_time.kernels import (
    EXCHANGES,
    FOUR_BIT,
    SPLIT_KEYS,
    SPLIT_ROWS,
    Kernels,
    PhysicsParameters,
    touched_experts,
)
from windtunnel.models.step_time.model import (
    MeasuredBounds,
    StepTimeModel,
    StepWork,
    largest_share,
    tokens_of,
)

__all__ = ["Physics", "Ranks"]

SPARSE_HEADS: Final = 64  # prefill kernels for sparse attention pad the heads of a GPU to this many
# Multiplications and additions that a token takes of each number of a state: with the delta rule it
# reads, corrects and reads again, with Mamba-2 it adds and reads.
DELTA_PASSES: Final = 6.0
MAMBA_PASSES: Final = 4.0
REMEMBERED: Final = 1 << 16  # limit on the token or sequence counts whose times are cached
UNKNOWN: Final = -1.0  # a time that was not computed yet


def attention_gemms(part: ModelShape) -> list[tuple[int, int]]:
    """(outputs, inputs) of the projections around one layer's attention."""
    queries = part.heads * part.head_dim
    if not part.is_latent:
        into = queries + 2 * part.kv_heads * part.head_dim
        if part.gated_attention:
            into += queries
        return [(into, part.hidden), (part.hidden, queries)]
    queries = part.heads * (part.qk_nope_dim + part.qk_rope_dim)
    down = part.kv_lora_rank + part.qk_rope_dim
    up = (part.heads * (part.qk_nope_dim + part.v_head_dim), part.kv_lora_rank)
    out = (part.hidden, part.heads * part.v_head_dim)
    if part.q_lora_rank == 0:
        return [(queries + down, part.hidden), up, out]
    return [(part.q_lora_rank + down, part.hidden), (queries, part.q_lora_rank), up, out]


def index_gemms(part: ModelShape) -> list[tuple[int, int]]:
    """(outputs, inputs) of the projections of one indexer of sparse attention."""
    if not part.is_sparse:
        return []
    queries = part.index_heads * part.index_dim
    return [(queries, part.q_lora_rank), (part.index_dim + part.index_heads, part.hidden)]


def prefill_flops(part: ModelShape) -> float:
    """FLOPs of one layer's attention for one (query, key) pair of a prompt, as kernels compute
    it."""
    if part.is_sparse:
        return part.decode_pair_flops * max(1.0, SPARSE_HEADS / part.heads)
    return float(part.prefill_pair_flops)


def mlp_gemms(part: ModelShape, width: int) -> list[tuple[int, int]]:
    """(outputs, inputs) of one MLP of that width: its input matrices are one multiplication."""
    if width == 0:
        return []
    return [((part.mlp_matrices - 1) * width, part.hidden), (part.hidden, width)]


def gemm_kind(part: ModelShape, kernels: Kernels) -> str:
    """The name in profiles of multiplications by this model's weights."""
    if not kernels.gemm_rates(part.weight_bytes).convert_per_s:
        return "gemm"
    return "gemm in fp4" if part.weight_bytes < FOUR_BIT else "gemm in fp8"


def expert_kind(part: ModelShape, kernels: Kernels) -> str:
    """The same for its experts."""
    kinds = ("experts", "experts in fp8", "experts in fp4", "experts of 4-bit weights")
    return kinds[kernels.expert_class(part.expert_weight_bytes)]


def busiest_rank(pairs: float, visited: float, experts: int, ranks: int) -> tuple[float, float]:
    """(pairs, visited experts) of the rank for which the others wait, from those of a mean rank.

    The ranks have whole experts, that many each. The largest of some normal draws lies as far above
    their mean as Blom's approximation says.
    """
    if ranks == 1:
        return pairs, visited
    above = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    visited += above * math.sqrt(visited * (1.0 - visited / experts))
    pairs += above * math.sqrt(pairs * (1.0 - 1.0 / ranks))
    return pairs, min(visited, float(experts))


class AttentionLayers:
    """Attention layers of one shape, and what a layer costs."""

    def __init__(self, part: ModelShape, layers: int, window_layers: int, kernels: Kernels) -> None:
        self.layers: Final = layers
        # The tokens that an indexer picks are read like a window, in every layer.
        self.window: Final = part.index_topk if part.is_sparse else part.window
        self.window_layers: Final = part.layers if part.is_sparse else window_layers
        self.kv_heads: Final = 1 if part.is_latent else part.kv_heads
        self.gemms: Final = attention_gemms(part)
        # Norms and sums pass over the hidden vector, the rotation over queries, keys and values.
        self.width: Final = part.hidden + self.gemms[0][0]
        self.decode_flops: Final = float(part.decode_pair_flops)
        self.pair_s: Final[float] = prefill_flops(part) / kernels.attention_flops
        rate = kernels.latent_rate if part.is_latent else kernels.kv_rate
        self.key_s: Final[float] = (part.kv_bytes_per_token_layer - part.index_bytes) / rate


def attention_kinds(part: ModelShape, kernels: Kernels) -> list[AttentionLayers]:
    """One kind, or two where full-attention layers have other heads than windowed ones."""
    full = part.of_full_layers
    if full is part:
        return [AttentionLayers(part, part.attention_layers, part.window_layers, kernels)]
    windows = part.window_layers
    kinds = [
        AttentionLayers(part, windows, windows, kernels),
        AttentionLayers(full, part.full_layers, 0, kernels),
    ]
    return [kind for kind in kinds if kind.layers]


Line = tuple[float, float, float]
"""(base, slope, until) of a time over the total context, from the end of the line before."""


def summed(some: list[Line], others: list[Line]) -> list[Line]:
    """The sum of two times that are consecutive lines."""
    found = []
    one = other = 0
    while one < len(some):
        first, second = some[one], others[other]
        until = min(first[2], second[2])
        found.append((first[0] + second[0], first[1] + second[1], until))
        one += int(first[2] == until)
        other += int(second[2] == until)
    return found


class LinePiece:
    """The times of decode steps as a line over their total context, up to `until`."""

    def __init__(self, line: tuple[float, float, float], further: LinePiece | None) -> None:
        self.base: Final[float] = line[0]
        self.slope: Final[float] = line[1]
        self.until: Final[float] = line[2]
        self.further: Final = further  # the line from there on


class LineTable:
    """Lines by number of decoding sequences and, if there are any, of drafted tokens."""

    def __init__(self) -> None:
        self._pieces: Final[list[LinePiece | None]] = []
        self._drafted: Final[dict[tuple[int, int], LinePiece]] = {}

    def get(self, decodes: int, drafted: int = 0) -> LinePiece | None:
        """The first piece; None if there is none yet."""
        if drafted:
            return self._drafted.get((decodes, drafted))
        return self._pieces[decodes] if decodes < len(self._pieces) else None

    def put(
        self, decodes: int, lines: list[tuple[float, float, float]], drafted: int = 0
    ) -> LinePiece:
        """Stores consecutive lines, and returns the first piece."""
        piece = linked(lines)
        if drafted:
            if len(self._drafted) >= REMEMBERED:
                self._drafted.clear()
            self._drafted[(decodes, drafted)] = piece
        elif decodes < REMEMBERED:
            while len(self._pieces) <= decodes:
                self._pieces.append(None)
            self._pieces[decodes] = piece
        return piece


def linked(lines: list[tuple[float, float, float]]) -> LinePiece:
    """Links consecutive lines, and returns the first piece."""
    piece = LinePiece(lines[-1], None)
    for line in reversed(lines[:-1]):
        piece = LinePiece(line, piece)
    return piece


def line_at(piece: LinePiece, context: int) -> tuple[float, float, float]:
    """(base, slope, until) of the piece for a total context."""
    total = float(context)
    while total >= piece.until and piece.further is not None:
        piece = piece.further
    return piece.base, piece.slope, piece.until


def known_s(times: list[float], count: int) -> float:
    """A cached time by number of tokens or sequences; UNKNOWN if it is not cached."""
    return times[count] if count < len(times) else UNKNOWN


def keep_s(times: list[float], count: int, time_s: float) -> None:
    if count < REMEMBERED:
        times.extend([UNKNOWN] * (count + 1 - len(times)))
        times[count] = time_s


class Ranks:
    """Data-parallel ranks of one server, which share their experts and step together."""

    def __init__(self, count: int, backend: str) -> None:
        self.count: Final = count
        self.backend: Final = backend  # how tokens get to experts, as named by vLLM


class Physics(StepTimeModel):
    """Step times of one model on one kind of GPU, under one profile."""

    def __init__(
        self,
        shape: ModelShape,
        accelerator: Accelerator,
        parameters: PhysicsParameters,
        tensor_parallel: int = 1,
        expert_parallel: int = 1,
        bounds: MeasuredBounds | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        data_parallel = 1 if ranks is None else ranks.count
        part = shape.per_gpu(tensor_parallel, expert_parallel, data_parallel)
        kernels = Kernels(parameters, accelerator, shape.matmul_precision, shape.kv_bytes)
        self.kernels: Final = kernels
        self.tensor_parallel: Final = tensor_parallel
        self.expert_parallel: Final = expert_parallel
        self._ranks: Final = data_parallel
        self._backend: Final = "" if ranks is None else ranks.backend
        self._bounds: Final = bounds
        self._part: Final = part
        self._layers: Final = part.attention_layers
        self._kinds: Final = attention_kinds(part, kernels)
        self._heads: Final = part.heads
        self._routed_of: Final = shape.experts
        self._routed_to: Final = shape.experts_per_token
        self._index_gemms: Final = index_gemms(part)
        self._dense_gemms: Final = mlp_gemms(part, part.ffn)
        self._shared_gemms: Final = mlp_gemms(part, part.shared_ffn)
        if part.expert_hidden:
            across = [(part.expert_hidden, part.hidden), (part.hidden, part.expert_hidden)]
            self._shared_gemms.extend(across)
        self._recurrent_gemms: Final = part.recurrent_gemms if part.recurrent_layers else []
        self._state_bytes: Final = float(
            part.state_heads * part.state_head_dim * part.state_key_dim * part.state_bytes
        )
        passes = MAMBA_PASSES if part.recurrence == MAMBA2 else DELTA_PASSES
        self._scan_flops: Final = passes * part.state_head_dim * part.state_key_dim
        self._ramp_keys: Final[float] = parameters.attention_ramp_keys
        self._gemm_rates: Final = kernels.gemm_rates(part.weight_bytes)
        self._head_rates: Final = kernels.gemm_rates(part.embedding_bytes)
        self._expert_rates: Final = kernels.expert_rates(part.expert_weight_bytes)
        # Sparse attention works on the compressed vectors in prefill, too.
        expanded = 0 if part.is_sparse else part.latent_up_params
        self._latent_s: Final[float] = 2.0 * expanded / self._gemm_rates.flops
        indexed = part.indexers / part.attention_layers
        index_flops = 2.0 * part.index_heads * part.index_dim * indexed
        self._index_pair_s: Final[float] = index_flops / kernels.attention_flops
        self._index_key_s: Final[float] = max(part.index_bytes / kernels.hbm, self._index_pair_s)
        self._small_s: Final[float] = (
            parameters.layer_s
            + (parameters.latent_layer_s if part.is_latent else 0.0)
            + parameters.index_layer_s * indexed
        )
        self._tokens_s: Final[list[float]] = []
        self._shared_s: Final[dict[tuple[int, int], float]] = {}
        self._head_s: Final[list[float]] = []
        self._attention: Final = LineTable()
        self._steps: Final = LineTable()

    def step_s(self, work: StepWork) -> float:
        """GPU seconds of the step."""
        if not work.chunks and not work.drafted:
            if work.decodes == 0:
                return 0.0
            base, slope, _ = self.decode_line(work.decodes, work.context)
            return base + slope * work.context
        tokens = tokens_of(work)
        if self._ranks > 1:
            everywhere = tokens
            work = largest_share(work, self._ranks)
            time = self._rank_tokens_s(tokens_of(work), everywhere)
        else:
            time = self.tokens_s(tokens)
        time += self.head_s(work.samples)
        if work.chunks:
            time += self._prefill_s(work.chunks)
            if self._recurrent_gemms:
                time += self._scans_s(work.chunks)
        if work.decodes:
            base, slope, _ = self._attention_line(work.decodes, work.context, work.drafted)
            time += base + slope * work.context
        return time

    def decode_line(self, decodes: int, context: int) -> tuple[float, float, float]:
        """See `StepTimeModel`. Lines change where splitting starts or ends, where compute and
        memory cross, and where a window fills."""
        piece = self._steps.get(decodes)
        if piece is None:
            if self._ranks == 1:
                rest = self.tokens_s(decodes) + self.head_s(decodes)
                attention = self._decode_lines(decodes)
                lines = [(rest + base, slope, until) for base, slope, until in attention]
            else:
                lines = self._rank_lines(decodes)
            piece = self._steps.put(decodes, lines)
        return line_at(piece, context)

    def measured(self) -> MeasuredBounds | None:
        return self._bounds

    def tokens_s(self, tokens: int) -> float:
        """Everything in a step except attention and head, for this many tokens in all."""
        known = known_s(self._tokens_s, tokens)
        if known == UNKNOWN:
            known = self._layers_s(float(tokens), float(tokens)) + self._reduces_s(tokens)
            known += self.kernels.parameters.step_s
            keep_s(self._tokens_s, tokens, known)
        return known

    def _rank_tokens_s(self, tokens: int, everywhere: int) -> float:
        """The same on a rank that has `tokens` of the tokens on all ranks."""
        key = (tokens, everywhere)
        known = self._shared_s.get(key)
        if known is None:
            if len(self._shared_s) >= REMEMBERED:
                self._shared_s.clear()
            known = self._layers_s(float(tokens), float(everywhere)) + self._reduces_s(tokens)
            known += self._exchanges_s(tokens, everywhere) + self.kernels.parameters.step_s
            self._shared_s[key] = known
        return known

    def _rank_lines(self, decodes: int) -> list[tuple[float, float, float]]:
        """Lines of the rank with the most sequences, over the total context of all ranks."""
        own = (decodes + self._ranks - 1) // self._ranks
        share = own / decodes
        rest = self._rank_tokens_s(own, decodes) + self.head_s(own)
        return [
            (rest + base, slope * share, until / share)
            for base, slope, until in self._decode_lines(own)
        ]

    def head_s(self, samples: int) -> float:
        """The output head, for the sequences that produce a token."""
        if samples == 0:
            return 0.0
        known = known_s(self._head_s, samples)
        if known == UNKNOWN:
            part = self._part
            known = self.kernels.gemm_s(
                samples, part.vocab, part.hidden, part.embedding_bytes, self._head_rates
            )
            keep_s(self._head_s, samples, known)
        return known

    def parts_s(self, work: StepWork) -> dict[str, float]:
        """The seconds of a step by kind of operator; `rest` is the launch of small kernels, and
        gaps.

        Kinds are named as operator errors are in profiles. The traffic of small kernels and the
        reduced clock count as multiplications, since they are known from the same measured steps.
        """
        part = self._part
        whole_s = self.step_s(work)
        everywhere = float(tokens_of(work))
        work = largest_share(work, self._ranks)
        rows = float(tokens_of(work))
        dense, _ = self._gemms_s(rows, self._dense_gemms)
        shared, _ = self._gemms_s(rows, self._shared_gemms)
        routed = self._routed_s(everywhere) if part.moe_layers else 0.0
        index, _ = self._gemms_s(rows, self._index_gemms)
        gemm = part.indexers * index
        for kind in self._kinds:
            attention, _ = self._gemms_s(rows, kind.gemms)
            gemm += kind.layers * attention
        gemm += part.dense_layers * dense
        gemm += part.moe_layers * shared
        recurrent, _ = self._gemms_s(rows, self._recurrent_gemms)
        gemm += part.recurrent_layers * recurrent
        prefill = "sparse attention" if part.is_sparse else "prefill attention"
        found = {
            gemm_kind(part, self.kernels): gemm + self.head_s(work.samples),
            prefill: self._prefill_s(work.chunks) if work.chunks else 0.0,
        }
        for operator, seconds in self._recurrences_s(work):
            found[operator] = found.get(operator, 0.0) + seconds
        if part.moe_layers:
            found[expert_kind(part, self.kernels)] = part.moe_layers * routed
        if work.decodes:
            base, slope, _ = self._attention_line(work.decodes, work.context, work.drafted)
            operator = "decode attention" + (", fp8 cache" if part.kv_bytes < 2.0 else "")
            if part.is_latent:
                operator = "sparse attention" if part.is_sparse else "latent attention"
                base += part.layers * (self._small_s - self.kernels.parameters.layer_s)
            if self._recurrent_gemms:
                base -= self._updates_s(work.decodes, work.drafted)
            found[operator] = found.get(operator, 0.0) + base + slope * work.context
        found["all-reduce"] = self._reduces_s(int(rows))
        if self._ranks > 1:
            found["all-to-all"] = self._exchanges_s(int(rows), int(everywhere))
        p = self.kernels.parameters
        found["rest"] = p.step_s + part.layers * p.layer_s
        left = whole_s - math.fsum(found.values())
        found[gemm_kind(part, self.kernels)] += max(0.0, left)
        return found

    def _gemms_s(self, rows: float, shapes: list[tuple[int, int]]) -> tuple[float, float]:
        """(time, compute time at full clock) of these multiplications."""
        rates = self._gemm_rates
        weight_bytes = self._part.weight_bytes
        time = 0.0
        compute = 0.0
        for outputs, inputs in shapes:
            time += self.kernels.gemm_s(rows, outputs, inputs, weight_bytes, rates)
            compute += 2.0 * rows * outputs * inputs / rates.flops
        return time, compute

    def _layers_s(self, rows: float, everywhere: float) -> float:
        """All layers, for `rows` tokens; the experts also see those of the other ranks."""
        part = self._part
        p = self.kernels.parameters
        dense_layers, moe_layers = part.dense_layers, part.moe_layers
        width_s = p.elementwise_passes * rows * part.activation_bytes / self.kernels.hbm
        dense, dense_compute = self._gemms_s(rows, self._dense_gemms)
        mixture, mixture_compute = self._mixture_s(rows, everywhere) if moe_layers else (0.0, 0.0)
        time = compute = 0.0
        for kind in self._kinds:
            attention, attention_compute = self._gemms_s(rows, kind.gemms)
            time += kind.layers * (self._small_s + width_s * kind.width + attention)
            compute += kind.layers * attention_compute
        time += dense_layers * (dense + width_s * part.ffn)
        time += moe_layers * (mixture + width_s * part.shared_ffn)
        if part.indexers:
            index, index_compute = self._gemms_s(rows, self._index_gemms)
            time += part.indexers * index
            compute += part.indexers * index_compute
        if part.recurrent_layers:
            gemms, gemms_compute = self._gemms_s(rows, self._recurrent_gemms)
            wide = width_s * (part.hidden + self._recurrent_gemms[0][0])
            time += part.recurrent_layers * (self._small_s + wide + gemms)
            compute += part.recurrent_layers * gemms_compute
        compute += dense_layers * dense_compute + moe_layers * mixture_compute
        # A chip whose matrix units are mostly busy meets its power limit and lowers its clock.
        busy = compute / time
        if busy > p.power_knee:
            slower: float = (busy / p.power_knee) ** p.power_exponent
            time += compute * (slower - 1.0)
        return time

    def _mixture_s(self, rows: float, everywhere: float) -> tuple[float, float]:
        part = self._part
        kernels = self.kernels
        routed = self._routed_s(everywhere)
        shared, shared_compute = self._gemms_s(rows, self._shared_gemms)
        router = kernels.gemm_s(
            rows, self._routed_of, part.hidden, part.embedding_bytes, self._head_rates
        )
        pairs = everywhere * self._routed_to / self.expert_parallel
        compute = 2.0 * pairs * part.expert_params / self._expert_rates.flops
        return router + routed + shared, compute + shared_compute

    def _routed_s(self, rows: float) -> float:
        """One mixture layer's routed experts."""
        part = self._part
        share = part.experts / self._routed_of
        pairs, visited = busiest_rank(
            rows * self._routed_to / self.expert_parallel,
            share * touched_experts(rows, self._routed_of, self._routed_to),
            part.experts,
            self.expert_parallel,
        )
        return self.kernels.experts_s(
            pairs,
            visited,
            ffn=part.expert_ffn,
            hidden=part.expert_hidden or part.hidden,
            matrices=part.mlp_matrices,
            weight_bytes=part.expert_weight_bytes,
            rates=self._expert_rates,
        )

    def _reduces_s(self, tokens: int) -> float:
        """All-reduces of a tensor-parallel group: after attention, and after MLP or experts.

        Distributing whole experts within the group changes nothing: each GPU has all tokens
        already.
        """
        if self.tensor_parallel == 1:
            return 0.0
        part = self._part
        message = tokens * part.hidden * part.activation_bytes
        sums = 2.0 * part.layers - part.bare_layers
        return sums * self.kernels.all_reduce_s(message, self.tensor_parallel)

    def _exchanges_s(self, tokens: int, everywhere: int) -> float:
        """Dispatch of all ranks' tokens to the experts, and combination of the results."""
        part = self._part
        if self._backend in EXCHANGES:
            once = self.kernels.exchange_s(
                self._backend, float(tokens), part.hidden, self._routed_to, self._ranks
            )
        else:
            message = everywhere * part.hidden * part.activation_bytes
            once = 2.0 * self.kernels.gather_s(message, self._ranks)
        return part.moe_layers * once

    def _recurrences_s(self, work: StepWork) -> list[tuple[str, float]]:
        """The work of recurrent layers besides their projections, by kind of operator."""
        part = self._part
        layers = part.recurrent_layers
        if layers == 0:
            return []
        found = []
        kernels, channels = self.kernels, 2.0 * part.state_channels
        if work.decodes:
            queries = 1.0 + work.drafted / work.decodes
            update = kernels.state_update_s(work.decodes, self._state_bytes, queries)
            moved = channels * (work.decodes + work.drafted) * part.convolution
            found.append(("recurrent decode", layers * update))
            found.append(("convolution", layers * kernels.convolution_s(moved)))
        if work.chunks:
            prompts = [new for new, _, _ in work.chunks]
            scan = kernels.state_scan_s(prompts, part.state_heads, self._scan_flops)
            moved = channels * sum(prompts)
            found.append(("recurrent prefill", layers * scan))
            found.append(("convolution", layers * kernels.convolution_s(moved)))
        if part.recurrence == MAMBA2:
            return [("state space", seconds) for _, seconds in found]
        return found

    def _updates_s(self, decodes: int, drafted: int) -> float:
        """Recurrences of decoding sequences, in all layers."""
        parts = self._recurrences_s(StepWork([], decodes, 0, 0, drafted))
        return parts[0][1] + parts[1][1]

    def _scans_s(self, chunks: list[tuple[int, int, int]]) -> float:
        """Recurrences of the prompt tokens, in all layers."""
        parts = self._recurrences_s(StepWork(chunks, 0, 0, 0))
        return parts[0][1] + parts[1][1]

    def _prefill_s(self, chunks: list[tuple[int, int, int]]) -> float:
        """Attention of the prompt tokens: one kernel over all chunks in every layer."""
        tiles = 0.0
        longest = 0
        for chunk in chunks:
            new, cached = chunk[0], chunk[1]
            tiles += (new + SPLIT_ROWS - 1) // SPLIT_ROWS * self._heads
            if new + cached > longest:
                longest = new + cached
        p = self.kernels.parameters
        parts = self.kernels.splits(float(longest), tiles)
        call = p.attention_call_s + p.attention_split_s * (parts - 1.0)
        index = 0.0
        if self._index_pair_s:
            for new, cached, _ in chunks:
                index += new * (cached + 0.5 * (new + 1)) * self._index_pair_s
        time = self._layers * (call + index)
        for kind in self._kinds:
            whole = kind.layers - kind.window_layers
            full = 0.0
            windowed = 0.0
            for chunk in chunks:
                new, cached = chunk[0], chunk[1]
                if whole:
                    full += self._chunk_s(kind, new, cached, new + cached)
                if kind.window_layers:
                    windowed += self._chunk_s(kind, new, cached, kind.window)
            time += whole * full
            time += kind.window_layers * windowed
        return time

    def _chunk_s(self, kind: AttentionLayers, new: int, cached: int, window: int) -> float:
        """Attention of one layer, where each of the new tokens sees at most `window` others and
        itself."""
        growing = window - cached
        if growing > new:
            growing = new
        elif growing < 0:
            growing = 0
        pairs = growing * cached + 0.5 * growing * (growing + 1) + (new - growing) * float(window)
        seen = cached if cached < window else window
        padding = 1.0 if new >= SPLIT_ROWS else SPLIT_ROWS / new
        pairs += new * self._ramp_keys
        compute = pairs * padding * kind.pair_s + seen * self._latent_s
        memory = (new + seen) * kind.key_s
        return compute if compute > memory else memory

    def _attention_line(
        self, decodes: int, context: int, drafted: int
    ) -> tuple[float, float, float]:
        piece = self._attention.get(decodes, drafted)
        if piece is None:
            lines = self._decode_lines(decodes, drafted)
            piece = self._attention.put(decodes, lines, drafted)
        return line_at(piece, context)

    def _decode_lines(self, decodes: int, drafted: int = 0) -> list[tuple[float, float, float]]:
        """Decode attention of all layers as lines over the total context."""
        found = self._kind_lines(self._kinds[0], decodes, drafted)
        for kind in self._kinds[1:]:
            found = summed(found, self._kind_lines(kind, decodes, drafted))
        if self._recurrent_gemms:
            state_s = self._updates_s(decodes, drafted)
            found = [(base + state_s, slope, until) for base, slope, until in found]
        return found

    def _kind_lines(self, kind: AttentionLayers, decodes: int, drafted: int) -> list[Line]:
        """The same of layers of one kind.

        The drafts of a sequence are further query rows over the same keys, which are read once.
        """
        limit = self.kernels.split_limit(decodes, kind.kv_heads)
        queries = 1.0 + drafted / decodes
        group = queries * (self._heads // kind.kv_heads)
        latent = self._part.is_latent
        flops = self.kernels.latent_flops if latent else self.kernels.attention_flops
        compute = self.kernels.decode_compute_s(queries * kind.decode_flops, group, limit, flops)
        memory = kind.key_s
        knots = []
        if limit > 1.0:
            knots += [float(SPLIT_KEYS * decodes), SPLIT_KEYS * decodes * limit]
        if memory > compute:
            # Compute includes the start and the end of each scan, so it leads for short contexts.
            ramp = compute * self._ramp_keys
            knots.append((ramp - memory) * decodes / (memory - compute))
        if kind.window_layers:
            knots.append(float(kind.window * decodes))
        lines = []
        start = 0.0
        for knot in [*sorted(knots), math.inf]:
            until = float(math.ceil(knot)) if knot < math.inf else knot
            if until <= start:
                continue
            inside = 0.5 * (start + until) if until < math.inf else start + 1.0
            base, slope = self._decode_segment(kind, decodes, inside, limit, compute, memory)
            lines.append((base, slope, until))
            start = until
        return lines

    def _decode_segment(
        self,
        kind: AttentionLayers,
        decodes: int,
        inside: float,
        limit: float,
        compute: float,
        memory: float,
    ) -> tuple[float, float]:
        """(base, slope) of the line around the total context `inside`."""
        p = self.kernels.parameters
        base = kind.layers * p.decode_call_s
        slope = 0.0
        per_split = kind.layers * p.attention_split_s
        parts = inside / (SPLIT_KEYS * decodes)
        if limit > 1.0 and parts > 1.0:
            if parts < limit:
                base -= per_split
                slope += per_split / (SPLIT_KEYS * decodes)
            else:
                base += per_split * (limit - 1.0)
        seeing = kind.layers
        window = float(kind.window * decodes)
        if kind.window_layers and inside > window:
            seeing -= kind.window_layers
            kept, per_token = self._scan_line(window, decodes, compute, memory)
            base += kind.window_layers * (kept + per_token * window)
        slope += kind.layers * self._index_key_s
        kept, per_token = self._scan_line(inside, decodes, compute, memory)
        return base + seeing * kept, slope + seeing * per_token

    def _scan_line(
        self, context: float, decodes: int, compute: float, memory: float
    ) -> tuple[float, float]:
        """(base, slope) of one layer's pass over the cache: the longer of computing and reading."""
        ramp = self._ramp_keys * decodes
        if compute * (context + ramp) > memory * (context + decodes):
            return compute * ramp, compute
        return memory * decodes, memory

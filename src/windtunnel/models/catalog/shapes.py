"""The shape of a transformer language model, and the parameters and bytes derived from it.

A `ModelShape` holds facts only (layers, widths, precisions). What a step-time or capacity model
needs is derived from them, for the whole model or, through `ModelShape.per_gpu`, for the part that
one GPU of a tensor-parallel group holds.
"""

from __future__ import annotations

import msgspec

from windtunnel.core.errors import InputError

__all__ = ["ModelShape", "encoder_params"]


GATED_DELTA_NET, MAMBA2 = "gated-delta-net", "mamba2"
"""Kinds of recurrent layers, which keep a state of fixed size instead of keys and values."""

PLAIN_BYTES = 2.0  # of a number that is not quantised; servers load even 32-bit ones as 16-bit
INDEX_SCALE_BYTES = 4


def encoder_params(layers: int, width: int) -> int:
    """Approximate parameters of an encoder: four attention matrices, and an MLP of four times the
    width."""
    return 12 * layers * width * width


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one decoder; experts, latent attention, windows and recurrent layers are optional.

    A layer is attention or a recurrence, followed by an MLP or experts unless it is bare.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  # width of a dense MLP; in a mixture, that of its dense layers
    vocab: int
    max_context: int  # longest sequence, rope scaling applied
    tied_embeddings: bool = False  # input table and output head are one matrix
    mlp_matrices: int = 3  # gated (gate, up, down); 2 in older designs without a gate
    bare_layers: int = 0  # layers without an MLP or experts
    gated_attention: bool = False  # the output passes a gate that is as wide as the queries

    weight_bytes: float = 2.0  # stored bytes per parameter of attention and dense MLP matrices
    expert_weight_bytes: float = 2.0  # the same for routed experts, often quantised further
    embedding_bytes: float = 2.0  # input table, output head, router, norms: rarely quantised
    activation_bytes: float = 2.0
    kv_bytes: float = 2.0  # per cached number
    matmul_precision: str = (
        "bf16"  # what the matrix multiplications compute in: bf16, fp8, fp4, int8
    )

    experts: int = 0  # routed experts per mixture layer; 0: a dense model
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0  # summed width of the experts every token passes
    dense_prefix_layers: int = 0  # leading layers without experts
    moe_layer_step: int = 1  # of the rest, every n-th has experts
    expert_hidden: int = 0  # width that experts work in, where it is not the model's

    q_lora_rank: int = 0  # multi-head latent attention; 0: queries are projected directly
    kv_lora_rank: int = 0  # 0: ordinary (grouped-query) attention
    qk_rope_dim: int = 0
    qk_nope_dim: int = 0
    v_head_dim: int = 0

    window: int = 0  # tokens a sliding-window layer looks back
    window_layers: int = 0  # how many layers do so
    full_kv_heads: int = 0  # of full-attention layers, where windowed ones have others; 0: the same
    full_head_dim: int = 0  # the same for the width of their queries, keys and values

    index_heads: int = 0  # sparse attention: an indexer picks the tokens that latents attend to
    index_dim: int = 0
    index_topk: int = 0  # how many tokens it picks
    index_layers: int = 0  # layers that have one, while the others share its picks; 0: all

    recurrent_layers: int = 0  # layers with a recurrence instead of attention
    recurrence: str = ""  # its kind: gated-delta-net or mamba2
    state_heads: int = 0  # each with a matrix of state, state_key_dim by state_head_dim
    state_head_dim: int = 0
    state_key_heads: int = 0  # heads or groups that share their keys and queries
    state_key_dim: int = 0
    state_bytes: float = 4.0  # per number of the state
    convolution: int = 4  # tokens that the convolution before a recurrence sees

    mtp_layers: int = 0  # for multi-token prediction, besides `layers`; they draft, if enabled
    encoder_params: int = 0  # of vision or audio, beside the language model; 16-bit

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "max_context")
        for field in sizes:
            if getattr(self, field) < 1:
                self._refuse(f"{field} is {getattr(self, field)}", f"{field} of 1 or more")
        if self.heads % self.kv_heads:
            what = (
                f"{self.heads} attention heads cannot share {self.kv_heads} key-value heads evenly"
            )
            self._refuse(what, "a number of key-value heads that divides the heads")
        if self.full_kv_heads and self.heads % self.full_kv_heads:
            what = (
                f"{self.heads} attention heads cannot share {self.full_kv_heads} key-value heads "
                "of full-attention layers evenly"
            )
            self._refuse(what, "a number of key-value heads that divides the heads")
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            what = f"{self.experts_per_token} experts per token of {self.experts} experts"
            self._refuse(what, f"1 to {self.experts} experts per token")
        if not 0 <= self.window_layers <= self.layers:
            what = f"{self.window_layers} sliding-window layers of {self.layers}"
            self._refuse(what, f"0 to {self.layers}")
        if not 0 <= self.bare_layers <= self.layers:
            what = f"{self.bare_layers} layers without an MLP of {self.layers}"
            self._refuse(what, f"0 to {self.layers}")
        if self.recurrent_layers:
            self._check_recurrence()

    def _check_recurrence(self) -> None:
        if not 0 < self.recurrent_layers < self.layers:
            what = f"{self.recurrent_layers} recurrent layers of {self.layers}"
            self._refuse(what, f"0 to {self.layers - 1}: without attention it is not modelled")
        if self.window_layers or self.is_latent:
            other = "sliding-window" if self.window_layers else "latent"
            self._refuse(f"recurrent layers beside {other} attention", "full attention beside them")
        for field in ("state_heads", "state_head_dim", "state_key_heads", "state_key_dim"):
            if getattr(self, field) < 1:
                self._refuse(f"{field} is {getattr(self, field)}", f"{field} of 1 or more")
        if self.state_heads % self.state_key_heads:
            what = f"{self.state_heads} state heads cannot share {self.state_key_heads} keys evenly"
            self._refuse(what, "a number of key heads that divides the state heads")

    def _refuse(self, what: str, allowed: str) -> None:
        raise InputError(what, where=f"model {self.name}", allowed=allowed)

    @property
    def is_mixture(self) -> bool:
        return self.experts > 0

    @property
    def is_latent(self) -> bool:
        """Latent attention: one compressed key-value vector per token, shared by all heads."""
        return self.kv_lora_rank > 0

    @property
    def is_sparse(self) -> bool:
        """Sparse attention: an indexer reads the whole context, and attention the tokens that it
        picks."""
        return self.index_topk > 0

    @property
    def moe_layers(self) -> int:
        if not self.is_mixture:
            return 0
        behind = self.layers - self.bare_layers - self.dense_prefix_layers
        return max(0, behind) // self.moe_layer_step

    @property
    def dense_layers(self) -> int:
        return self.layers - self.bare_layers - self.moe_layers

    @property
    def attention_layers(self) -> int:
        return self.layers - self.recurrent_layers

    @property
    def full_layers(self) -> int:
        """Layers that attend to the whole context."""
        return self.attention_layers - self.window_layers

    @property
    def of_full_layers(self) -> ModelShape:
        """The shape with the heads of full-attention layers, where windowed ones have others."""
        if not (self.full_kv_heads or self.full_head_dim):
            return self
        return msgspec.structs.replace(
            self,
            kv_heads=self.full_kv_heads or self.kv_heads,
            head_dim=self.full_head_dim or self.head_dim,
            full_kv_heads=0,
            full_head_dim=0,
        )

    # Parameters of the parts, each of one layer unless stated otherwise; those of attention are
    # of a windowed layer, where full-attention layers have other heads.

    @property
    def attention_params(self) -> int:
        if not self.is_latent:
            gate = self.heads if self.gated_attention else 0
            return self.hidden * self.head_dim * (2 * self.heads + gate + 2 * self.kv_heads)
        query_dim = self.heads * (self.qk_nope_dim + self.qk_rope_dim)
        query = self.hidden * query_dim
        if self.q_lora_rank:
            query = self.q_lora_rank * (self.hidden + query_dim)
        down = self.hidden * (self.kv_lora_rank + self.qk_rope_dim)
        out = self.heads * self.v_head_dim * self.hidden
        return query + down + self.latent_up_params + out

    @property
    def all_attention_params(self) -> int:
        """Parameters of attention in all layers."""
        windowed = self.window_layers * self.attention_params
        return windowed + self.full_layers * self.of_full_layers.attention_params

    @property
    def indexers(self) -> int:
        """Layers that have an indexer."""
        return (self.index_layers or self.attention_layers) if self.is_sparse else 0

    @property
    def index_params(self) -> int:
        """One indexer of sparse attention: queries and a weight for each of its heads, and a
        key."""
        if not self.is_sparse:
            return 0
        queries = self.q_lora_rank * self.index_heads * self.index_dim
        return queries + self.hidden * (self.index_dim + self.index_heads)

    @property
    def latent_up_params(self) -> int:
        """The matrices that expand a compressed vector into keys and values; 0 without latent
        attention."""
        return self.kv_lora_rank * self.heads * (self.qk_nope_dim + self.v_head_dim)

    @property
    def state_channels(self) -> int:
        """Numbers per token that pass through a recurrent layer's convolution: queries, keys,
        values."""
        keys = self.state_key_heads * self.state_key_dim
        return 2 * keys + self.state_heads * self.state_head_dim

    @property
    def recurrent_gemms(self) -> list[tuple[int, int]]:
        """(outputs, inputs) of the projections around one layer's recurrence.

        The first produces the convolved channels, a gate as wide as the values, and two numbers per
        head.
        """
        values = self.state_heads * self.state_head_dim
        into = self.state_channels + values + 2 * self.state_heads
        return [(into, self.hidden), (self.hidden, values)]

    @property
    def recurrent_params(self) -> int:
        if not self.recurrent_layers:
            return 0
        return sum(outputs * inputs for outputs, inputs in self.recurrent_gemms)

    def state_layer_bytes(self, drafts: int = 0) -> float:
        """Bytes that one sequence keeps in one recurrent layer, whatever its length.

        The convolution keeps its last tokens, and the drafted ones.
        """
        state = self.state_heads * self.state_head_dim * self.state_key_dim * self.state_bytes
        kept = self.convolution - 1 + drafts
        return state + kept * self.state_channels * self.activation_bytes

    @property
    def mixer_params(self) -> int:
        """Parameters of attention and recurrences in all layers."""
        index = self.indexers * self.index_params
        return self.all_attention_params + index + self.recurrent_layers * self.recurrent_params

    @property
    def dense_mlp_params(self) -> int:
        return self.mlp_matrices * self.hidden * self.ffn

    @property
    def expert_params(self) -> int:
        """Parameters of one routed expert."""
        return self.mlp_matrices * (self.expert_hidden or self.hidden) * self.expert_ffn

    @property
    def shared_params(self) -> int:
        """Parameters that every token of a mixture layer passes, including projections to the
        experts' width."""
        width = 2 * self.hidden * self.expert_hidden
        return self.mlp_matrices * self.hidden * self.shared_ffn + width

    @property
    def router_params(self) -> int:
        return self.hidden * self.experts

    @property
    def head_params(self) -> int:
        """Parameters of the whole output head."""
        return self.hidden * self.vocab

    @property
    def embedding_params(self) -> int:
        """Parameters of input table and output head; counted once if they are tied."""
        return self.head_params * (1 if self.tied_embeddings else 2)

    @property
    def norm_params(self) -> int:
        """Parameters of all norms of the model."""
        return (2 * self.layers - self.bare_layers + 1) * self.hidden

    @property
    def params(self) -> int:
        """Total parameters. Biases are omitted: under a thousandth of any model."""
        per_moe = self.experts * self.expert_params + self.shared_params + self.router_params
        return (
            self.mixer_params
            + self.dense_layers * self.dense_mlp_params
            + self.moe_layers * per_moe
            + self.embedding_params
            + self.norm_params
        )

    @property
    def active_params(self) -> int:
        """Parameters that one token passes, including the output head; the input table is a
        lookup."""
        idle = self.experts - self.experts_per_token
        lookup = 0 if self.tied_embeddings else self.head_params
        return self.params - self.moe_layers * idle * self.expert_params - lookup

    @property
    def total_weight_bytes(self) -> float:
        """Bytes of all weights in memory."""
        matrices = (
            self.mixer_params
            + self.dense_layers * self.dense_mlp_params
            + self.moe_layers * self.shared_params
        )
        experts = self.moe_layers * self.experts * self.expert_params
        rest = self.embedding_params + self.norm_params + self.moe_layers * self.router_params
        return (
            matrices * self.weight_bytes
            + experts * self.expert_weight_bytes
            + rest * self.embedding_bytes
            + self.encoder_params * PLAIN_BYTES
        )

    @property
    def kv_bytes_per_token_layer(self) -> float:
        """Bytes that one token adds to the KV cache in one layer; a windowed one, where
        full-attention layers have other heads.

        Where keys serve as values (Gemma 4's full-attention layers), vLLM still loads and caches
        both: keys are rotated, values are not, and each has its own norm.
        """
        if not self.is_latent:
            return 2 * self.kv_heads * self.head_dim * self.kv_bytes
        if not self.is_sparse or self.kv_bytes >= PLAIN_BYTES:
            latent = (self.kv_lora_rank + self.qk_rope_dim) * self.kv_bytes
        else:
            # Sparse kernels keep the rotated part in 16 bits, and a scale for each 128 numbers.
            scales = self.kv_lora_rank / 128 * INDEX_SCALE_BYTES
            latent = self.kv_lora_rank + scales + self.qk_rope_dim * PLAIN_BYTES
        return latent + self.index_bytes

    @property
    def index_bytes(self) -> float:
        """The bytes among them that the indexer of sparse attention reads for every token, on
        average over the layers."""
        if not self.is_sparse:
            return 0.0
        return (self.index_dim + INDEX_SCALE_BYTES) * self.indexers / self.attention_layers

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that one token adds to the KV cache, in all layers."""
        windowed = self.window_layers * self.kv_bytes_per_token_layer
        return windowed + self.full_layers * self.of_full_layers.kv_bytes_per_token_layer

    @property
    def prefill_pair_flops(self) -> int:
        """FLOPs of one layer's attention for one (query, key) pair during prefill."""
        if self.is_latent:
            return 2 * self.heads * (self.qk_nope_dim + self.qk_rope_dim + self.v_head_dim)
        return 4 * self.heads * self.head_dim

    @property
    def decode_pair_flops(self) -> int:
        """The same during decode, where latent attention works on the compressed vectors."""
        if self.is_latent:
            return 2 * self.heads * (2 * self.kv_lora_rank + self.qk_rope_dim)
        return 4 * self.heads * self.head_dim

    def per_gpu(
        self, tensor_parallel: int, expert_parallel: int = 1, data_parallel: int = 1
    ) -> ModelShape:
        """The part that one GPU holds: heads, MLP widths and vocabulary are divided by
        `tensor_parallel`.

        Key-value heads are replicated if there are more GPUs than heads, and so are the vectors of
        latent attention. Routed experts are divided over all GPUs, including those of other
        `data_parallel` ranks; with `expert_parallel` above 1 whole experts are distributed instead.
        """
        tp = tensor_parallel
        if tp == 1 and expert_parallel == 1 and data_parallel == 1:
            return self
        self._check_parallel(tp, expert_parallel)
        whole_experts = expert_parallel > 1
        experts = -(-self.experts // expert_parallel)
        return msgspec.structs.replace(
            self,
            name=self.name if tp == 1 else f"{self.name}-tp{tp}-slice",
            heads=self.heads // tp,
            kv_heads=max(1, self.kv_heads // tp),
            full_kv_heads=max(1, self.full_kv_heads // tp) if self.full_kv_heads else 0,
            ffn=-(-self.ffn // tp),
            vocab=-(-self.vocab // tp),
            experts=experts,
            experts_per_token=min(self.experts_per_token, experts),
            expert_ffn=(
                self.expert_ffn if whole_experts else -(-self.expert_ffn // (tp * data_parallel))
            ),
            shared_ffn=-(-self.shared_ffn // tp),
            encoder_params=-(-self.encoder_params // tp),
            state_heads=self.state_heads // tp,
            state_key_heads=max(1, self.state_key_heads // tp) if self.recurrent_layers else 0,
        )

    def per_stage(self, stages: int) -> ModelShape:
        """The largest part that a pipeline stage holds: its layers, and one embedding matrix."""
        if stages == 1:
            return self
        if stages > self.layers:
            what = f"pipeline_parallel is {stages} but the model has {self.layers} layers"
            self._refuse(what, f"1 to {self.layers}")
        return msgspec.structs.replace(
            self,
            layers=-(-self.layers // stages),
            dense_prefix_layers=0,
            window_layers=-(-self.window_layers // stages),
            index_layers=-(-self.index_layers // stages),
            recurrent_layers=min(
                -(-self.recurrent_layers // stages), -(-self.layers // stages) - 1
            ),
            bare_layers=self.bare_layers // stages,
            tied_embeddings=True,
            encoder_params=0,
        )

    def _check_parallel(self, tp: int, ep: int) -> None:
        if tp < 1 or self.heads % tp:
            what = f"tensor_parallel is {tp} but the model has {self.heads} attention heads"
            self._refuse(what, f"a divisor of {self.heads}")
        for kv_heads in (self.kv_heads, self.full_kv_heads or self.kv_heads):
            if kv_heads % tp and tp % kv_heads:
                what = f"tensor_parallel is {tp} but the model has {kv_heads} key-value heads"
                self._refuse(what, f"a divisor or a multiple of {kv_heads}")
        if self.state_heads % tp:
            what = f"tensor_parallel is {tp} but the model has {self.state_heads} state heads"
            self._refuse(what, f"a divisor of {self.state_heads}")
        if ep < 1 or (ep > 1 and ep > self.experts):
            what = f"expert_parallel is {ep} but the model has {self.experts} experts"
            self._refuse(what, f"1 to {max(1, self.experts)}")

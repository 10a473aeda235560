"""Profiles from operator tables: what made the timings is found; bad tables get a sentence."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.truth.aiter import write_tables as write_tables_of_aiter

from windtunnel.core.errors import InputError
from windtunnel.models.calibration.latent import latent_module_s, sparse_module_s
from windtunnel.models.calibration.operators import fit_operators
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.step_time.kernels import Kernels
from windtunnel.models.step_time.profile import Profile, load_profile

A100 = resolve_accelerator("a100")


def write_tables(folder: Path, profile: Profile) -> None:
    kernels = Kernels(profile.physics_parameters(), A100)
    rows = []
    for m in (1, 8, 64, 128, 512, 2048, 8192):
        for n, k in ((4096, 4096), (28672, 4096), (4096, 14336), (1024, 8192), (16384, 8192)):
            latency = kernels.gemm_s(m, n, k, 2.0, kernels.gemm_rates(2.0)) * 1e3
            rows.append({"gemm_dtype": "bfloat16", "m": m, "n": n, "k": k, "latency": latency})
    pq.write_table(pa.Table.from_pylist(rows), folder / "gemm_perf.parquet")
    messages = [
        {
            "backend": "vllm_graph",
            "num_gpus": gpus,
            "message_size": size,
            "latency": kernels.all_reduce_s(2.0 * size, gpus) * 1e3,
        }
        for gpus in (2, 8)
        for size in (1024, 1 << 20, 1 << 26)
    ]
    table = pa.Table.from_pylist(messages)
    pq.write_table(table, folder / "custom_allreduce_perf.parquet")


def test_operator_timings_give_back_what_made_them(tmp_path: Path) -> None:
    made = load_profile("a100")
    write_tables(tmp_path, made)
    fitted = fit_operators(tmp_path, A100, load_profile("generic"), name="a", origin="made up")
    decided = ("gemm_efficiency", "gemm_bandwidth", "gemm_blend", "all_reduce_efficiency")
    for name in decided:
        assert fitted.parameters[name] == pytest.approx(made.parameters[name], rel=0.02)
    assert fitted.parameters["layer_s"] == load_profile("generic").parameters["layer_s"]
    assert fitted.errors["operators"]["gemm"].mape < 0.005
    assert fitted.errors["operators"]["gemm"].points == 35
    assert fitted.measured == {"tokens": 8192}


def test_an_all_reduce_is_nccls_where_that_is_faster(tmp_path: Path) -> None:
    """As on GB200s, where it takes a third of the time of the kernel for small messages."""
    made = load_profile("a100")
    write_tables(tmp_path, made)
    path = tmp_path / "custom_allreduce_perf.parquet"
    messages = pq.read_table(path).to_pylist()
    of_nccl = [
        {
            "op_name": name,
            "nccl_dtype": dtype,
            "num_gpus": row["num_gpus"],
            "message_size": row["message_size"],
            "latency": row["latency"] if usual else 1e-3,
        }
        for row in messages
        for name, dtype, usual in (
            ("all_reduce", "half", True),
            ("all_reduce", "int8", False),
            ("all_gather", "half", False),
        )
        if row["message_size"] > 1024
    ]
    pq.write_table(pa.Table.from_pylist(of_nccl), tmp_path / "nccl_perf.parquet")
    slow = [
        {**row, "latency": row["latency"] * (3.0 if row["message_size"] > 1024 else 1.0)}
        for row in messages
    ]
    pq.write_table(pa.Table.from_pylist(slow), path)
    fitted = fit_operators(tmp_path, A100, load_profile("generic"), name="a", origin="made up")
    wanted = made.parameters["all_reduce_efficiency"]
    assert fitted.parameters["all_reduce_efficiency"] == pytest.approx(wanted, rel=0.02)
    assert fitted.errors["operators"]["all-reduce"].points == len(messages)


def test_kernels_of_recurrent_layers_give_back_what_made_them(tmp_path: Path) -> None:
    made = load_profile("h200")
    h200 = resolve_accelerator("h200")
    kernels = Kernels(made.physics_parameters(), h200)
    rows = []
    for heads in (8, 64):
        shape = {"num_k_heads": 8, "head_k_dim": 128, "num_v_heads": heads, "head_v_dim": 128}
        channels = 128 * (16 + heads)
        for batch, tokens in ((1, 1), (64, 1), (256, 1), (1, 64), (1, 8192), (16, 512), (64, 128)):
            alone = tokens == 1
            update = kernels.state_update_s(batch, 4.0 * heads * 128 * 128)
            scan = kernels.state_scan_s([tokens] * batch, heads, 6.0 * 128 * 128)
            moved = 2.0 * batch * tokens * channels * (4 if alone else 1)
            for kernel, seconds in (
                ("fused_recurrent_x" if alone else "chunk_x", update if alone else scan),
                ("causal_conv1d_x", kernels.convolution_s(moved)),
            ):
                sizes = {"batch_size": batch, "seq_len": tokens, "num_tokens": batch * tokens}
                words = {"kernel_source": kernel, "phase": "generation" if alone else "context"}
                rows.append(words | sizes | shape | {"d_conv": 4, "latency": 1e3 * seconds})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "gdn_perf.parquet")
    fitted = fit_operators(tmp_path, h200, load_profile("generic"), name="h", origin="made up")
    for name, value in made.parameters.items():
        if name.startswith(("recurrent", "convolution")):
            assert fitted.parameters[name] == pytest.approx(value, rel=0.02), name
    assert set(fitted.errors["operators"]) == {
        "recurrent decode",
        "recurrent prefill",
        "convolution",
    }


def test_modules_of_latent_attention_give_back_their_small_kernels(tmp_path: Path) -> None:
    """Those of vLLM's tables with an indexer do not count: they have norms of many kernels."""
    made = load_profile("b200-sglang")
    b200 = resolve_accelerator("b200")
    kernels = Kernels(made.physics_parameters(), b200, "fp8")
    sizes = [
        {"batch_size": batch, "isl": isl, "step": step, "num_heads": heads}
        for batch in (1, 4, 64)
        for heads in (16, 128)
        for isl, step in ((512, 0), (1, 8191))
    ]
    fp8 = {"gemm_type": "fp8_block", "kernel_source": "x"}
    modules = [row | fp8 | {"kv_cache_dtype": "fp8"} for row in sizes if row["step"] == 0]
    latent = [row | {"latency": 1e3 * latent_module_s(kernels, row)} for row in modules]
    pq.write_table(pa.Table.from_pylist(latent), tmp_path / "wideep_generation_mla_perf.parquet")
    words = fp8 | {"kv_cache_dtype": "bfloat16", "architecture": "DeepseekV32ForCausalLM"}
    sparse = [
        row | words | {"framework": framework, "latency": times * sparse_module_s(kernels, row)}
        for row in sizes
        for framework, times in (("SGLang", 1e3), ("VLLM", 3e3))
        if row["step"] > 0
    ]
    pq.write_table(pa.Table.from_pylist(sparse), tmp_path / "dsa_generation_module_perf.parquet")
    small = {"latent_layer_s": 3e-5, "index_layer_s": 6e-5}
    rest = msgspec.structs.replace(made, parameters={**made.parameters, **small})
    fitted = fit_operators(tmp_path, b200, rest, name="b", origin="made up")
    for name in small:
        assert fitted.parameters[name] == pytest.approx(made.parameters[name], rel=0.02)
    assert {kind: one.points for kind, one in fitted.errors["operators"].items()} == {
        "latent attention": 6,
        "sparse attention": 6,
    }


def test_experts_drawn_by_chance_are_more_than_popular_ones(tmp_path: Path) -> None:
    """Timings with random experts give back what made them, which those of a power law would not
    with as many experts."""
    made = load_profile("mi355x")
    mi355x = resolve_accelerator("mi355x")
    kernels = Kernels(made.physics_parameters(), mi355x, "fp4")
    rates = kernels.expert_rates(0.5625)
    rows = []
    for tokens in (1, 4, 16, 64, 256, 1024, 4096):
        for hidden, inter, experts, visits in ((7168, 2048, 256, 8), (4096, 1024, 512, 10)):
            seconds = kernels.experts_s(
                tokens * visits,
                experts * (1.0 - (1.0 - visits / experts) ** tokens),
                ffn=inter,
                hidden=hidden,
                matrices=3,
                weight_bytes=0.5625,
                rates=rates,
            )
            sizes = {"num_tokens": tokens, "hidden_size": hidden, "inter_size": inter}
            kind = {"moe_dtype": "nvfp4", "distribution": "chance", "kernel_source": "x"}
            split = {"topk": visits, "num_experts": experts, "moe_tp_size": 1, "moe_ep_size": 1}
            rows.append(sizes | kind | split | {"latency": 1e3 * seconds})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "moe_perf.parquet")
    fitted = fit_operators(tmp_path, mi355x, load_profile("generic"), name="m", origin="made up")
    error = fitted.errors["operators"]["experts in fp4"].mape
    assert error < 0.025
    popular = [{**row, "distribution": "power_law_1.01"} for row in rows]
    pq.write_table(pa.Table.from_pylist(popular), tmp_path / "moe_perf.parquet")
    other = fit_operators(tmp_path, mi355x, load_profile("generic"), name="m", origin="made up")
    assert other.errors["operators"]["experts in fp4"].mape > 2.0 * error


def test_timings_of_aiter_become_tables(tmp_path: Path) -> None:
    """Of the MI355X alone, the fastest of each shape; other GPUs and kinds of scales are left
    out."""
    configs = tmp_path / "aiter" / "configs"
    configs.mkdir(parents=True)
    (configs / "a4w4_blockscale_tuned_gemm.csv").write_text(
        "gfx,cu_num,M,N,K,us\n"
        "gfx950,256,1,8192,8192,14.5\n"
        "gfx950,256,1,8192,8192,14.0\n"
        "gfx942,304,1,8192,8192,99.0\n"
    )
    (configs / "a4w4_blockscale_untuned_gemm.csv").write_text("M,N,K\n1,8192,8192\n")
    scales = "cu_num,token,model_dim,inter_dim,expert,topk,q_dtype_a,q_dtype_w,q_type,use_g1u1,us\n"
    fp4 = "torch.float4_e2m1fn_x2"
    (configs / "dsv3_fp4_tuned_fmoe.csv").write_text(
        f"{scales}256,32,7168,2048,32,8,{fp4},{fp4},QuantType.per_1x32,1,129.2\n"
        f"80,32,7168,2048,32,8,{fp4},{fp4},QuantType.per_1x32,1,500.0\n"
        f"256,32,7168,2048,32,8,{fp4},{fp4},QuantType.per_Tensor,1,90.0\n"
    )
    write_tables_of_aiter(tmp_path, tmp_path)
    gemms = pq.read_table(tmp_path / "gemm_perf.parquet").to_pylist()
    assert [(row["gemm_dtype"], row["m"], row["latency"]) for row in gemms] == [
        ("nvfp4", 1, pytest.approx(0.014))
    ]
    experts = pq.read_table(tmp_path / "moe_perf.parquet").to_pylist()
    assert [(row["moe_dtype"], row["num_tokens"], row["latency"]) for row in experts] == [
        ("nvfp4", 32, pytest.approx(0.1292))
    ]


def test_a_folder_without_tables_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"no operator table with usable rows was found; allowed: gemm_perf.parquet",
    ):
        fit_operators(tmp_path, A100, load_profile("generic"), name="a", origin="")


def test_bad_tables_are_sentences(tmp_path: Path) -> None:
    table = tmp_path / "gemm_perf.parquet"
    table.write_bytes(b"not parquet at all")
    with pytest.raises(InputError, match="not a Parquet table"):
        fit_operators(tmp_path, A100, load_profile("generic"), name="a", origin="")
    pq.write_table(pa.table({"m": [1]}), table)
    with pytest.raises(InputError, match="no column 'gemm_dtype'"):
        fit_operators(tmp_path, A100, load_profile("generic"), name="a", origin="")


def test_a_folder_in_place_of_a_table_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "gemm_perf.parquet").mkdir()
    with pytest.raises(InputError, match=r"gemm_perf\.parquet: this is not a regular file"):
        fit_operators(tmp_path, A100, load_profile("generic"), name="a", origin="")


@pytest.mark.parametrize("latency", [5e-324, 1e308])
def test_timings_that_cannot_be_are_left_out(tmp_path: Path, latency: float) -> None:
    row = {"gemm_dtype": "bfloat16", "m": 64, "n": 4096, "k": 4096, "latency": latency}
    pq.write_table(pa.Table.from_pylist([row] * 30), tmp_path / "gemm_perf.parquet")
    with pytest.raises(InputError, match="no operator table with usable rows was found"):
        fit_operators(tmp_path, A100, load_profile("generic"), name="a", origin="")


def test_rows_without_a_framework_or_backend_are_those_of_the_table(tmp_path: Path) -> None:
    """Tables that users make need not name what the timings are from."""
    write_tables(tmp_path, load_profile("a100"))
    for file, column in (("gemm", "gemm_dtype"), ("custom_allreduce", "backend")):
        path = tmp_path / f"{file}_perf.parquet"
        rows = pq.read_table(path).to_pylist()
        more = [{**row, column: "fp8" if file == "gemm" else None} for row in rows]
        pq.write_table(pa.Table.from_pylist([*rows, *more]), path)
    h100 = resolve_accelerator("h100-sxm")
    fitted = fit_operators(tmp_path, h100, load_profile("generic"), name="h", origin="made up")
    points = {name: error.points for name, error in fitted.errors["operators"].items()}
    assert points["gemm in fp8"] == points["gemm"] == 35
    assert points["all-reduce"] == 6

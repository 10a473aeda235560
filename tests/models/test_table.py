"""The table model: exact at its measurements, lines between them, and sentences for bad files."""

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.models import MODELS
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.table import Grid, Table, TimeCurve
from windtunnel.models.step_time.table_files import read_table

SHAPE = msgspec.structs.replace(MODELS["llama-3.1-8b"], layers=2)
DENSE = ("embedding", "layernorm", "qkv_proj", "o_proj", "gate_up_proj", "act_fn", "down_proj")


def decode(decodes: int, context: int) -> StepWork:
    return StepWork([], decodes, context, decodes)


# Interpolation

times = st.floats(1e-6, 1e-1)


@st.composite
def curves(draw: st.DrawFn, *, fewest: int = 1) -> TimeCurve:
    knots = draw(st.lists(st.integers(0, 20_000), min_size=fewest, max_size=5, unique=True))
    values = draw(st.lists(times, min_size=len(knots), max_size=len(knots)))
    return TimeCurve([float(knot) for knot in sorted(knots)], values)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    def grid(low: int, high: int) -> Grid:
        knots = draw(st.lists(st.integers(low, high), min_size=1, max_size=4, unique=True))
        return Grid([float(k) for k in sorted(knots)], [], [draw(curves()) for _ in knots])

    kernels = draw(st.booleans())
    return Table(
        grid(1, 8192),
        grid(1, 300),
        None,
        0.0,
        draw(curves()) if kernels else None,
        draw(curves()) if kernels else None,
        draw(st.sampled_from([0.0, 1e-3])),
    )


@given(tables())
def test_a_step_that_computes_nothing_takes_no_less_than_the_least(table: Table) -> None:
    """A prompt that is cached as a whole, where its last token is not computed again."""
    assert table.least_s <= table.step_s(decode(0, 0)) < math.inf


@given(
    table=tables(),
    decodes=st.integers(1, 2048),
    context=st.integers(0, 20_000_000),
    fractions=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3),
)
def test_a_decode_line_is_the_step_all_along_its_segment(
    table: Table, decodes: int, context: int, fractions: list[float]
) -> None:
    for _ in range(12):
        base, slope, until = table.decode_line(decodes, context)
        assert until > context
        last = context + 10_000_000 if until == math.inf else math.ceil(until) - 1
        inside = {context, last, *(context + int(f * (last - context)) for f in fractions)}
        for point in sorted(inside):
            expected = table.step_s(decode(decodes, point))
            assert base + slope * point == pytest.approx(expected, rel=1e-12, abs=0.0)
            assert expected > 0.0
        if until == math.inf:
            return
        context = math.ceil(until)
    pytest.fail("a table of ten knots has more than a dozen segments")


@given(table=tables(), chunk=st.integers(1, 20_000), prior=st.integers(0, 100_000),
       decodes=st.integers(0, 600), mean=st.integers(0, 50_000))  # fmt: skip
def test_no_step_is_negative_or_infinite(
    table: Table, chunk: int, prior: int, decodes: int, mean: int
) -> None:
    chunks = [(chunk, prior, chunk + prior), (16, 0, 16)]
    time_s = table.step_s(StepWork(chunks, decodes, decodes * mean, decodes + 2))
    assert 0.0 < time_s < math.inf


@given(curve=curves(fewest=2), points=st.lists(st.floats(0, 1e6), min_size=2, max_size=6))
def test_a_curve_rises_where_its_measurements_do(curve: TimeCurve, points: list[float]) -> None:
    rising = TimeCurve(curve.knots, sorted(curve.times))
    found = [rising.at(point) for point in sorted(points)]
    for low, high in pairwise(found):
        assert high >= low * (1 - 1e-9)


def test_a_curve_goes_on_along_its_last_two_measurements_but_never_down() -> None:
    assert TimeCurve([1.0, 2.0], [3.0, 5.0]).at(4.0) == pytest.approx(9.0)
    assert TimeCurve([1.0, 2.0], [5.0, 3.0]).at(4.0) == pytest.approx(3.0)
    assert TimeCurve([1.0, 2.0], [3.0, 5.0]).at(0.5) == 3.0


def test_between_four_measurements_a_grid_is_bilinear() -> None:
    grid = Grid(
        [1.0, 3.0], [], [TimeCurve([0.0, 10.0], [1.0, 2.0]), TimeCurve([0.0, 10.0], [3.0, 8.0])]
    )
    assert grid.at((2.0, 5.0, 0.0, 0.0), 0) == pytest.approx((1.5 + 5.5) / 2)
    assert grid.at((5.0, 10.0, 0.0, 0.0), 0) == pytest.approx(14.0)
    assert grid.curve(5.0).at(10.0) == pytest.approx(14.0)


# Kernel tables


def kernel_tables(folder: Path) -> Path:
    """Made-up kernels: a dense call takes 1 us + 0.01 us per token, attention by four sizes."""
    rows = [f"{name},{tokens},{1 + tokens / 100}" for name in DENSE for tokens in (1, 64, 512)]
    (folder / "dense.csv").write_text("\n".join(["layer,tokens,time_us", *reversed(rows)]))
    rows = [f"{name},{n},{10 + n}" for name in ("lm_head", "sampler") for n in (1, 128)]
    (folder / "per_sequence.csv").write_text("\n".join(["layer,sequences,time_us", *rows]))
    sizes = [(0, 0, n, kv) for n in (1, 64) for kv in (16, 1024)]
    sizes += [(c, p, 0, 0) for c in (16, 512) for p in (0, 2048)]
    sizes += [
        (c, p, n, kv) for c in (16, 512) for p in (0, 2048) for n in (1, 64) for kv in (16, 1024)
    ]
    rows = [f"{c},{p},{n},{kv},{attention_us(c, p, n, kv)}" for c, p, n, kv in sizes]
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
    (folder / "attention.csv").write_text("\n".join([header, *rows, ""]))
    return folder


def attention_us(chunk: float, prior: float, decodes: float, context: float) -> float:
    together = 7.0 if chunk and decodes else 0.0
    return 1.0 + chunk / 10 + prior / 100 + decodes / 4 + context / 50 + together


def step_us(tokens: int, samples: int, attention: float) -> float:
    dense = 1 + tokens / 100
    once, per_layer = 1, 2 + 1 + 1 + 3
    return (once + 2 * per_layer) * dense + 2 * (10 + samples) + 2 * attention


@pytest.mark.parametrize(
    ("work", "expected_us"),
    [
        (decode(64, 64 * 1024), step_us(64, 64, attention_us(0, 0, 64, 1024))),
        (decode(64, 64 * 512), step_us(64, 64, attention_us(0, 0, 64, 512))),
        (StepWork([(512, 0, 512)], 0, 0, 1), step_us(512, 1, attention_us(512, 0, 0, 0))),
        (
            StepWork([(512, 1024, 4096)], 64, 64 * 16, 64),
            step_us(576, 64, attention_us(512, 1024, 64, 16)),
        ),
        (
            StepWork([(256, 0, 256), (128, 512, 640)], 0, 0, 2),
            step_us(384, 2, attention_us(256, 0, 0, 0) + attention_us(128, 512, 0, 0)),
        ),
        (
            StepWork([(256, 0, 256), (256, 512, 768)], 64, 64 * 16, 66),
            step_us(
                576,
                66,
                attention_us(256, 0, 0, 0)
                + attention_us(256, 512, 0, 0)
                + attention_us(512, 256, 64, 16)
                - attention_us(512, 256, 0, 0),
            ),
        ),
    ],
)
def test_kernel_tables_add_up(tmp_path: Path, work: StepWork, expected_us: float) -> None:
    table = read_table(kernel_tables(tmp_path), SHAPE)
    assert table.step_s(work) == pytest.approx(expected_us * 1e-6)
    longer = read_table(tmp_path, SHAPE, per_step_s=0.5)
    assert longer.step_s(work) == pytest.approx(0.5 + expected_us * 1e-6)


def test_tables_know_how_far_they_were_measured(tmp_path: Path) -> None:
    kernels = read_table(kernel_tables(tmp_path), SHAPE).measured()
    assert kernels is not None
    # Layers were timed up to 512 tokens, attention with 64 decodes of 1,024 and 512 after 2,048.
    assert (kernels.tokens, kernels.decodes) == (512, 64)
    assert (kernels.context, kernels.prompt) == (1024, 2560)
    steps = read_table(whole_steps(tmp_path / "steps.jsonl"), MODELS["llama-3.1-8b"])
    bounds = steps.with_per_step(0.1).measured()
    assert bounds is not None
    assert (bounds.tokens, bounds.decodes, bounds.context, bounds.prompt) == (1088, 64, 2048, 3072)


def test_experts_are_those_that_even_routing_touches(tmp_path: Path) -> None:
    mixture = MODELS["qwen3-30b-a3b"]
    assert not mixture.dense_layers
    folder = kernel_tables(tmp_path)
    with pytest.raises(InputError, match=r"moe\.csv: the file cannot be read"):
        read_table(folder, mixture)
    rows = [f"{tokens},{e},{e}" for tokens in (1, 64, 512) for e in (1, mixture.experts)]
    (folder / "moe.csv").write_text("tokens,activated_experts,time_us\n" + "\n".join(rows))
    with_experts = read_table(folder, mixture)
    for curve, tokens in ((with_experts.tokens, 64), (with_experts.tokens, 1)):
        assert curve is not None
        missed = (1 - mixture.experts_per_token / mixture.experts) ** tokens
        dense = (1 + mixture.layers * 4) * (1 + tokens / 100)
        experts = mixture.layers * mixture.experts * (1 - missed)
        assert curve.at(tokens) == pytest.approx((dense + experts) * 1e-6)


Spoil = Callable[[str], str]


@pytest.mark.parametrize(
    ("name", "spoil", "sentence"),
    [
        ("dense.csv", lambda t: "", "dense.csv:1: the column layer is missing"),
        ("dense.csv", lambda t: t.replace("time_us", "ms"), "dense.csv:1: the column time_us"),
        ("dense.csv", lambda t: t + "\nact_fn,2,nan", "dense.csv:23: time_us is nan"),
        ("dense.csv", lambda t: t + "\nact_fn,2,0", "dense.csv:23: time_us is 0"),
        ("dense.csv", lambda t: t + "\nact_fn,2,-1", "time_us is -1; allowed: 0.001 (a nano"),
        ("dense.csv", lambda t: t + "\nact_fn,2,1e308", "dense.csv:23: time_us is 1e+308"),
        ("dense.csv", lambda t: t + "\nact_fn,2,5e-324", "dense.csv:23: time_us is 4.94"),
        ("dense.csv", lambda t: t + "\nact_fn,2", "dense.csv:23: time_us is empty"),
        ("dense.csv", lambda t: t + "\nact_fn,1.5,1", "tokens is 1.5; allowed: a whole number"),
        ("dense.csv", lambda t: t + "\nact_fn,-2,1", "tokens is -2"),
        ("dense.csv", lambda t: t + "\nact_fn,1e99,1", "tokens is 1e99"),
        ("dense.csv", lambda t: t + "\nact_fn,64,9", "dense.csv:23: the same sizes were measured"),
        ("dense.csv", lambda t: t + "\nrocket,64,9", "the layer 'rocket' is not known"),
        ("dense.csv", lambda t: t + "\nqk_norm,64,9", "the layer qk_norm has 1 row"),
        ("dense.csv", lambda t: t + '\n"act', "dense.csv:23: the line is not a row"),
        ("dense.csv", lambda t: t + "\n\udcff", "dense.csv:23: the line is not a row"),
        ("dense.csv", lambda t: t.replace("o_proj", "rotary_emb"), "no rows for the layer o_proj"),
        ("per_sequence.csv", lambda t: t.splitlines()[0], "the table has no rows"),
        ("attention.csv", lambda t: t + "0,0,0,0,5", "are 0; allowed: something to compute"),
        ("attention.csv", lambda t: t.replace(",64,", ",1,"), "the same sizes were measured"),
        (
            "attention.csv",
            lambda t: "\n".join(x for x in t.splitlines() if not x.startswith("512,")),
            "fewer than 2 numbers of new tokens",
        ),
        (
            "attention.csv",
            lambda t: "\n".join(x for x in t.splitlines() if not x.startswith("0,0,64,")),
            "fewer than 2 numbers of sequences",
        ),
        (
            "attention.csv",
            lambda t: "\n".join(x for x in t.splitlines() if not x.startswith("0,0,64,16")),
            "64 decodes were measured at one context",
        ),
    ],
)
def test_a_bad_table_is_a_sentence(tmp_path: Path, name: str, spoil: Spoil, sentence: str) -> None:
    path = kernel_tables(tmp_path) / name
    path.write_text(spoil(path.read_text()), errors="surrogateescape")
    with pytest.raises(InputError) as raised:
        read_table(tmp_path, SHAPE)
    assert sentence in str(raised.value)


def test_faults_come_together_and_are_counted(tmp_path: Path) -> None:
    path = kernel_tables(tmp_path) / "attention.csv"
    path.write_text(path.read_text() + "x,0,1,1,1\n" * 30)
    with pytest.raises(InputError) as raised:
        read_table(tmp_path, SHAPE)
    assert len(str(raised.value).splitlines()) == 10


def test_missing_and_oversized_files_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"dense\.csv: the file cannot be read: no such file"):
        read_table(tmp_path, SHAPE)
    with pytest.raises(InputError, match=r"steps\.jsonl: the file cannot be read"):
        read_table(tmp_path / "steps.jsonl", SHAPE)
    kernel_tables(tmp_path)
    monkeypatch.setattr("windtunnel.models.step_time.table_files.MOST_BYTES", 100)
    with pytest.raises(InputError, match="the file is too large"):
        read_table(tmp_path, SHAPE)


# Whole steps


def whole_steps(path: Path, *extra: dict[str, object], shape: str = "llama-3.1-8b") -> Path:
    """Steps of 5 ms, and 1 ms per: 100 new tokens, 100,000 pairs, 50 decodes, 10,000 of context."""
    sizes = [(0, 0, n, kv) for n in (1, 64) for kv in (128, 2048)]
    sizes += [(c, p, 0, 0) for c in (128, 1024) for p in (0, 2048)]
    sizes += [(c, 0, n, kv) for c in (128, 1024) for n in (8, 64) for kv in (128, 2048)]
    lines: list[dict[str, object]] = [
        {"shape": shape, "prefill": c, "prior": p, "decodes": n, "context": kv,
         "ms": 5 + c / 100 + c * p / 1e5 + n / 50 + n * kv / 1e4}
        for c, p, n, kv in sizes
    ]  # fmt: skip
    path.write_text("\n\n".join(json.dumps(line) for line in [*lines, *extra]))
    return path


@pytest.mark.parametrize(
    ("work", "expected_ms"),
    [
        (decode(64, 64 * 2048), 5 + 64 / 50 + 64 * 2048 / 1e4),
        (StepWork([(1024, 2048, 3072)], 0, 0, 1), 5 + 10.24 + 1024 * 2048 / 1e5),
        (StepWork([(1024, 0, 1024)], 8, 8 * 128, 9), 5 + 10.24 + 8 / 50 + 8 * 128 / 1e4),
        (
            StepWork([(1024, 2048, 3072)], 8, 8 * 128, 9),
            5 + 10.24 + 1024 * 2048 / 1e5 + 8 / 50 + 8 * 128 / 1e4,
        ),
        (
            StepWork([(512, 1536, 2048), (512, 512, 1024)], 0, 0, 2),
            5 + 10.24 + 1024 * (1024 - 256) / 1e5,
        ),
    ],
)
def test_whole_steps_are_met_and_share_their_weights(
    tmp_path: Path, work: StepWork, expected_ms: float
) -> None:
    table = read_table(whole_steps(tmp_path / "steps.jsonl"), MODELS["llama-3.1-8b"])
    assert table.step_s(work) == pytest.approx(expected_ms * 1e-3)


def test_several_fresh_prompts_attend_to_less_than_one_of_their_length(tmp_path: Path) -> None:
    table = read_table(whole_steps(tmp_path / "steps.jsonl"), MODELS["llama-3.1-8b"])
    one = table.step_s(StepWork([(1024, 0, 1024)], 0, 0, 1))
    two = table.step_s(StepWork([(512, 0, 512), (512, 0, 512)], 0, 0, 2))
    assert table.step_s(StepWork([(512, 0, 512)], 0, 0, 1)) <= two < one


def test_bad_steps_are_sentences(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    twice: dict[str, object] = {"shape": "llama-3.1-8b", "decodes": 64, "context": 128, "ms": 4}
    with pytest.raises(InputError, match=r"steps\.jsonl:33: .* measured before, on line 5"):
        read_table(whole_steps(path, twice), MODELS["llama-3.1-8b"])
    with pytest.raises(InputError, match=r"steps\.jsonl:33: ms is -4"):
        read_table(whole_steps(path, {**twice, "ms": -4}), MODELS["llama-3.1-8b"])
    with pytest.raises(InputError, match=r"no step of qwen2.5-7b was measured.*llama-3.1-8b"):
        read_table(whole_steps(path), MODELS["qwen2.5-7b"])
    read_table(whole_steps(path, shape="meta-llama/Llama-3.1-8B"), MODELS["llama-3.1-8b"])

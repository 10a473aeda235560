"""What is written comes back as it was, whole or not at all."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload.traces.trace_files import any_trace, requests_of
from windtunnel.core.errors import InputError, OutputError
from windtunnel.workload.traces.record import BLOCK_TOKENS, TraceRequest
from windtunnel.workload.traces.writing import WRITABLE, write_trace


@given(
    trace=any_trace(), ending=st.sampled_from(["csv", "csv.gz", "jsonl", "jsonl.zst", "parquet"])
)
def test_our_own_formats_keep_everything(
    tmp_path_factory: pytest.TempPathFactory, trace: list[TraceRequest], ending: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"trace.{ending}"
    assert write_trace(trace, path, replace=True) == len(trace)
    name = ending.partition(".")[0]
    if name == "jsonl" and not trace:
        with pytest.raises(InputError, match="empty"):
            requests_of(path, name)
    else:
        assert requests_of(path, name) == trace


milliseconds = st.integers(0, 10**9)
lengths = st.tuples(st.integers(1, 5000), st.integers(1, 5000))


@given(rows=st.lists(st.tuples(milliseconds, lengths), min_size=1, max_size=5))
def test_azure_keeps_times_and_lengths(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, tuple[int, int]]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "azure.csv"
    rows.sort()
    start = rows[0][0]
    write_trace([TraceRequest(ms / 1e3, *both) for ms, both in rows], path, "azure", replace=True)
    back = requests_of(path)
    assert [r.arrived_s for r in back] == pytest.approx([(ms - start) / 1e3 for ms, _ in rows])
    assert [(r.prompt_tokens, r.output_tokens) for r in back] == [both for _, both in rows]


@given(rows=st.lists(st.tuples(milliseconds, lengths, st.integers(0, 12)), min_size=1, max_size=5))
def test_mooncake_keeps_blocks(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, tuple[int, int], int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "mooncake.jsonl"
    trace = []
    for ms, (prompt, output), keys in sorted(rows):
        ends = [*range(BLOCK_TOKENS, prompt, BLOCK_TOKENS), prompt][:keys]
        shared = (tuple(range(len(ends))), tuple(ends))
        trace.append(
            TraceRequest(ms / 1e3, prompt, output, prefix_keys=shared[0], prefix_ends=shared[1])
        )
    write_trace(trace, path, "mooncake", replace=True)
    assert requests_of(path) == trace


def test_other_prefixes_have_no_mooncake_form(tmp_path: Path) -> None:
    request = TraceRequest(0.0, 900, 5, prefix_keys=(7,), prefix_ends=(600,))
    with pytest.raises(OutputError, match="request 1: a prefix whose segments end at 600"):
        write_trace([request], tmp_path / "out.jsonl", "mooncake")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", WRITABLE)
def test_nothing_is_left_of_a_trace_that_breaks_off(tmp_path: Path, name: str) -> None:
    def broken() -> list[TraceRequest]:
        raise InputError("broke off")

    ending = "csv" if name == "blis" else "parquet"
    with pytest.raises(InputError, match="broke off"):
        write_trace((broken()[0] for _ in range(3)), tmp_path / f"out.{ending}", name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write_trace([TraceRequest(0.0, 1, 1)], path)
    with pytest.raises(OutputError, match=r"already exists \(--force replaces it\)"):
        write_trace([], path)
    assert len(requests_of(path)) == 1
    assert write_trace([], path, replace=True) == 0
    assert requests_of(path) == []


def test_a_link_is_followed(tmp_path: Path) -> None:
    there, link = tmp_path / "there.csv", tmp_path / "link.csv"
    link.symlink_to(there)
    assert write_trace([TraceRequest(0.0, 1, 1)], link) == 1
    with pytest.raises(OutputError, match="--force"):
        write_trace([], link)
    assert write_trace([TraceRequest(0.0, 1, 2)], link, replace=True) == 1
    assert link.is_symlink()
    assert requests_of(there) == [TraceRequest(0.0, 1, 2)]
    assert sorted(tmp_path.iterdir()) == [link, there]


def test_only_a_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipe, folder, loop = tmp_path / "pipe.csv", tmp_path / "folder.csv", tmp_path / "loop.csv"
    os.mkfifo(pipe)
    folder.mkdir()
    loop.symlink_to(loop)
    before = sorted(tmp_path.iterdir())
    for path, sentence in (
        (pipe, "not a plain file"),
        (folder, "a folder"),
        (loop, "leads to itself"),
        (Path("-"), "not to the terminal"),
    ):
        with pytest.raises(OutputError, match=sentence):
            write_trace([TraceRequest(0.0, 1, 1)], path, "csv", replace=True)
    assert sorted(tmp_path.iterdir()) == before
    assert pipe.is_fifo()
    assert loop.is_symlink()


def test_the_same_trace_is_the_same_bytes(tmp_path: Path) -> None:
    trace = [TraceRequest(0.5, 3, 4, tenant="t", prefix_keys=(1,), prefix_ends=(2,))]
    for ending in ("csv.gz", "jsonl.zst", "parquet"):
        for stem in ("one", "two"):
            write_trace(trace, tmp_path / f"{stem}.{ending}")
        first, second = ((tmp_path / f"{stem}.{ending}").read_bytes() for stem in ("one", "two"))
        assert first == second


@pytest.mark.parametrize(
    ("file", "name", "sentence"),
    [
        ("out.txt", None, "the format to write is not clear"),
        ("out.csv", "sharegpt", "not a format that can be written; allowed: azure"),
        ("out.parquet.gz", None, "Parquet is already compressed"),
    ],
)
def test_what_cannot_be_written_is_said(
    tmp_path: Path, file: str, name: str | None, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        write_trace([], tmp_path / file, name)
    with pytest.raises(OutputError, match="cannot be written: no such file"):
        write_trace([], tmp_path / "nowhere" / "out.csv")


def test_a_runs_requests_are_a_trace(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "id": [1, 0],
        "source": pa.array(["chat", "chat"]).dictionary_encode(),
        "arrived": [2.0, 1.0],
        "first_token": [2.5, None],
        "finished": [3.0, None],
        "outcome": ["completed", "dropped"],
        "prompt_tokens": [10, 20],
        "output_tokens": [5, 6],
    }
    path = tmp_path / "requests.parquet"
    pq.write_table(pa.table(columns), path)
    assert requests_of(path) == [
        TraceRequest(1.0, 20, 6, id="0", source="chat"),
        TraceRequest(2.0, 10, 5, id="1", source="chat", ttft_s=0.5, e2e_s=1.0),
    ]
    pq.write_table(pa.table({"arrived": ["x"], "prompt_tokens": [1], "output_tokens": [1]}), path)
    with pytest.raises(InputError, match="'arrived' does not hold what it should"):
        requests_of(path)
    pq.write_table(pa.table({"arrived": [1.0], "prompt_token": [1]}), path)
    with pytest.raises(InputError, match="did you mean 'prompt_token'"):
        requests_of(path)


@given(trace=any_trace())
def test_blis_keeps_all_that_it_has_columns_for(
    tmp_path_factory: pytest.TempPathFactory, trace: list[TraceRequest]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "blis.csv"
    trace = [
        msgspec.structs.replace(
            one,
            arrived_s=round(one.arrived_s),
            prefix_keys=one.prefix_keys[:1],
            prefix_ends=(7,) if one.prefix_keys else (),
            prompt_tokens=max(one.prompt_tokens, 8),
        )
        for one in trace
    ]
    write_trace(trace, path, "blis", replace=True)
    back = requests_of(folder / "blis.yaml")
    start_s = trace[0].arrived_s if trace else 0.0
    assert len(back) == len(trace)
    for number, (one, two) in enumerate(zip(trace, back, strict=True)):
        assert two.id == f"{number}"
        assert two.arrived_s == one.arrived_s - start_s
        assert (two.prompt_tokens, two.output_tokens) == (one.prompt_tokens, one.output_tokens)
        assert two.prefix_ends == one.prefix_ends
        assert (two.media_tokens or 0) == (one.media_tokens or 0)
        for name in ("source", "tenant", "slo", "session", "model", "adapter"):
            assert getattr(two, name) == getattr(one, name)
        for name in ("deadline_s", "ttft_s", "e2e_s", "think_s"):
            wanted, found = getattr(one, name), getattr(two, name)
            if found is None:  # it has no zero: that is nothing
                assert wanted is None or one.arrived_s + wanted < 1e-6 or wanted < 1e-6
            else:
                assert found == pytest.approx(wanted, abs=2e-6)
    shared = {one.prefix_keys: two.prefix_keys for one, two in zip(trace, back, strict=True)}
    assert len(set(shared.values())) == len(shared)


def test_blis_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    several = TraceRequest(0.0, 900, 5, prefix_keys=(7, 8), prefix_ends=(600, 700))
    with pytest.raises(OutputError, match="request 1: a prefix of 2 segments cannot be written"):
        write_trace([several], tmp_path / "out.csv", "blis")
    with pytest.raises(InputError, match=r"a name that ends in \.csv"):
        write_trace([], tmp_path / "out.csv.gz", "blis")
    (tmp_path / "out.yaml").write_text("mine")
    with pytest.raises(OutputError, match=r"out\.yaml: the file already exists"):
        write_trace([], tmp_path / "out.csv", "blis")
    assert (tmp_path / "out.yaml").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out.yaml"]


@given(trace=any_trace())
def test_burstgpt_keeps_times_lengths_sessions_and_models(
    tmp_path_factory: pytest.TempPathFactory, trace: list[TraceRequest]
) -> None:
    path = tmp_path_factory.getbasetemp() / "burst.csv"
    write_trace(trace, path, "burstgpt", replace=True)
    back = requests_of(path)
    kept = ("prompt_tokens", "output_tokens", "session", "model", "source", "e2e_s")
    start_s = trace[0].arrived_s if trace else 0.0
    for one, two in zip(trace, back, strict=True):
        assert two.arrived_s == pytest.approx(one.arrived_s - start_s)
        for name in kept:
            assert getattr(two, name) == getattr(one, name)

"""Hostile files get a sentence with a place, or are skipped and counted; never a traceback."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload.traces.trace_files import AZURE, BLIS, BURSTGPT, MOONCAKE, requests_of, written
from windtunnel.core.errors import InputError
from windtunnel.workload.traces import lines, reading
from windtunnel.workload.traces.formats import sharegpt
from windtunnel.workload.traces.formats.registry import FORMATS
from windtunnel.workload.traces.formats.sharegpt import AssignedArrivals
from windtunnel.workload.traces.notes import TraceNotes
from windtunnel.workload.traces.reading import open_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
OWN = "arrived,prompt_tokens,output_tokens,id,prefix_keys,prefix_ends\n"


@pytest.mark.parametrize(
    ("name", "text", "line", "sentence"),
    [
        ("azure", HEADER + "2023-11-16 18:15:46.6,374\n", 2, "2 columns, not 3, perhaps truncated"),
        ("azure", HEADER + "yesterday,374,44\n", 2, "'yesterday' is not a time such as"),
        ("azure", HEADER + "2023-11-16 18:15:NaN,374,44\n", 2, "is not a time"),
        ("azure", HEADER + "2023-13-16 18:15:46.6,374,44\n", 2, "is not a date"),
        ("azure", HEADER + "\n\n2023-11-16 18:15:46.6,lots,44\n", 4, "'lots' is not a number"),
        ("azure", HEADER + "2023-11-16 18:15:46.6,1.5,44\n", 2, "'1.5' is not a whole number"),
        ("azure", HEADER + "2023-11-16 18:15:46.6,-4,44\n", 2, "prompt has -4 tokens"),
        ("azure", HEADER + "2023-11-16 18:15:46.6,4,99999999\n", 2, "output has 99999999 tokens"),
        ("azure", HEADER + "2023-11-16 18:15:46.6,4," + "9" * 5000, 2, "not a number"),
        ("azure", HEADER + "2023-11-16 18:15:46.6,nan,4\n", 2, "'nan' is not a number"),
        ("azure", HEADER + '2023-11-16 18:15:46.6,"4,4\n', 2, "a quoted field has no end"),
        ("burstgpt", BURSTGPT + "-5,m,1,2,3,x\n", 5, "time is negative"),
        ("burstgpt", BURSTGPT + "inf,m,1,2,3,x\n", 5, "'inf' is not a number"),
        ("mooncake", MOONCAKE + '{"timestamp": 5', 4, "not JSON, perhaps truncated"),
        ("mooncake", '{"timestamp": 1, "input_length": 9}', 1, "missing required field"),
        ("mooncake", MOONCAKE.replace("1100", "600"), 1, "3 hash_ids, and a prompt of 600"),
        ("mooncake", MOONCAKE.replace("27482", "-1", 1), 2, "time is negative"),
        ("mooncake", '{"x": ' + "[" * 100_000, 1, "not JSON"),
        ("blis", BLIS + BLIS.splitlines()[1] + "\n", 6, "request_id '0' appears twice"),
        ("csv", OWN + "0,5,5,a,,\n1,5,5,a,,\n", 3, "the id 'a' appears twice"),
        ("csv", OWN + "0,5,5,,1 2,3\n", 2, "2 prefix_keys and 1 prefix_ends"),
        ("csv", OWN + "0,5,5,,1 2,3 3\n", 2, "prefix_ends are not increasing"),
        ("csv", OWN + "0,5,5,,1,6\n", 2, "prefix ends at token 6 of a prompt of 5"),
        ("csv", OWN + "0,5,5,\x01,,\n", 2, "unprintable characters"),
        ("csv", OWN + f"0,5,5,{'n' * 300},,\n", 2, "more than 256 characters"),
        ("jsonl", '{"arrived": NaN, "prompt_tokens": 1, "output_tokens": 1}', 1, "not JSON"),
        ("jsonl", '{"arrived": 1e12, "prompt_tokens": 1, "output_tokens": 1}', 1, "time is 1e"),
    ],
)
def test_a_bad_row_is_a_sentence_or_is_counted(
    tmp_path: Path, name: str, text: str, line: int, sentence: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=sentence) as caught:
        requests_of(path, name)
    assert caught.value.where == f"{path}:{line}"
    notes = TraceNotes(str(path), skip_bad=1)
    list(open_trace(path, name, notes=notes))
    assert notes.bad == 1
    assert sentence in notes.faults[0].what


@pytest.mark.parametrize("bad", [b"2023-11-16 18:15:47.1,\xff\xfe,5", b"\x00\x00", b"\xc3"])
def test_bytes_that_are_no_text_are_a_bad_row(tmp_path: Path, bad: bytes) -> None:
    path = written(tmp_path, AZURE.encode() + bad + b"\n2023-11-16 18:17:00,1,2\n")
    with pytest.raises(InputError, match=r"not UTF-8|NUL") as caught:
        requests_of(path, "azure")
    assert caught.value.where == f"{path}:4"
    assert len(list(open_trace(path, "azure", notes=TraceNotes(str(path), 1)))) == 3


def test_utf_16_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not UTF-8|NUL"):
        requests_of(written(tmp_path, AZURE.encode("utf-16")), "azure")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_line_without_end_is_a_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 5_000)
    monkeypatch.setattr(lines, "BLOCK", 1_000)
    monkeypatch.setattr(lines.PlainBytes.read, "__defaults__", (1_000,))
    rows = [f"{arrived},5,5" for arrived in range(400)]
    rows.insert((0, 100, 400)[at], "x" * 9_000)
    path = written(tmp_path, "arrived,prompt_tokens,output_tokens\n" + "\n".join(rows))
    with pytest.raises(InputError, match="more than 5000 bytes") as caught:
        requests_of(path, "csv")
    assert caught.value.where == f"{path}:{(2, 102, 402)[at]}"
    kept = list(open_trace(path, "csv", notes=TraceNotes(str(path), 1)))
    assert [request.arrived_s for request in kept] == list(range(400))


def test_missing_columns_are_named_with_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, "Timestamp,Model,Request token,Response tokens\n")
    with pytest.raises(InputError, match=r"'Request tokens' is missing .*'Request token'"):
        requests_of(path, "burstgpt")
    with pytest.raises(InputError, match="'a' appears twice"):
        requests_of(written(tmp_path, "a,a\n"), "azure")
    many = ",".join(f"column-{number}" for number in range(99))
    with pytest.raises(InputError, match=r"is missing \(found: column-0, .*\.\.\.\)"):
        requests_of(written(tmp_path, f"{many}\n"), "azure")


def test_a_stray_quote_takes_no_other_rows(tmp_path: Path) -> None:
    good = [f"{number}.0,1,1" for number in range(20)]
    rows = ["arrived,prompt_tokens,output_tokens", '"0.0,1,1', *good]
    path = written(tmp_path, "\n".join(rows) + "\n")
    with pytest.raises(InputError, match=":2: a quoted field has no end"):
        requests_of(path)
    notes = TraceNotes(str(path), 1)
    assert len(list(open_trace(path, notes=notes))) == 20
    assert notes.bad == 1


def test_a_stray_quote_takes_no_rows_of_a_file_with_free_text(tmp_path: Path) -> None:
    stray = BLIS.splitlines()[1].replace("ok,,stop", 'ok,"oops,stop').replace("0,", "9,", 1)
    good = "".join(f"{n},,,,,0,,0,,9,3,{',' * 7},{n},,,,,ok,,\n" for n in range(10, 300))
    path = written(tmp_path, BLIS + stray + "\n" + good + "300,cut\n")
    notes = TraceNotes(str(path), 2)
    assert len(list(open_trace(path, notes=notes))) == 292
    assert [str(fault).split(":")[1] for fault in notes.faults] == ["6", "297"]


def test_only_so_many_bad_rows_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE + "x\ny,1,2\nz\n")
    with pytest.raises(InputError, match="2 bad rows were skipped before it") as caught:
        list(open_trace(path, notes=TraceNotes(str(path), 2)))
    assert caught.value.where == f"{path}:6"
    assert len(list(open_trace(path, notes=TraceNotes(str(path), 3)))) == 2


def test_a_packed_file_that_is_cut_off_is_a_sentence(tmp_path: Path) -> None:
    packed = gzip.compress((MOONCAKE * 1000).encode())
    path = written(tmp_path, packed[: len(packed) // 2])
    with pytest.raises(InputError, match="the compressed file is truncated"):
        requests_of(path, "mooncake")
    damaged = bytearray(packed)
    damaged[30:60] = bytes(30)
    with pytest.raises(InputError):
        requests_of(written(tmp_path, bytes(damaged)), "mooncake")


def own(times: list[float]) -> str:
    rows = "".join(f"{time},5,5\n" for time in times)
    return "arrived,prompt_tokens,output_tokens\n" + rows


def test_a_little_disorder_is_put_right(tmp_path: Path) -> None:
    times = [float(number ^ 3) for number in range(40)]
    path = written(tmp_path, own(times))
    assert [request.arrived_s for request in requests_of(path)] == sorted(times)


def test_much_disorder_needs_to_be_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "REORDER_WINDOW", 4)
    times = [*map(float, range(10, 30)), 1.0, 31.0]
    path = written(tmp_path, own(times))
    with pytest.raises(InputError, match=r":22: the request arrives at 1 s, .*--sort"):
        requests_of(path)
    assert [request.arrived_s for request in requests_of(path, sort=True)] == sorted(times)
    monkeypatch.setattr(reading, "SORT_LIMIT", 21)
    with pytest.raises(InputError, match="more than 21 are too many to sort"):
        requests_of(path, sort=True)


def test_the_earliest_request_is_the_start_wherever_it_stands(tmp_path: Path) -> None:
    first, second = AZURE.splitlines(keepends=True)[1:]
    found = requests_of(written(tmp_path, HEADER + second + first))
    assert [request.arrived_s for request in found] == [0.0, pytest.approx(1.2500001)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[{"conversations": []}, {"conv', "after 1 members, perhaps truncated"),
        ('[{"conversations": []} oops', "after 1 members"),
        ("[" + "[" * 100_000, "nested too deep|after 0 members"),
        ('[{"conversations": [7]}]', "a message is not an object"),
        ('[{"conversations": [{"from": "gpt"}]}]', "a message has no text"),
        ("[7]", "must be an object"),
        ('[{"prompt_tokens": 1, "output_tokens": -1}]', "output_tokens is not a whole number"),
        ('{"neither": 1}', "neither conversations, messages nor"),
    ],
)
def test_bad_conversations_are_sentences(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        list(open_trace(written(tmp_path, text), "sharegpt", arrivals=AssignedArrivals(1.0)))


def test_a_long_list_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharegpt, "FIRST_READ", 64)
    item = '{"conversations": [{"from": "human", "value": "é%s"}, {"from": "gpt", "value": "b"}]}'
    items = ",\n".join(item % ("x" * (37 * number % 400)) for number in range(50))
    path = written(tmp_path, f"\ufeff [{items}]")
    found = list(open_trace(path, arrivals=AssignedArrivals(1.0)))
    assert [r.prompt_tokens for r in found] == [-(-(1 + 37 * n % 400) // 4) for n in range(50)]


junk = st.binary(max_size=200) | st.text(max_size=100).map(str.encode)
starts = st.sampled_from(
    [b"", b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"[", b'[{"conversations": [', b"{"]
    + [text.encode() for text in (AZURE, BURSTGPT, MOONCAKE, BLIS, OWN, HEADER)]
)


@given(start=starts, rest=junk, name=st.sampled_from([None, *FORMATS]), skip=st.integers(0, 3))
def test_junk_is_only_ever_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, rest: bytes, name: str, skip: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.bin"
    path.write_bytes(start + rest)
    found, error = [], None
    try:
        found = list(
            open_trace(
                path, name, arrivals=AssignedArrivals(1.0), notes=TraceNotes(str(path), skip)
            )
        )
    except InputError as raised:
        error = raised
    if error is not None:
        assert "\n" not in str(error)
        assert error.where is None or str(path) in error.where
    times = [request.arrived_s for request in found]
    assert times == sorted(times)
    assert all(request.prompt_tokens > 0 and request.output_tokens > 0 for request in found)


@pytest.mark.parametrize("name", [None, "azure", "parquet", "sharegpt"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str | None) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InputError, match="this is not a regular file"):
        list(open_trace(path, name, arrivals=AssignedArrivals(1.0)))

"""Every format is read as it stands, recognised, and means what its publishers say."""

from pathlib import Path

import pytest

from tests.workload.traces.trace_files import (
    AZURE,
    AZURE_2024,
    BLIS,
    BLIS_HEADER,
    BURSTGPT,
    BURSTGPT_SESSIONS,
    MOONCAKE,
    conversations,
    requests_of,
    written,
)
from windtunnel.core.errors import InputError
from windtunnel.workload.traces.formats.registry import detected
from windtunnel.workload.traces.formats.sharegpt import AssignedArrivals
from windtunnel.workload.traces.notes import TraceNotes
from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.record import TraceRequest


def test_azure_of_2023_keeps_seven_digits(tmp_path: Path) -> None:
    first, second = requests_of(written(tmp_path, AZURE))
    assert first == TraceRequest(0.0, 374, 44)
    assert second.arrived_s == pytest.approx(1.2500001, abs=1e-12)
    assert (second.prompt_tokens, second.output_tokens) == (396, 109)


def test_azure_of_2024_has_zones_and_whole_seconds(tmp_path: Path) -> None:
    moved = AZURE_2024.replace("2024-05-11 00:00:00+00:00", "2024-05-11 02:00:00+02:00")
    for text in (AZURE_2024, moved):
        first, second = requests_of(written(tmp_path, text))
        assert first == TraceRequest(0.0, 2399, 6)
        assert second == TraceRequest(0.5, 76, 15)


def test_burstgpt_leaves_out_what_failed_and_counts_it(tmp_path: Path) -> None:
    path = written(tmp_path, BURSTGPT)
    notes = TraceNotes(str(path))
    first, last = open_trace(path, notes=notes)
    assert notes.empty == 1
    assert first == TraceRequest(0.0, 472, 18, source="Conversation log", model="ChatGPT")
    assert last == TraceRequest(113.0, 417, 276, source="API log", model="GPT-4")


def test_burstgpt_with_sessions(tmp_path: Path) -> None:
    first, second = requests_of(written(tmp_path, BURSTGPT_SESSIONS))
    assert (first.session, first.e2e_s, first.arrived_s) == ("1722ac82-0a46", 43.0, 0.0)
    assert second.arrived_s == 51.5


def test_mooncake_blocks_become_segments(tmp_path: Path) -> None:
    first, second, third = requests_of(written(tmp_path, MOONCAKE))
    assert first.prefix_keys == (0, 1, 2)
    assert first.prefix_ends == (512, 1024, 1100)
    assert second.arrived_s == 27.482
    assert second.prefix_ends == (512, 1024)
    assert third == TraceRequest(27.482, 40, 9)


def test_mooncake_hashes_without_sign_are_keys_too(tmp_path: Path) -> None:
    line = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [%d, 1]}\n'
    (request,) = requests_of(written(tmp_path, line % (2**64 - 5)))
    assert request.prefix_keys == (-5, 1)


def test_blis_rows_say_all_that_they_know(tmp_path: Path) -> None:
    written(tmp_path, BLIS_HEADER, "run.yaml")
    path = written(tmp_path, BLIS, "run.csv")
    notes = TraceNotes(str(path))
    first, second = open_trace(path, notes=notes)
    assert notes.empty == 1
    assert (first.prompt_tokens, first.output_tokens) == (650, 20)
    assert first.prefix_ends == (600,)
    assert (first.id, first.source, first.tenant, first.slo) == ("0", "c1", "acme", "critical")
    assert (first.session, first.turn, first.model) == ("s1", 0, "m")
    assert (first.deadline_s, first.ttft_s, first.e2e_s) == (59.9999, 0.2, 1.0)
    assert second == TraceRequest(0.4999, 9, 3, id="2", source="c2")
    assert requests_of(tmp_path / "run.yaml") == [first, second]


def test_blis_rows_are_what_its_own_replay_makes_of_them(tmp_path: Path) -> None:
    columns = (
        "request_id,prefix_group,prefix_length,input_tokens,output_tokens,image_tokens,"
        "video_tokens,deadline_us,server_input_tokens,arrival_time_us,send_time_us\n"
    )
    rows = (
        "0,sys,600,50,20,0,0,0,655,1000,0\n"  # the server's count has the prefix in it already
        "1,sys,64,70,7,0,0,0,0,2000,0\n"  # a group has one prefix, as long as its first
        "2,sys,0,70,7,0,0,0,0,3000,0\n"
        "3,,0,70,7,30,10,0,95,4000,0\n"  # without a group the server knows best
        "4,,99,70,7,0,0,9000,0,5000,6000\n"  # sent later than it arrived; no group, no prefix
        "5,new,0,70,7,0,0,4000,0,7000,0\n"  # too late before it was sent
    )
    found = requests_of(written(tmp_path, columns + rows))
    assert [r.prompt_tokens for r in found] == [650, 670, 670, 95, 70, 70]
    assert [r.prefix_ends for r in found] == [(600,), (600,), (600,), (), (), ()]
    assert len({r.prefix_keys for r in found[:3]}) == 1
    assert [r.media_tokens for r in found] == [None, None, None, 40, None, None]
    assert [r.arrived_s for r in found] == [0.0, 0.001, 0.002, 0.003, 0.005, 0.006]
    assert [r.deadline_s for r in found[-2:]] == [0.003, 0.0]


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("trace_version: 9\n", "trace_version is 9; allowed: 2 and 3"),
        ("trace_version: 3\ntime_unit: ms\n", "time_unit is 'ms'"),
        ("trace_version: [\n", "not YAML"),
    ],
)
def test_a_blis_header_is_checked(tmp_path: Path, header: str, sentence: str) -> None:
    written(tmp_path, header, "run.yaml")
    with pytest.raises(InputError, match=sentence):
        requests_of(written(tmp_path, BLIS, "run.csv"))


def test_a_blis_header_needs_its_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no run\.csv beside"):
        requests_of(written(tmp_path, BLIS_HEADER, "run.yaml"))


@pytest.mark.parametrize("lines", [True, False])
def test_conversations_are_sessions(tmp_path: Path, lines: bool) -> None:
    path = conversations(tmp_path, lines=lines)
    arrivals = AssignedArrivals(0.1, "constant", turn_gap_s=4.0)
    notes = TraceNotes(str(path))
    first, second, third = open_trace(path, arrivals=arrivals, notes=notes)
    assert notes.empty == 1
    assert (first.arrived_s, first.prompt_tokens, first.output_tokens) == (0.0, 10, 20)
    assert (second.arrived_s, second.prompt_tokens, second.output_tokens) == (4.0, 33, 1)
    assert (first.session, second.session, second.turn) == ("talk", "talk", 1)
    assert second.prefix_ends == (10, 30, 33)
    assert second.prefix_keys[:1] == first.prefix_keys
    assert (third.arrived_s, third.prompt_tokens, third.output_tokens) == (10.0, 100, 7)


def test_arrivals_are_drawn_from_a_stream_of_their_own(tmp_path: Path) -> None:
    text = '{"prompt_tokens": 5, "output_tokens": 6}\n' * 2000
    path = written(tmp_path, text)
    times = [
        [request.arrived_s for request in open_trace(path, arrivals=AssignedArrivals(10.0, seed=s))]
        for s in (1, 1, 2)
    ]
    assert times[0] == times[1] != times[2]
    assert times[0][-1] == pytest.approx(200.0, rel=0.1)
    with pytest.raises(InputError, match=r"says nothing about times .*--rate"):
        requests_of(path)


def test_a_bare_line_with_a_time_is_our_own(tmp_path: Path) -> None:
    path = written(tmp_path, '{"prompt_tokens": 5, "output_tokens": 6, "arrived": 1.5, "x": 0}\n')
    assert requests_of(path) == [TraceRequest(1.5, 5, 6)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (AZURE, "azure"),
        ("\ufeff" + AZURE_2024, "azure"),
        (BURSTGPT, "burstgpt"),
        (BURSTGPT_SESSIONS, "burstgpt"),
        (MOONCAKE, "mooncake"),
        (BLIS, "blis"),
        ('[{"conversations": []}]', "sharegpt"),
        ('{"conversations": []}', "sharegpt"),
        ("arrived,prompt_tokens,output_tokens,color\n0,1,2,red\n", "csv"),
        ('{"arrived": 0, "prompt_tokens": 1, "output_tokens": 2}', "jsonl"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_formats_are_recognised(tmp_path: Path, text: str, name: str, ending: str) -> None:
    assert detected(written(tmp_path, text, f"trace{ending}")) == name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "no known format has the columns a, b; allowed: azure"),
        ("TIMESTAMP,ContextTokens\n", "azure would need GeneratedTokens too"),
        ('{"timestamp": 1}', "mooncake would need input_length, output_length too"),
        ("{\n", "not a whole JSON object"),
        ("", "the file is empty"),
        ("\x00\x01\xff", "the first line is not text"),
        (AZURE.replace(",", ";"), "this azure file are separated by ';'; allowed: commas"),
        (BURSTGPT.replace(",", "\t"), "this burstgpt file are separated by tabs"),
        ("PK\x03\x04 and so on", "zip files are not supported"),
    ],
)
def test_what_is_not_recognised_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        detected(written(tmp_path, text))


def test_a_format_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE)
    with pytest.raises(InputError, match="did you mean 'azure'"):
        open_trace(path, "azur")
    with pytest.raises(InputError, match="of the format azure, not windtunnel"):
        open_trace(path, "windtunnel")
    with pytest.raises(InputError, match="of the format azure, not mooncake"):
        open_trace(path, "mooncake")
    with pytest.raises(InputError, match="no such file"):
        open_trace(tmp_path / "nowhere")
    folder = tmp_path / "windtunnel-trace"
    folder.mkdir()
    with pytest.raises(InputError, match=r"this is a folder; allowed: one file$"):
        open_trace(folder)
    (folder / "control.jsonl").touch()  # of a run: no trace
    with pytest.raises(InputError, match=r"this is a folder; allowed: one file$"):
        open_trace(folder)
    (folder / "trace-000001.jsonl").touch()
    with pytest.raises(InputError, match=r"one file, such as .*/trace-000001\.jsonl$"):
        open_trace(folder)

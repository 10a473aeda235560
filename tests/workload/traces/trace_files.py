"""Small trace files that tests write, and requests that hypothesis makes up."""

import gzip
import json
from pathlib import Path

from hypothesis import strategies as st

from windtunnel.workload.traces.reading import open_trace
from windtunnel.workload.traces.record import TraceRequest

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:59.9805900,374,44\r\n"
    "2023-11-16 18:16:01.2305901,396,109\r\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 23:59:59.500000+00:00,2399,6\n"
    "2024-05-11 00:00:00+00:00,76,15\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,1087,0,1087,API log\n"
    "118,GPT-4,417,276,693,API log\n"
)
BURSTGPT_SESSIONS = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,1722ac82-0a46,43,GPT-4,906,446,1352,Conversation log\n"
    "19440161.5,d5983bf9-4b48,2,ChatGPT,36,29,65,Conversation log\n"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 27482, "input_length": 1024, "output_length": 7, "hash_ids": [0, 3]}\n'
    '{"timestamp": 27482, "input_length": 40, "output_length": 9}\n'
)
BLIS_HEADER = "trace_version: 3\ntime_unit: microseconds\nmode: real\nwarm_up_requests: 0\n"
BLIS = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,"
    "streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,"
    "reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,"
    "first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason\n"
    "0,c1,acme,critical,s1,0,sys,600,true,50,20,50,0,0,0,0,m,61000000,655,1000000,1000100,"
    "1200100,2000100,20,ok,,stop\n"
    '1,c1,acme,critical,s1,1,sys,600,true,70,0,70,0,0,0,0,m,0,0,2500000,2500000,0,0,0,error,"a, b\n'
    'and more",\n'
    "2,c2,,,,0,,0,false,9,3,9,0,0,0,0,,0,0,1500000,0,0,0,0,ok,,\n"
)
SHAREGPT = [
    {
        "id": "talk",
        "conversations": [
            {"from": "human", "value": "x" * 40},
            {"from": "gpt", "value": "y" * 80},
            {"from": "human", "value": "z" * 9},
            {"from": "gpt", "value": "w" * 4},
        ],
    },
    {"conversations": [{"from": "gpt", "value": "no question"}]},
    {"messages": [{"role": "user", "content": "hm", "tokens": 100},
                  {"role": "assistant", "content": "", "tokens": 7}]},
]  # fmt: skip


def written(folder: Path, text: str | bytes, name: str = "trace.txt") -> Path:
    """A file with a text in it; packed when its name says so."""
    path = folder / name
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def conversations(folder: Path, *, lines: bool) -> Path:
    """The conversations as one list, or one a line."""
    if lines:
        return written(folder, "".join(json.dumps(item) + "\n" for item in SHAREGPT))
    return written(folder, json.dumps(SHAREGPT, indent=1))


def requests_of(path: Path, name: str | None = None, *, sort: bool = False) -> list[TraceRequest]:
    return list(open_trace(path, name, sort=sort))


_names = st.none() | st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8
) | st.sampled_from(["a,b", 'say "hi"', "two words", "=1"])  # fmt: skip
_tokens = st.integers(1, 10**7)
_spans = st.none() | st.floats(0, 1e6)
_keys = st.integers(-(2**63), 2**63 - 1)


@st.composite
def any_request(draw: st.DrawFn, number: int) -> TraceRequest:
    """A request with any fields; its id is `number` when it has one."""
    prompt = draw(_tokens)
    ends = tuple(sorted(draw(st.sets(st.integers(1, prompt), max_size=4))))
    return TraceRequest(
        draw(st.floats(0, 1e8)),
        prompt,
        draw(_tokens),
        id=draw(st.sampled_from([None, f"{number}", f"r-{number}"])),
        source=draw(_names),
        tenant=draw(_names),
        slo=draw(_names),
        session=draw(_names),
        turn=draw(st.none() | st.integers(0, 10**6)),
        model=draw(_names),
        adapter=draw(_names),
        deadline_s=draw(_spans),
        ttft_s=draw(_spans),
        e2e_s=draw(_spans),
        think_s=draw(_spans),
        answer_key=draw(st.none() | _keys),
        media_tokens=draw(st.none() | st.integers(0, prompt)),
        prefix_keys=tuple(draw(_keys) for _ in ends),
        prefix_ends=ends,
    )


@st.composite
def any_trace(draw: st.DrawFn) -> list[TraceRequest]:
    """Requests in order of arrival."""
    made = [draw(any_request(number)) for number in range(draw(st.integers(0, 6)))]
    return sorted(made, key=lambda request: request.arrived_s)

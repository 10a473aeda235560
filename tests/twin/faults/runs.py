"""Small runs in which something goes wrong, every invariant checked after every event."""

from typing import Any

from tests.core.sinks import MemorySink
from windtunnel.core.telemetry import Event
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

# A prompt is a step of 10 ms, a token after it another: an answer of 100 tokens takes 1 s.
PLAIN = """\
name: plain
{duration}
workload:
  - name: chat
    count: {count}
    arrivals: {{process: constant, rate: {rate}}}
    prompt_tokens: 10
    output_tokens: {output}
serving:
  pools:
    - name: main
      replicas: {replicas}
      engine: {{kv_blocks: 1000, max_num_seqs: {slots}, async_scheduling: false}}
      step_time: {{model: linear, fixed: 10ms}}
  startup: {{load: {{mean: {load}}}}}
faults:
{faults}
"""


def plain(
    *faults: str,
    count: int = 1,
    rate: str = "1/s",
    output: int = 100,
    replicas: int = 1,
    slots: int = 8,
    load: str = "2s",
    duration: str = "",
) -> str:
    """The text of a scenario; each of `faults` is a mapping in one line."""
    lines = "\n".join(f"  - {{{fault}}}" for fault in faults)
    return PLAIN.format(
        count=count,
        rate=rate,
        output=output,
        replicas=replicas,
        slots=slots,
        load=load,
        duration=duration and f"duration: {duration}",
        faults=lines,
    )


def faulty(text: str, *sets: str) -> tuple[dict[str, Any], list[Event]]:
    """The result and the events of a run."""
    sink = MemorySink()
    plan = load_text(text, sets=sets)
    return run(plan, events=sink, check=True).result, sink.events


def ends(events: list[Event]) -> list[float]:
    """When requests ended, in order."""
    return [event.time for event in events if event.kind == "request.ended"]

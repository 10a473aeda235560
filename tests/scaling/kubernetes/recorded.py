"""A folder with a scenario and a gateway's trace, and Autoscalers that are checked on them."""

import json
from pathlib import Path
from typing import Any

from tests.scaling.kubernetes.pods import HPA

CANARY: dict[str, Any] = {"scenario": "fleet.yaml", "trace": "trace", "last": "1h"}
WIDER: dict[str, Any] = {**HPA, "pools": {"main": {"min": 1, "max": 9}}}
"""Eight replicas were enough: nothing changes."""
STARVED: dict[str, Any] = {**HPA, "pools": {"main": {"min": 1, "max": 1}}}
"""One replica is far too little."""
SCENARIO = """\
name: fleet
duration: 1min
workload: [{name: chat, arrivals: {rate: 1/s}, prompt_tokens: 100, output_tokens: 10}]
slo:
  critical: {ttft: 500ms}
serving:
  pools:
    - name: main
      replicas: 3
      price_per_hour: 2
      engine: {kv_blocks: 400, max_num_seqs: 4}
      step_time: {model: linear, fixed: 10ms, per_prefill_token: 20us, per_decode: 100us}
"""


def record_traffic(folder: Path, requests: int = 600) -> None:
    """A minute at ten requests a second, as a gateway writes it."""
    (folder / "trace").mkdir(parents=True)
    (folder / "fleet.yaml").write_text(SCENARIO)
    rows = (
        {"arrived": at / 10, "prompt_tokens": 200, "output_tokens": 60, "id": str(at),
         "slo": "critical", "outcome": "completed"}
        for at in range(requests)
    )  # fmt: skip
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "trace" / "trace-000001.jsonl").write_text(text)

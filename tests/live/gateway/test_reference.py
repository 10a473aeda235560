"""The reference page of the gateway says what its settings say."""

import json
import runpy
from pathlib import Path

import windtunnel as wt
from windtunnel.admission.reasons import Reason
from windtunnel.live.gateway.data_path.exchange import MESSAGES, STATUSES

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_what_the_settings_say() -> None:
    page = runpy.run_path(str(DOCS / "gateway_reference.py"))["page"]()
    written = (DOCS / "reference" / "gateway.md").read_text(encoding="utf-8")
    assert written == page, "run `python docs/gateway_reference.py`"


def test_the_scenario_of_the_how_to_replays_a_trace(tmp_path: Path) -> None:
    text = (DOCS / "how-to" / "put-a-gateway-in-front-of-servers.md").read_text(encoding="utf-8")
    scenario = text.split("## Replay what happened")[1].split("```yaml\n")[1].split("```")[0]
    (tmp_path / "replay.yaml").write_text(scenario)
    line = {"arrived": 0.0, "prompt_tokens": 8, "output_tokens": 2, "slo": "interactive"}
    (tmp_path / "windtunnel-trace").mkdir()
    (tmp_path / "windtunnel-trace" / "trace-000001.jsonl").write_text(json.dumps(line))
    assert len(wt.simulate(tmp_path / "replay.yaml").requests) == 1


def test_every_reason_to_refuse_has_a_status_and_a_message() -> None:
    admitting = {"always", "bucket-holds", "protected", "light-load", "room", "idle-fleet"}
    refusing = {str(reason) for reason in Reason} - admitting
    assert refusing <= set(STATUSES)
    assert set(STATUSES) == set(MESSAGES)

"""The reference page of the gateway says what its settings say."""

import runpy
from pathlib import Path

from windtunnel.admission.gateway import Reason
from windtunnel.live.gateway.data_path.exchange import MESSAGES, STATUSES

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_what_the_settings_say() -> None:
    page = runpy.run_path(str(DOCS / "gateway_reference.py"))["page"]()
    written = (DOCS / "reference" / "gateway.md").read_text(encoding="utf-8")
    assert written == page, "run `python docs/gateway_reference.py`"


def test_every_reason_to_refuse_has_a_status_and_a_message() -> None:
    admitting = {"always", "bucket-holds", "protected", "light-load", "room", "idle-fleet"}
    refusing = {str(reason) for reason in Reason} - admitting
    assert refusing <= set(STATUSES)
    assert set(STATUSES) == set(MESSAGES)

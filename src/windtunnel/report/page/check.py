"""check.html: a check as one offline file."""

from typing import Any

from windtunnel.report.page.comparison import STYLES, comparison_values
from windtunnel.report.page.document import document
from windtunnel.report.terminal.check import decision_rows, limit_rows, outcome_of, traffic_of

LOOKS = {"passed": "better", "failed": "worse", "uncertain": "unseen"}
OVER_BLOCKS = (
    "Figures are of one run each, on the same traffic.",
    "Each bar is the 95% confidence interval of a difference. A difference is seen where the "
    "interval excludes zero, the vertical line.",
    "Intervals come from a paired bootstrap over blocks of time; times, rates and costs as ratios.",
)


def check_page(found: dict[str, Any]) -> str:
    """The page, as HTML."""
    values = comparison_values(found)
    if found["blocks"] is not None:
        values |= dict(zip(("figures", "bars", "how"), OVER_BLOCKS, strict=True))
    values |= {
        "kind": "check",
        "traffic": traffic_of(found),
        "outcome": outcome_of(found),
        "limits": [(*row, LOOKS[row[-1]]) for row in limit_rows(found)],
        "decisions": decision_rows(found),
    }
    return document("check.html", values, styles=STYLES, filters={})

"""What the files of a run's folder are called."""

RESULT = "result.json"
SCENARIO = "scenario.json"
REQUESTS = "requests.parquet"
TIMELINE = "timeline.parquet"
TOKEN_GAPS = "token_gaps.parquet"  # noqa: S105 - a file's name, of no secret
EVENTS = "events.jsonl"
CONTROL = "control.jsonl"
REPORT = "report.html"
ALL = (RESULT, SCENARIO, REQUESTS, TIMELINE, TOKEN_GAPS, EVENTS, CONTROL, REPORT)
"""Whatever else is in a folder is not ours."""

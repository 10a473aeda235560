"""Ended requests as columns, filled as requests end, so that the requests themselves can be freed.

The fields that every request has are packed row by row. A column that most runs do not need is a
list that stays empty as long as all its values are the usual one.
"""

from struct import Struct
from typing import Any, Final

from mypy_extensions import i64

from windtunnel.twin.results.reasons import reason_of
from windtunnel.workload.request import NEVER, UNSET, LostTry, Request

PACKED: Final = (
    *(("id", "q"), ("server", "q"), ("prompt_tokens", "q"), ("output_tokens", "q")),
    *(("arrived_s", "d"), ("routed_s", "d"), ("scheduled_s", "d")),
    *(("first_token_s", "d"), ("finished_s", "d")),
)
"""The fields of every row with their formats: attributes of a request."""
_ROW: Final = Struct("=" + "".join(kind for _, kind in PACKED))

USUAL: Final[dict[str, float]] = {
    **dict.fromkeys(("source", "tenant", "slo", "model", "turn", "media_tokens"), 0),
    **dict.fromkeys(("prefix_hit_tokens", "preemptions", "redirects", "retries", "outcome"), 0),
    **dict.fromkeys(("adapter", "session", "prefill_server"), -1),
    **dict.fromkeys(("admitted_s", "encoded_s", "restarted_s", "prefilled_s"), UNSET),
    **dict.fromkeys(("transfer_start_s", "transfer_end_s"), UNSET),
    "deadline_s": NEVER,
}
"""The other columns with their usual values: a list has its attribute's name, and is empty or has
every row."""


class RequestColumns:
    """Numbers and times of ended requests; `outcomes` are the possible ones."""

    def __init__(self, outcomes: tuple[str, ...]) -> None:
        self._number: Final = {outcome: number for number, outcome in enumerate(outcomes)}
        self.rows = 0
        self.packed = bytearray()
        self.reasons: Final[dict[int, str]] = {}
        self.lost_tries: Final[dict[int, list[LostTry]]] = {}
        self.pauses: Final[dict[int, list[float]]] = {}
        """By row, for rows that have any."""
        self.outcome: list[int] = []
        self.source: list[int] = []
        self.tenant: list[int] = []
        self.slo: list[int] = []
        self.adapter: list[int] = []
        self.model: list[int] = []
        self.session: list[int] = []
        self.turn: list[int] = []
        self.media_tokens: list[int] = []
        self.prefix_hit_tokens: list[int] = []
        self.preemptions: list[int] = []
        self.redirects: list[int] = []
        self.retries: list[int] = []
        self.prefill_server: list[int] = []
        self.deadline_s: list[float] = []
        self.admitted_s: list[float] = []
        self.encoded_s: list[float] = []
        self.restarted_s: list[float] = []
        self.prefilled_s: list[float] = []
        self.transfer_start_s: list[float] = []
        self.transfer_end_s: list[float] = []

    def add(self, requests: list[Request], outcomes: list[str]) -> None:
        """Adds requests with their outcomes, in the order in which they ended."""
        for row in range(len(requests)):
            self._add(requests[row], outcomes[row])

    def _add(self, request: Request, outcome: str) -> None:
        row = self.rows
        self.rows += 1
        self.packed += _ROW.pack(
            request.id,
            request.server,
            request.prompt_tokens,
            request.output_tokens,
            request.arrived_s,
            request.routed_s,
            request.scheduled_s,
            request.first_token_s,
            request.finished_s,
        )
        _put(self.outcome, self._number[outcome], 0, row)
        _put(self.source, request.source, 0, row)
        _put(self.tenant, request.tenant, 0, row)
        _put(self.slo, request.slo, 0, row)
        _put(self.adapter, request.adapter, -1, row)
        _put(self.model, request.model, 0, row)
        _put(self.session, request.session, -1, row)
        _put(self.turn, request.turn, 0, row)
        _put(self.media_tokens, request.media_tokens, 0, row)
        _put(self.prefix_hit_tokens, request.prefix_hit_tokens, 0, row)
        _put(self.preemptions, request.preemptions, 0, row)
        _put(self.redirects, request.redirects, 0, row)
        _put(self.retries, request.retries, 0, row)
        _put(self.prefill_server, request.prefill_server, -1, row)
        _put_s(self.deadline_s, request.deadline_s, NEVER, row)
        _put_s(self.admitted_s, request.admitted_s, UNSET, row)
        _put_s(self.encoded_s, request.encoded_s, UNSET, row)
        _put_s(self.restarted_s, request.restarted_s, UNSET, row)
        _put_s(self.prefilled_s, request.prefilled_s, UNSET, row)
        _put_s(self.transfer_start_s, request.transfer_start_s, UNSET, row)
        _put_s(self.transfer_end_s, request.transfer_end_s, UNSET, row)
        reason = reason_of(request, outcome)
        if reason:
            self.reasons[row] = reason
        if request.lost_tries is not None:
            self.lost_tries[row] = request.lost_tries
        if request.pauses is not None:
            self.pauses[row] = request.pauses

    def column(self, name: str) -> Any:
        """All values of an attribute as an array: whole numbers, or seconds."""
        import numpy as np

        kinds = {"q": np.int64, "d": np.float64}
        packed = [(each, kinds[kind]) for each, kind in PACKED]
        if name in dict(packed):
            return np.frombuffer(self.packed, packed)[name]
        kind = np.float64 if name.endswith("_s") else np.int64
        values: list[Any] = getattr(self, name)
        return np.array(values, kind) if values else np.full(self.rows, USUAL[name], kind)


def _put(column: list[int], value: i64, usual: i64, row: int) -> None:
    if value != usual or column:
        if not column:
            column.extend([int(usual)] * row)
        column.append(int(value))


def _put_s(column: list[float], value: float, usual: float, row: int) -> None:
    if value != usual or column:
        if not column:
            column.extend([usual] * row)
        column.append(value)

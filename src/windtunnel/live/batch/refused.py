"""Rows that a server refused, and whether that is their own fault.

A refusal that is about a row drops it for good. One that all rows would meet (a wrong option, a
model or a gateway that is gone) must not. Until something says which it is, the lines of such rows
are kept back; a run that ends before that is known leaves them to the next.
"""

from typing import Any, Final

from windtunnel.live.batch.replies import ABOUT_ALL, Failure

IN_A_ROW: Final = 20
"""So many refusals of a kind that may be about all, and no answer between: it is about all."""
MOST_FIRST: Final = 1000
"""So many bad rows before the first good one, should some of the first never come back."""

Line = dict[str, Any]


class RefusedRows:
    """What was refused and is not listed yet."""

    def __init__(self, *, skip_bad: int, has_answered: bool) -> None:
        """`has_answered`: an earlier run of the same work finished rows, so what is asked is right.

        `skip_bad` rows that come back first may all be refused, and not one more.
        """
        self._skip_bad: Final = skip_bad
        self._has_answered = has_answered
        self._first_rows: Final[dict[int, None]] = {}
        """The rows that were asked for first, as many as it takes to see what is wrong."""
        self._first_refused = 0
        self._first: list[Line] = []
        self._in_a_row: Final[dict[str, list[Line]]] = {}

    def asked(self, row: int) -> None:
        if len(self._first_rows) <= self._skip_bad:
            self._first_rows[row] = None

    def answered(self, endpoint: str) -> list[Line]:
        """An endpoint answered: the lines of rows that are at fault themselves."""
        self._has_answered = True
        lines, self._first = self._first, []
        return lines + self._in_a_row.pop(endpoint, [])

    def refused(self, row: int, failure: Failure, line: Line) -> list[Line]:
        """A row was refused: the lines that may be listed now."""
        if not self._has_answered:
            # That others were refused sooner than the first were answered says nothing.
            self._first.append(line)
            self._first_refused += row in self._first_rows
            return []
        if failure.status not in ABOUT_ALL:
            return [line]
        self._in_a_row.setdefault(failure.endpoint, []).append(line)
        return []

    def verdict(self, failure: Failure) -> str:
        """Why the run should end after this refusal, if it should."""
        last = f"the last with {failure.code}: {failure.message}"
        first = len(self._first)
        if self._first_refused > self._skip_bad or first >= max(MOST_FIRST, self._skip_bad + 1):
            return (
                f"the first {first:,} rows that came back were all refused, {last}; if it is the "
                f"rows that are bad, --skip-bad {10 * first} goes past so many"
            )
        count = len(self._in_a_row.get(failure.endpoint, ()))
        if count >= IN_A_ROW:
            return f"{failure.endpoint} refused {count:,} rows one after another, {last}"
        return ""

    def rest(self) -> list[Line]:
        """All that was kept back, at the end."""
        lines = self._first
        for kept in self._in_a_row.values():
            lines = lines + kept
        self._first = []
        self._in_a_row.clear()
        return lines

"""What a reader skipped or repaired in a trace, and why."""

from typing import NamedTuple

from windtunnel.core.errors import InputError, nearest
from windtunnel.workload.traces.record import LONGEST_NAME, TraceRequest, fault_of

MOST_FAULTS_KEPT = 5
MOST_IDS_REMEMBERED = 1_000_000
"""Ids remembered apart from consecutive numbers; beyond that, repetitions are no longer noticed."""
MOST_NAMES_CACHED = 10_000


class Words(NamedTuple):
    """Hints in the words of the place where the trace was named: the command line or a scenario."""

    skip_bad: str
    sort: str
    rate: str
    format: str


COMMAND_WORDS = Words(
    skip_bad="--skip-bad N leaves out up to N bad rows",
    sort="--sort sorts",
    rate="--rate gives conversations per second",
    format="--from FORMAT names the format",
)
SCENARIO_WORDS = Words(
    skip_bad="`skip_bad: N` leaves out up to N bad rows",
    sort="`sort: true` sorts",
    rate="`windtunnel trace convert --rate` writes a trace that has them",
    format="`format` names the format",
)


class Repairs(NamedTuple):
    """Irregularities of a file that were repaired while reading."""

    late: int = 0
    """Requests after one that arrived later; they were sorted."""
    first_late: int = 0
    """The line of the first such request; `first_blank` likewise."""
    blank: int = 0
    """Empty lines between others; skipped."""
    first_blank: int = 0

    def sentences(self) -> list[str]:
        """Sentences about the repairs, without the file's name."""
        found = []
        if self.late:
            rows = "1 row was" if self.late == 1 else f"{self.late:,} rows were"
            found.append(f"{rows} out of order (the first: {self.first_late}) and sorted")
        if self.blank:
            lines = "1 empty line was" if self.blank == 1 else f"{self.blank:,} empty lines were"
            found.append(f"{lines} skipped (the first: {self.first_blank})")
        return found


class TraceNotes:
    """Counts what a reader leaves out of one file, and decides whether that is allowed."""

    def __init__(self, path: str, skip_bad: int = 0, words: Words = COMMAND_WORDS) -> None:
        self.path = path
        self.words = words
        self.classes: frozenset[str] | None = None
        """The allowed classes of service; None allows any."""
        self.skip_bad = skip_bad
        self.line = 0
        """The line of the latest request."""
        self.bad = 0
        """Unreadable rows that were left out."""
        self.empty = 0
        """Requests left out because they have no prompt or no output: they failed when recorded."""
        self.is_followed = False
        """Whether turns follow the end of the previous turn, as the file has no times."""
        self.repairs = Repairs()
        self.prefix_tokens = 0
        """Prompt tokens that a run found in its caches, if its file has no prefix keys."""
        self.faults: list[InputError] = []
        """The first few faults of rows that were left out."""

    def skip(self, what: str, line: int | None) -> None:
        """Skips a bad row; raises if no more may be skipped."""
        fault = self.fault(what, line)
        if self.bad >= self.skip_bad:
            fault.hint = self.words.skip_bad
            if self.skip_bad:
                fault.hint = f"{self.bad} bad rows were skipped before it, the most allowed"
            raise fault
        self.bad += 1
        if len(self.faults) < MOST_FAULTS_KEPT:
            self.faults.append(fault)

    def late(self) -> None:
        """Counts the latest request as out of order: one before it in the file arrived later."""
        found = self.repairs
        first = found.first_late if found.late else self.line
        self.repairs = found._replace(late=found.late + 1, first_late=first)

    def blank(self, line: int) -> None:
        """Counts an empty line."""
        found = self.repairs
        first = found.first_blank if found.blank else line
        self.repairs = found._replace(blank=found.blank + 1, first_blank=first)

    def accepts(self, request: TraceRequest, line: int, earliest_s: float = 0.0) -> bool:
        """Whether a request is valid and not empty; otherwise it is counted and left out."""
        fault = fault_of(request, earliest_s)
        if fault:
            self.skip(fault, line)
            return False
        if not request.prompt_tokens or not request.output_tokens:
            self.empty += 1
            return False
        if request.slo is not None:
            self.check_class(request.slo, line)
        self.line = line
        return True

    def check_class(self, slo: str, line: int) -> None:
        """Rejects an SLO class that is not defined."""
        if self.classes is not None and slo not in self.classes:
            known = sorted(self.classes)
            hint = nearest(slo, known) or "define it under `slo`, or give the trace an `slo`"
            what = f"{slo!r} is not a class of service"
            raise self.fault(what, line, allowed=", ".join(known), hint=hint)

    def fault(self, what: str, line: int | None = None, **parts: str | None) -> InputError:
        where = self.path if line is None else f"{self.path}:{line}"
        return InputError(what, where=where, **parts)


class IdCheck:
    """Detects repeated ids. Consecutive numbers need no memory."""

    def __init__(self) -> None:
        self._first = self._next = -1
        self._others: set[str] = set()

    def repeated(self, text: str) -> bool:
        number = int(text) if text.isdecimal() and len(text) < 20 else -1
        if str(number) == text:
            if self._first < 0:
                self._first = self._next = number
            if number == self._next:
                self._next += 1
                return text in self._others
            if self._first <= number < self._next:
                return True
        if text in self._others:
            return True
        if len(self._others) < MOST_IDS_REMEMBERED:
            self._others.add(text)
        return False


class NameCheck:
    """Checks each name once, and keeps a single copy of repeated ones."""

    def __init__(self) -> None:
        self._known: dict[str, str | None] = {"": None}

    def __call__(self, text: str) -> str | None:
        """The name, or None if it is empty; raises ValueError if it is invalid."""
        if text in self._known:
            return self._known[text]
        if len(text) > LONGEST_NAME:
            raise ValueError(f"a name has more than {LONGEST_NAME} characters")
        if not text.isprintable():
            raise ValueError(f"the name {text[:60]!a} has unprintable characters")
        if len(self._known) >= MOST_NAMES_CACHED:
            self._known = {"": None}
        self._known[text] = text
        return text


def whole(text: str) -> int:
    """Parses a whole number, also if a spreadsheet wrote it as `12.0`; else a ValueError."""
    try:
        return int(text)
    except ValueError:
        pass
    number = _number(text)
    if not number.is_integer():
        raise ValueError(f"{text[:60]!a} is not a whole number")
    return int(number)


def seconds(text: str) -> float:
    """Parses a finite number; raises ValueError otherwise."""
    return _number(text)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        shown = f"{text[:60]!a} is not a number" if text.strip() else "a number is missing"
        raise ValueError(shown) from None
    if number - number != 0:
        raise ValueError(f"{text[:60]!a} is not a number")
    return number

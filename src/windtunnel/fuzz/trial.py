"""Runs one scenario with every invariant checked, and reports what failed, if anything."""

import hashlib
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Final

import msgspec

from windtunnel.core.errors import InputError, InvariantBroken, NoFixedPoint
from windtunnel.core.telemetry import CountingSink
from windtunnel.core.vocabulary import general
from windtunnel.fuzz.documents import FILES, write_beside, write_document
from windtunnel.settings.document import Document
from windtunnel.settings.drawing import Values
from windtunnel.twin.progress import NO_PROGRESS, Furthest
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import Run, run
from windtunnel.twin.scenario.load import load, load_document
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.simulation import Simulation
from windtunnel.workload.request import Request

INVARIANT: Final = "invariant"
ERROR: Final = "error"
ENDLESS: Final = "endless"
DIFFERS: Final = "differs"
REFUSED: Final = "refused"
DIED: Final = "died"
OUT_OF_TIME: Final = "out of time"
"""The name of a breach whose run exceeded its time limit."""

ENOUGH_EVENTS = 10_000
"""Events after which a long run is cut off, if a request finished or got further in the second half
of them: it is long but not endless. Drawn scenarios end within some thousands of events."""
LIMITS: Final = {"restarts": 100, "resizes": 1_000, "events": 50_000}
"""`progress` of a trial whose scenario sets none. Drawn scenarios are small: a run that exceeds
these limits while no request finishes will not end."""

LIMIT = re.compile(r"\(progress\.(\w+)")
"""Matches the limit that a sentence about a livelock names."""
OURS = "windtunnel"
FOLDER = re.compile(r"\S*windtunnel-fuzz-[^/\\]+[/\\]")
"""Matches the temporary folder of a trial in a sentence, which differs every time."""
NOWHERE = Path(gettempdir(), "windtunnel-fuzz-nowhere")
"""The folder of a scenario that names no files; it does not exist."""
SCENARIO = "scenario.yaml"


class Breach(msgspec.Struct, frozen=True):
    """What failed. Breaches of the same kind and name are assumed to have the same cause."""

    what: str
    """One of the constants above."""
    name: str
    """The invariant, or the type of an exception and where it was raised."""
    sentence: str
    """The message for people."""

    @property
    def cause(self) -> tuple[str, str]:
        return self.what, self.name


class TookTooLong(BaseException):
    """A run exceeds its time limit. Not an `Exception`, so that no handler catches it."""


def attempt(document: Values, *, twice: bool = False, as_text: bool = True) -> Breach | None:
    """Runs a scenario like a user's file, with invariants checked after every event.

    With `twice` it is run again, with sinks and without checks: this must not change the result.
    """
    try:
        with loaded(with_limits(document), as_text=as_text) as plan:
            return _run(plan, twice=twice)
    except InputError as refusal:
        return Breach(REFUSED, _without_place(refusal), FOLDER.sub("", str(refusal)))
    except NoFixedPoint as endless:
        return Breach(ENDLESS, general(endless.what), f"it never begins: {endless.what}")
    except InvariantBroken as broken:
        return Breach(INVARIANT, invariant_of(broken), str(broken))
    except TookTooLong:
        return Breach(ENDLESS, OUT_OF_TIME, "the run does not end in its time")
    except Exception as error:  # noqa: BLE001 - whatever escapes is what we look for
        return escaped(error)


def _run(plan: ScenarioPlan, *, twice: bool) -> Breach | None:
    checked = run(plan, check=True, look=_Watch().look)
    if checked.result["ended_by"] == NO_PROGRESS:
        sentence = checked.result["partial"]
        return None if _is_asked_for(plan, sentence) else _livelock(sentence)
    if not twice:
        return None
    again = run(plan, rows=_NoRows(), events=CountingSink(), look=_Watch().look)
    if digest_of(checked) == digest_of(again):
        return None
    keys = [key for key, value in _said(checked).items() if value != again.result[key]]
    return Breach(DIFFERS, "digest", f"a second run gives other values under {', '.join(keys)}")


def _is_asked_for(plan: ScenarioPlan, sentence: str) -> bool:
    """Whether a livelock is what the scenario describes, so that reporting it is correct.

    With `wake: false` an autoscaler may remove the last server from the requests that run on it; if
    it counts queued requests, it then starts one again, endlessly.
    """
    return plan.scaling is not None and not plan.scaling.timing.wake and "drains)" in sentence


def _livelock(sentence: str) -> Breach:
    """The breach of a run without progress, named by the limit that ended it."""
    limit = LIMIT.search(sentence)
    name = f"progress.{limit[1]}" if limit is not None else general(sentence)
    return Breach(ENDLESS, name, sentence)


def with_limits(document: Values) -> Values:
    """The scenario with limits of progress for those that it does not set."""
    own = document.get("progress")
    return {**document, "progress": {**LIMITS, **(own if isinstance(own, dict) else {})}}


def probe(document: Values, *, as_text: bool = True) -> Breach | None:
    """Only loads a scenario that may be invalid: a rejection is correct if it is an InputError."""
    try:
        with loaded(document, as_text=as_text):
            return None
    except InputError:
        return None
    except Exception as error:  # noqa: BLE001 - as above
        return escaped(error)


@contextmanager
def loaded(document: Values, *, as_text: bool = True) -> Iterator[ScenarioPlan]:
    """Loads a scenario through a file, so that everything is resolved as for a user's file.

    Writing and reading YAML takes as long as checking it: without `as_text`, only the files beside
    the scenario are written. They exist until the end of the block, since a run reads its traces as
    it goes.
    """
    if not as_text and FILES not in document:
        yield load_document(Document(str(Path(NOWHERE, SCENARIO)), {**document}, {}))
        return
    with TemporaryDirectory(prefix="windtunnel-fuzz-") as folder:
        path = Path(folder, SCENARIO)
        if as_text:
            write_document(path, document, put=Path.write_bytes)
            yield load(path)
            return
        write_beside(path, document, put=Path.write_bytes)
        scenario = {key: value for key, value in document.items() if key != FILES}
        yield load_document(Document(str(path), scenario, {}))


def digest_of(done: Run) -> str:
    """Digest of a run's result, without the counts of invariant checks."""
    return hashlib.sha256(msgspec.json.encode(_said(done))).hexdigest()


def _said(done: Run) -> dict[str, Any]:
    return {key: value for key, value in done.result.items() if key != "invariants"}


def invariant_of(broken: InvariantBroken) -> str:
    """The name of the invariant, or else its message without numbers."""
    quoted = broken.what.split("'")
    return quoted[1] if len(quoted) > 2 else general(broken.what)


class _Watch:
    """Watches a run, and ends one that is long but making progress: it would show nothing new."""

    def __init__(self) -> None:
        self._ended = 0  # requests that had finished
        self._furthest = Furthest()
        self._next = 0  # the event at which to see whether a request got further
        self._events = 0  # the event at which one had last finished or got further

    def look(self, simulation: Simulation) -> None:
        ended, events = simulation.recorder.ended, simulation.events
        if ended != self._ended:
            self._ended, self._events = ended, events
        if events >= self._next:
            self._next = events + ENOUGH_EVENTS // 4
            if self._furthest.advanced(simulation.requests.reached()):
                self._events = events
        if events > ENOUGH_EVENTS and self._events > ENOUGH_EVENTS // 2:
            simulation.end_early("events", f"{events} events")


def _without_place(refusal: InputError) -> str:
    """The fault without its line in the file, which shrinking changes."""
    path = FOLDER.sub("", refusal.where or "").rpartition(": ")[2]
    return f"{path}: {refusal.what}"


def escaped(error: Exception) -> Breach:
    """The breach for an exception: its type, and the innermost function of ours in its trace."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if OURS in Path(frame.filename).parts]
    place = "nowhere"
    if ours:
        path = Path(ours[-1].filename)
        place = f"{path.parent.name}/{path.stem}:{ours[-1].name}"
    kind = type(error).__name__
    return Breach(ERROR, f"{kind} in {place}", "".join(traceback.format_exception(error)).rstrip())


class _NoRows:
    """A sink that takes the rows of ended requests and keeps none."""

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        pass

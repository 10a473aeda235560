"""Runs one scenario with every invariant, and says what broke, if anything did."""

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
from windtunnel.twin.progress import NO_PROGRESS
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
"""The name of a run that was ended by a clock."""

ENOUGH_EVENTS = 10_000
"""Drawn scenarios end within some thousands of events. One that has had so many is cut off when a
request of it finished in the second half of them: it is long, and not endless."""
LIMITS: Final = {"restarts": 100, "resizes": 1_000, "events": 50_000}
"""`progress` of a trial where its scenario has none. Drawn scenarios are small: what repeats so
often while no request finishes will not end."""

LIMIT = re.compile(r"\(progress\.(\w+)")
"""The limit that a sentence about a livelock names."""
OURS = "windtunnel"
FOLDER = re.compile(r"\S*windtunnel-fuzz-[^/\\]+[/\\]")
"""The folder of a trial in a sentence, where it is another every time."""
NOWHERE = Path(gettempdir(), "windtunnel-fuzz-nowhere")
"""The folder of a scenario that names no files."""
SCENARIO = "scenario.yaml"


class Breach(msgspec.Struct, frozen=True):
    """What broke: of two breaches with one kind and one name, the cause is taken to be one."""

    what: str
    """One of the words above."""
    name: str
    """The invariant, or the exception and where it came from."""
    sentence: str
    """What a person reads."""

    @property
    def cause(self) -> tuple[str, str]:
        return self.what, self.name


class TookTooLong(BaseException):
    """A run takes more time than it has. No `Exception`: what is interrupted must not handle it."""


def attempt(document: Values, *, twice: bool = False, as_text: bool = True) -> Breach | None:
    """Runs a scenario as a user's file would be, invariants checked after every event.

    With `twice` it is run again, with listeners and without checks: nothing may change by that.
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
    rows, events = _Digest(), CountingSink()
    again = run(plan, rows=rows, events=events, look=_Watch().look)
    if digest_of(checked) == digest_of(again):
        return None
    keys = [key for key, value in _said(checked).items() if value != again.result[key]]
    return Breach(DIFFERS, "digest", f"a second run gives other values under {', '.join(keys)}")


def _is_asked_for(plan: ScenarioPlan, sentence: str) -> bool:
    """Whether a livelock is what the scenario describes, so that its sentence is the right result.

    With `wake: false` an autoscaler may take the last server from the requests that run on it; if
    it counts those that wait, it starts one for them again, for ever.
    """
    return plan.scaling is not None and not plan.scaling.timing.wake and "drains)" in sentence


def _livelock(sentence: str) -> Breach:
    """A run without progress, by the limit that ended it."""
    limit = LIMIT.search(sentence)
    name = f"progress.{limit[1]}" if limit is not None else general(sentence)
    return Breach(ENDLESS, name, sentence)


def with_limits(document: Values) -> Values:
    """The scenario with limits of progress where it has none of its own."""
    own = document.get("progress")
    return {**document, "progress": {**LIMITS, **(own if isinstance(own, dict) else {})}}


def probe(document: Values, *, as_text: bool = True) -> Breach | None:
    """Only loads a scenario that may be nonsense: a refusal is right, if it is a sentence."""
    try:
        with loaded(document, as_text=as_text):
            return None
    except InputError:
        return None
    except Exception as error:  # noqa: BLE001 - as above
        return escaped(error)


@contextmanager
def loaded(document: Values, *, as_text: bool = True) -> Iterator[ScenarioPlan]:
    """By way of a file, so that everything is looked up that a user's file has looked up.

    Writing YAML and reading it again takes as long as checking it: without `as_text` only files
    beside the scenario are written. They are there until the end of the block: a run reads its
    traces as it goes.
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
    """Of all that a run says, but for how often it was checked."""
    return hashlib.sha256(msgspec.json.encode(_said(done))).hexdigest()


def _said(done: Run) -> dict[str, Any]:
    return {key: value for key, value in done.result.items() if key != "invariants"}


def invariant_of(broken: InvariantBroken) -> str:
    """The name of the invariant, or else its message without numbers."""
    quoted = broken.what.split("'")
    return quoted[1] if len(quoted) > 2 else general(broken.what)


class _Watch:
    """Looks at a run now and then, and ends one that is long: it goes on, but shows nothing new."""

    def __init__(self) -> None:
        self._ended = 0  # requests that had finished
        self._events = 0  # at which event that was first seen

    def look(self, simulation: Simulation) -> None:
        ended, events = simulation.recorder.ended, simulation.events
        if ended != self._ended:
            self._ended, self._events = ended, events
        if events > ENOUGH_EVENTS and self._events > ENOUGH_EVENTS // 2:
            simulation.end_early("events", f"{events} events")


def _without_place(refusal: InputError) -> str:
    """The fault without the line of the file, which shrinking moves."""
    path = FOLDER.sub("", refusal.where or "").rpartition(": ")[2]
    return f"{path}: {refusal.what}"


def escaped(error: Exception) -> Breach:
    """An exception by its kind and the innermost place of ours that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if OURS in Path(frame.filename).parts]
    place = "nowhere"
    if ours:
        path = Path(ours[-1].filename)
        place = f"{path.parent.name}/{path.stem}:{ours[-1].name}"
    kind = type(error).__name__
    return Breach(ERROR, f"{kind} in {place}", "".join(traceback.format_exception(error)).rstrip())


class _Digest:
    """Takes the rows of ended requests, and only reads them."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:  # noqa: ARG002
        self.rows += len(requests)

"""Decisions of the autoscaler, made again from its log, are the same byte for byte."""

import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.kubernetes.pods import HPA, pods, reading, target
from tests.scaling.manifests.texts import HOMOGENEOUS
from windtunnel.cli.live.audit import audit as audit_command
from windtunnel.core.errors import InputError
from windtunnel.live import event_log
from windtunnel.live.event_log import EventLogFile
from windtunnel.live.operate.audit import audit
from windtunnel.live.rotation import LogLimits
from windtunnel.scaling.kubernetes.autoscaler import API_VERSION, AUTOSCALER
from windtunnel.scaling.kubernetes.canary import CanaryOutcome
from windtunnel.scaling.kubernetes.control import ScaleOutcome, TickObservation, TickResult
from windtunnel.scaling.kubernetes.core import ScalingCore, StoredObject
from windtunnel.scaling.kubernetes.kthena import GROUPS, POLICY, VERSION
from windtunnel.scaling.kubernetes.plan import ObjectName
from windtunnel.scaling.kubernetes.snapshots import PoolObservation

CHAT = ObjectName(API_VERSION, AUTOSCALER, "ns", "chat")
THEIRS = ObjectName(f"{GROUPS[0]}/{VERSION}", POLICY, "ns", "theirs")
CANARY = {"scenario": "a.yaml", "trace": "trace"}
WAITING = {"name": "vllm:num_requests_waiting", "target": 2}
SPECS: list[dict[str, Any]] = [
    {"targets": [target()], "scaling": HPA},
    {"targets": [target()], "scaling": {**HPA, "metrics": [WAITING]}},
    {"targets": [target()], "scaling": {**HPA, "metrics": [WAITING]}, "canary": CANARY},
    {"targets": [target()], "scaling": {**HPA, "policy": "kthena-homogeneous", "metrics": []}},
    {"targets": [], "scaling": HPA},
]


class Script:
    """Tells a core facts, as the operator does, and keeps its log."""

    def __init__(self, path: Path) -> None:
        with patch.object(event_log, "ANEW_WITHIN", math.inf):  # every file begins anew
            self.log = EventLogFile(path, {}, "operator", LogLimits(1), records_anew=True)
        self.log.open()
        self.now_s = 1000.0
        self.core = ScalingCore(self.now_s, acts=True, record=self.log.record)
        self.sizes: dict[tuple[ObjectName, str], int] = {}
        self.generation = 0
        self.done = 0
        self.records: list[dict[str, Any]] = []
        self.edit(0)
        spec = HOMOGENEOUS["spec"]
        theirs = StoredObject(THEIRS, "uid-theirs", "2026-01-01T00:00:00Z", 1, spec)
        self.core.received(theirs, self.now_s)
        self.core.plan(self.now_s)

    def edit(self, number: int) -> None:
        self.generation += 1
        spec = SPECS[number % len(SPECS)]
        chat = StoredObject(CHAT, "uid-chat", "2026-01-02T00:00:00Z", self.generation, spec)
        self.core.received(chat, self.now_s)
        self.core.plan(self.now_s)

    def look(self, waiting: int) -> None:
        """All objects; the orders that come of it end in one way or another."""
        self.now_s += 15.0
        for named, one in self.core.objects.items():
            if one.control is not None:
                self._look_at(named, waiting)

    def _look_at(self, named: ObjectName, waiting: int) -> None:
        control = self.core.objects[named].control
        assert control is not None
        pools: dict[str, PoolObservation | str] = {}
        self.done += waiting
        seen = reading(waiting, 3, ended=self.done, first=self.done)
        for one in control.plan.targets:
            size = self.sizes.setdefault((named, one.pool), 2)
            pools[one.pool] = PoolObservation(size, pods(size), uid="target")
        if waiting == 13:
            pools = dict.fromkeys(pools, "the API server does not answer")
        readings = {f"uid-{number}": seen for number in range(waiting % 4)}
        taken = self.core.taken.get(named, {})
        made = self.core.decide(
            named, TickObservation(pools, readings, 0, ["slow"], taken), self.now_s
        )
        self.records.append({**control.record(), "canary": self.core.objects[named].gate.record()})
        self._carry_out(named, made, waiting)

    def _carry_out(self, named: ObjectName, made: TickResult, waiting: int) -> None:
        for order in made.orders:
            pool, outcome = order.target.pool, list(ScaleOutcome)[waiting % 4]
            self.core.carried_out(named, pool, outcome, "no", self.now_s + 0.25)
            if outcome in (ScaleOutcome.DONE, ScaleOutcome.UNKNOWN):
                self.sizes[named, pool] = order.replicas

    def resize(self, size: int) -> None:
        """By another writer."""
        for key in self.sizes:
            self.sizes[key] = size % 9

    def hpa(self, number: int) -> None:
        taken = {("Deployment", "ns", "main"): "HorizontalPodAutoscaler x"}
        self.core.others(taken if number % 2 else {}, self.now_s)
        self.core.plan(self.now_s)

    def check(self, number: int) -> None:
        ask = self.core.objects[CHAT].gate.pending(self.now_s)
        if ask is not None:
            outcome = CanaryOutcome((True, False, None)[number % 3], "as it is")
            self.core.checked(CHAT, ask, outcome, self.now_s)

    def restart(self, number: int) -> None:
        """Another leader's term, which goes on from a record."""
        self.now_s += 1.0
        known = self.core.objects
        self.core = ScalingCore(self.now_s, acts=number % 5 > 0, record=self.log.record)
        for one in known.values():
            self.core.received(one.stored, self.now_s)
        self.core.plan(self.now_s)
        for one in known.values():
            record = self.records[number % len(self.records)] if self.records else None
            self.core.restore(one.named, record, self.now_s)

    def fill(self, _: int) -> None:
        """The log is full."""
        self.log.flush()
        assert self.log.is_full
        self.log.begin_anew()
        self.core.log_anew(self.now_s)


STEPS = ("look", "look", "look", "look", "edit", "resize", "hpa", "check", "restart", "fill")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), max_size=25))
def test_every_decision_is_made_again(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        script = Script(path)
        for step, number in steps:
            play: Callable[[int], None] = getattr(script, step)
            play(number)
        script.log.close()
        before = Path(f"{path}.1")
        for one in (path, before) if before.exists() else (path,):
            report = audit(one)
            assert report.difference == ""
            assert not report.skipped
        if all(step == "look" for step, _ in steps):
            assert report.decisions >= sum(number != 13 for _, number in steps)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    script = Script(tmp_path / "log")
    for waiting in (4, 20, 30, 4):
        script.look(waiting)
    script.log.close()
    return tmp_path / "log"


def test_the_command_finds_a_decision_that_was_changed(log: Path) -> None:
    done = CliRunner().invoke(audit_command, [str(log)])
    assert done.exit_code == 0
    assert "decisions follow from" in done.output
    text = log.read_bytes()
    place = text.rindex(b'"target":')
    log.write_bytes(text[:place] + b'"target":7' + text[place + len(b'"target":') :])
    done = CliRunner().invoke(audit_command, [str(log)])
    assert done.exit_code == 1
    assert "the log has" in done.output


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((b"scaling.began", b"scaling.bogus"), "'autoscaler.received' is inconsistent"),
        ((b'"seen":[', b'"seen":[7,'), "'autoscaler.observed' is inconsistent"),
        ((b'"object":["windtunnel', b'"object":["other'), "is inconsistent"),
    ],
)
def test_a_log_with_other_facts_is_refused(
    log: Path, change: tuple[bytes, bytes], says: str
) -> None:
    log.write_bytes(log.read_bytes().replace(*change, 1))
    with pytest.raises(InputError, match=says):
        audit(log)


def test_lines_of_gangs_and_machines_are_left_out_and_a_torn_line_is_said(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b'{"time":1.0,"kind":"gangs.decided","subject":"x"}\n{"time":1')
    report = audit(log)
    assert report.cut
    assert report.skipped == 1
    done = CliRunner().invoke(audit_command, [str(log)])
    assert "1 lines about gangs and machines were not replayed" in done.output

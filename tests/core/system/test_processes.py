"""Calls in other processes: every task has its answer, and whatever dies takes one with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core import calls
from windtunnel.core.errors import InputError, WindtunnelError
from windtunnel.core.system.processes import Died, Processes, Raised, Returned

pytestmark = [pytest.mark.xdist_group("workers"), pytest.mark.once]


def no_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def test_every_task_has_its_answer_and_the_rest_outlive_those_that_fail() -> None:
    words = ["1", "die", "raise", "2", "odd", "print", "3", "exit", "4"]
    with Processes(calls.act, 2) as processes:
        answers = dict(processes.map(words))
        again = dict(processes.map(["5", "6", "7"]))
    assert sorted(answers) == list(range(len(words)))
    told = dict(zip(words, (answers[number] for number in sorted(answers)), strict=True))
    assert [told[word] for word in "1234"] == [Returned(int(word) ** 2) for word in "1234"]
    assert told["print"] == Returned(0)
    assert told["die"] == Died(-signal.SIGKILL)
    assert told["exit"] == Died(7)
    raised, odd = told["raise"], told["odd"]
    assert isinstance(raised, Raised)
    assert isinstance(raised.error, InputError)
    assert str(raised.error) == "here: too blue (try green)"
    assert isinstance(odd, Raised)
    assert str(odd.error) == "Odd: seven"
    assert again == {0: Returned(25), 1: Returned(36), 2: Returned(49)}
    assert no_children()


def test_short_tasks_are_given_several_at_once_and_none_is_lost_with_a_worker() -> None:
    tasks = [str(number) for number in range(300)]
    tasks[150] = "die"
    with Processes(calls.act, 2) as processes:
        answers = dict(processes.map(tasks))
    assert answers.pop(150) == Died(-signal.SIGKILL)
    assert answers == {n: Returned(n * n) for n in range(300) if n != 150}


def test_who_stops_listening_ends_what_is_under_way() -> None:
    with Processes(calls.act, 2) as processes:
        for _, answer in processes.map(["wait", "3"]):
            assert answer == Returned(9)
            break
        assert dict(processes.map(["4"])) == {0: Returned(16)}
    assert no_children()


def test_a_worker_that_cannot_start_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.core.system.processes.BEGIN", "raise SystemExit(3)")
    with (
        Processes(calls.act, 1) as processes,
        pytest.raises(WindtunnelError, match="could not start"),
    ):
        dict(processes.map(["1"]))


def test_a_script_needs_no_guard_around_its_main_part(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from windtunnel.core.system.processes import Processes\n"
        "import math\n"
        "with Processes(math.sqrt, 2) as processes:\n"
        "    print(sorted((n, a.value) for n, a in processes.map([4.0, 9.0])))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[(0, 2.0), (1, 3.0)]\n", "")

"""A long run can be interrupted, in both forms."""

import signal

import pytest

from tests.twin.runs import one_server
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text


def test_ctrl_c_ends_a_run_that_would_go_on_for_hours() -> None:
    plan = load_text(one_server(count=10**9, rate="100/s"))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            simulate(plan)
    finally:
        signal.signal(signal.SIGALRM, before)

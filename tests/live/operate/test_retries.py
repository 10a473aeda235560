"""When calls that failed are made again: by passes, not by calls, and ever more rarely."""

import asyncio
from itertools import pairwise
from unittest.mock import AsyncMock

import pytest

from tests.live.operate.test_malformed import mirror
from windtunnel.gangs.commands import Delete
from windtunnel.gangs.kubernetes.calls import DELETE, ApiCall
from windtunnel.gangs.objects import Attachment
from windtunnel.live.kubernetes.resources import Meta
from windtunnel.live.operate.gangs import GangOperator
from windtunnel.live.operate.mirror import InvalidSet
from windtunnel.live.operate.received import Received
from windtunnel.live.operate.writer import DONE, CallAnswer, CallOutcome

CALL = ApiCall(DELETE, "Service", "web", (Delete(Attachment("Service", "web", "", 0, {}), ""),))


def operator(writer: AsyncMock | None = None) -> GangOperator:
    return GangOperator(mirror(), writer or AsyncMock(), None, lambda: 0.0, "")


@pytest.mark.parametrize("outcome", [CallOutcome.FAILED, CallOutcome.STALE])
def test_delays_grow_by_passes_whatever_else_succeeds(outcome: CallOutcome) -> None:
    loop = operator()
    due = []
    for _ in range(5):
        loop._delays.clear()  # a pass begins
        loop._retries.clear()
        for _ in range(8):
            loop._follow(CALL, CallAnswer(outcome, "no"))
        loop._follow(CALL, DONE)
        assert len({due_s for due_s, _, _ in loop._retries}) == 1, "eight calls are one failure"
        due.append(loop._retries[0][0])
    assert all(late > early for early, late in pairwise(due))
    assert due[0] < 0.4


def test_a_failure_that_comes_back_after_a_success_is_told_again() -> None:
    loop = operator()
    told = []
    loop.on_failure = lambda call, answer: told.append(answer.says)
    for answer in (CallAnswer(CallOutcome.FAILED, "quota"),) * 3:
        loop._follow(CALL, answer)
    assert told == ["quota"]
    loop._follow(CALL, DONE)
    loop._follow(CALL, CallAnswer(CallOutcome.FAILED, "quota"))
    assert told == ["quota", "quota"]


def test_a_condition_that_could_not_be_written_is_due_again() -> None:
    writer = AsyncMock()
    writer.carry_out.return_value = CallAnswer(CallOutcome.FAILED, "no")
    loop = operator(writer)
    received = Received(metadata=Meta(name="web", uid="1"))
    loop._mirror.invalid["web"] = InvalidSet(received, "wrong")
    asyncio.run(loop._tell_invalid())
    assert 0.0 < loop._tell_again_s < 1.0
    writer.carry_out.return_value = DONE
    asyncio.run(loop._tell_invalid())
    assert loop._tell_again_s == float("inf")

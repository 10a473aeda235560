"""When calls that failed are made again: by passes, not by calls, and ever more rarely."""

import asyncio
from itertools import pairwise
from unittest.mock import AsyncMock, MagicMock

import pytest

from tests.live.operate.test_malformed import mirror
from windtunnel.gangs.commands import Delete, PatchGangPlacement
from windtunnel.gangs.kubernetes.calls import CREATE, DELETE, STATUS, ApiCall
from windtunnel.gangs.objects import CLIQUE, POD, Attachment, PodGang
from windtunnel.live.kubernetes.resources import Meta
from windtunnel.live.operate.gangs import GangOperator
from windtunnel.live.operate.mirror import InvalidSet
from windtunnel.live.operate.received import Received
from windtunnel.live.operate.writer import DONE, CallAnswer, CallOutcome, Versions

CALL = ApiCall(DELETE, "Service", "web", (Delete(Attachment("Service", "web", "", 0, {}), ""),))


def operator(writer: AsyncMock | None = None) -> GangOperator:
    return GangOperator(mirror(), writer or AsyncMock(), None, lambda: 0.0, "")


@pytest.mark.parametrize("outcome", [CallOutcome.FAILED, CallOutcome.STALE])
def test_delays_grow_by_passes_whatever_else_succeeds(outcome: CallOutcome) -> None:
    loop = operator()
    due = []
    for _ in range(5):
        delays: dict[str, float] = {}  # a pass begins
        loop._retries.clear()
        for _ in range(8):
            loop._follow(CALL, CallAnswer(outcome, "no"), delays)
        loop._follow(CALL, DONE, delays)
        assert len({due_s for due_s, _, _ in loop._retries}) == 1, "eight calls are one failure"
        due.append(loop._retries[0][0])
    assert all(late > early for early, late in pairwise(due))
    assert due[0] < 0.4


def test_a_failure_that_comes_back_after_a_success_is_told_again() -> None:
    loop = operator()
    told = []
    loop.on_failure = lambda call, answer: told.append(answer.says)
    for answer in (CallAnswer(CallOutcome.FAILED, "quota"),) * 3:
        loop._follow(CALL, answer, {})
    assert told == ["quota"]
    loop._follow(CALL, DONE, {})
    loop._follow(CALL, CallAnswer(CallOutcome.FAILED, "quota"), {})
    assert told == ["quota", "quota"]


def test_a_condition_that_could_not_be_written_is_due_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = AsyncMock()
    writer.carry_out.return_value = CallAnswer(CallOutcome.FAILED, "no")
    loop = operator(writer)
    loop._recorder = recorder = MagicMock()  # type: ignore[misc]
    received = Received(metadata=Meta(name="web", uid="1"))
    loop._mirror.invalid["web"] = InvalidSet(received, "wrong")
    asyncio.run(loop._report_invalid_sets())
    assert 0.0 < loop._report_again_s < 1.0
    writer.carry_out.return_value = DONE
    asyncio.run(loop._report_invalid_sets())
    assert loop._report_again_s == float("inf")
    # It is logged, and an event of the set, once.
    assert [one.getMessage() for one in caplog.records] == ["PodCliqueSet web: wrong"]
    ((about, *said),) = [call.args for call in recorder.record.call_args_list]
    assert (about.kind, about.name, about.uid) == ("PodCliqueSet", "web", "1")
    assert said == ["Warning", "Invalid", "Reconcile", "wrong"]


def test_calls_of_a_set_wait_for_those_before_and_for_no_other_set() -> None:
    answered, done = asyncio.Event(), list[str]()

    async def carry_out(call: ApiCall, versions: Versions) -> CallAnswer:
        assert versions == {}
        if call.uid == "slow":
            await answered.wait()
        done.append(call.uid)
        return DONE

    def call(owner: str, uid: str) -> ApiCall:
        return ApiCall(DELETE, "Service", owner, (), uid=uid)

    async def run() -> None:
        writer = AsyncMock()
        writer.carry_out = carry_out
        loop = operator(writer)
        async with asyncio.TaskGroup() as loop._calling:
            loop._decide([call("a", "slow"), call("b", "quick")], 0.0)
            loop._decide([call("a", "next"), call("b", "more")], 0.0)
            for _ in range(20):
                await asyncio.sleep(0)
            assert done == ["quick", "more"]
            answered.set()
        assert done == ["quick", "more", "slow", "next"]
        assert not loop._queues

    asyncio.run(run())


def test_what_placement_says_of_a_gang_is_said_again_until_it_is_written() -> None:
    gang = PodGang("web-0", "web", 0, "")
    gang.uid = "1"
    answers = [CallAnswer(CallOutcome.STALE, "old"), DONE, DONE]
    written: list[object] = []

    async def carry_out(call: ApiCall, versions: Versions) -> CallAnswer:
        written.append(call.body)
        return answers.pop(0)

    async def run() -> None:
        now = [0.0]
        writer, placement = AsyncMock(), AsyncMock()
        writer.carry_out = carry_out
        loop = GangOperator(mirror(), writer, None, lambda: now[0], "", placement)
        loop._view.put(gang)
        placement.step.return_value = [PatchGangPlacement(gang, "no room", 0.0)]
        async with asyncio.TaskGroup() as loop._calling:
            await loop._place()
        async with asyncio.TaskGroup() as loop._calling:
            now[0] = 1.0
            loop.step()
        said = {"phase": "Pending", "placementScore": 0.0, "whyPending": "no room"}
        assert written == [{"status": said}] * 2
        assert not loop._placed
        async with asyncio.TaskGroup() as loop._calling:
            await loop._place()
        loop._view.remove(gang)
        loop._do(placement.step.return_value, now[0])
        assert not loop._placed, "it is gone"

    asyncio.run(run())


@pytest.mark.parametrize(("made", "at_once"), [(POD, True), (CLIQUE, False)])
def test_a_pod_is_created_beside_the_statuses_before_it(made: str, at_once: bool) -> None:
    """A clique is not: the status of its set says which incarnation it is of."""
    created = asyncio.Event()
    waited: list[bool] = []

    async def carry_out(call: ApiCall, versions: Versions) -> CallAnswer:
        if call.verb == CREATE:
            created.set()
        else:
            await asyncio.sleep(0)
            waited.append(created.is_set())
        return DONE

    writer = AsyncMock()
    writer.carry_out = carry_out
    calls = [ApiCall(STATUS, CLIQUE, "web-0-a", ()), ApiCall(CREATE, made, "web-0-a-x", ())]
    calls += [ApiCall(STATUS, CLIQUE, "web-0-b", ())]
    asyncio.run(operator(writer)._carry_out(calls))
    assert waited == [at_once, True]

"""Limits on the autoscaler that kept a pool from having more servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.analysis.explain.history import (
    ControlHistory,
    LoggedEvent,
)
from windtunnel.analysis.explain.missing import CapacityWait, Missing
from windtunnel.analysis.explain.steps import (
    AUTOSCALER,
    Cause,
    CauseStep,
    took,
)

if TYPE_CHECKING:
    from windtunnel.analysis.explain.run import ExplainedRun


INFINITE = float("inf")


def kept_s(run: ExplainedRun) -> float:
    """How long autoscalers keep servers that they do not need; ignores windows inside policies."""
    from windtunnel.scaling.build import POLICIES, word_of

    scaling = run.scenario.get("scaling")
    patience = {word_of(one): one.patience for one in POLICIES}
    kept = 0.0
    for _, policy in scaling["policies"] if scaling else ():
        usual = patience[policy["policy"]]
        if policy["stabilization"] is not None:
            kept = max(kept, policy["stabilization"]["down_s"])
        elif usual is not None:
            kept = max(kept, usual.down_s)
    return kept


def limits_on(history: ControlHistory, wait: CapacityWait) -> list[CauseStep]:
    """Limits of the last limited autoscaler decision, during the wait or while the queue before it
    grew."""
    last = history.last_decision(wait.pool, wait.helps_until_s)
    since_s = wait.since_s if last is None else min(wait.since_s, last.time)
    limited = [
        one
        for one in history.by_pool.get(wait.pool, [])
        if since_s <= one.time <= wait.helps_until_s
        and one.data["recommended"] > one.data["target"]
    ]
    return _limits_of(limited[-1]) if limited else []


def refused_in(history: ControlHistory, wait: CapacityWait, start_s: float = 0.0) -> list[Missing]:
    """The servers that limits on the autoscaler refused, from each decision to the next.

    `start_s`: how long they would have taken to be ready.
    """
    decisions = [one for one in history.by_pool.get(wait.pool, []) if one.time <= wait.end_s]
    ends = [*(one.time for one in decisions[1:]), INFINITE]
    found: list[Missing] = []
    for one, end_s in zip(decisions, ends, strict=True):
        more = one.data["recommended"] - one.data["target"]
        if more > 0 and end_s + start_s > wait.since_s:
            found.append(Missing(one.time + start_s, end_s + start_s, more))
    return found


def refused_before(history: ControlHistory, wait: CapacityWait) -> list[CauseStep]:
    """The last limit on the autoscaler before the queue, if its servers would still exist."""
    since_s = wait.since_s - wait.kept_s
    before = [
        one for one in history.by_pool.get(wait.pool, []) if since_s <= one.time < wait.since_s
    ]
    for one in reversed(before):
        if one.data["target"] < one.data["current"]:
            break  # it has scaled down since then
        if one.data["recommended"] > one.data["target"]:
            kept = f" Servers are kept for {took(wait.kept_s)}: these would still be there."
            return _limits_of(one, kept)
    return []


def _limits_of(found: LoggedEvent, more: str = "") -> list[CauseStep]:
    """The limits without which a decision would have been larger; if each is as tight as another,
    the last one."""
    lower = [one for one in found.data["limits"] if one["after"] < one["before"]]
    binding = [one for one in lower if one["without"] > found.data["target"]] or lower[-1:]
    return [
        CauseStep(
            found.time,
            AUTOSCALER,
            f"{found.id} wanted {found.data['recommended']} and was limited by {limit['name']} to "
            f"{limit['after']}: {limit['reason']}{more}",
            [found.id],
            cause=Cause.QUOTA,
        )
        for limit in binding
    ]

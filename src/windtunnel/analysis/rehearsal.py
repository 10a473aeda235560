"""Compares a rehearsal with the simulation of the same scenario: each decision, and figures.

Both sides are events in the terms of `core.vocabulary`, with the same server names, and figures of
requests. A finding is `same`, `explained` (it differs, and a measurement explains why) or
`differs`. No difference is explained by a rule alone: each explanation needs a number.
"""

import math
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple

import msgspec

from windtunnel.core import vocabulary
from windtunnel.core.telemetry import Event

LATE_S: Final = 1.0
"""How much later than the simulated one a decision of a real cluster may be and still match it."""
LATE_SHARE: Final = 0.05
"""The same as a share of the time since the start of the run, in addition."""
SHARE_OFF: Final = 0.05
"""Allowed difference of shares, such as requests by server, beyond what chance explains."""
LATENCY_OFF: Final = 0.1
LATENCY_OFF_S: Final = 0.02
LAGS: Final = 4.0
"""Event-loop waits per request: when it is sent, at the gateway, at the server, and on the way
back."""
MOST_LISTED: Final = 20
LATENCIES: Final = (
    ("ttft", "mean"), ("ttft", "p50"), ("ttft", "p99"),
    ("tpot", "mean"), ("tpot", "p50"), ("e2e", "mean"), ("e2e", "p50"),
)  # fmt: skip
GANG: Final = "gang."
SERVER_STATES: Final = ("ready", "draining", "gone")

SAME: Final = "same"
EXPLAINED: Final = "explained"
DIFFERS: Final = "differs"
Verdict = Literal["same", "explained", "differs"]


class RehearsalFinding(msgspec.Struct, frozen=True):
    """The result of one comparison."""

    about: str
    what: str
    simulated: float | int | str | None
    rehearsed: float | int | str | None
    verdict: Verdict
    why: str = ""


class Side(NamedTuple):
    """The events and figures of one of the two sides."""

    events: Sequence[Event]
    figures: Mapping[str, Any]
    """`requests` by outcome, `attained`, `latency`, as in results and observations."""
    start: Mapping[str, Mapping[str, str]] = {}
    """State before the run began, by subject and object: pods of gangs, and machines."""


class MeasuredDelays(NamedTuple):
    """Delays of a real cluster that a simulated one does not have, in seconds."""

    api_round_trip_s: float = 0.0
    loop_lag_s: float = 0.0
    """Mean lag of the rehearsal's event loop, which shows how busy the machine is."""
    loop_lag_p99_s: float = 0.0
    sent_late_s: float = 0.0
    """How late requests were sent."""


class RehearsalComparison(msgspec.Struct, frozen=True):
    """All findings; `agree` is whether none of them differs."""

    findings: list[RehearsalFinding]
    delays: dict[str, float]
    notes: list[str]

    @property
    def agree(self) -> bool:
        return all(one.verdict != DIFFERS for one in self.findings)


def compare(
    simulated: Side, rehearsed: Side, delays: MeasuredDelays, notes: Sequence[str] = ()
) -> RehearsalComparison:
    findings = [
        *_start(simulated, rehearsed),
        *_timed("gangs", _gangs(simulated), _gangs(rehearsed), delays),
        *_sizes(simulated, rehearsed, delays),
        *_timed("servers", _servers(simulated), _servers(rehearsed), delays),
        *_shares("routing", _routed(simulated), _routed(rehearsed)),
        *_shares("admission", _admitted(simulated), _admitted(rehearsed)),
        *_requests(simulated, rehearsed),
        *_latencies(simulated, rehearsed, delays),
    ]
    return RehearsalComparison(findings, delays._asdict(), list(notes))


def _start(simulated: Side, rehearsed: Side) -> list[RehearsalFinding]:
    findings = []
    for subject in sorted({*simulated.start, *rehearsed.start}):
        ours, real = (one.start.get(subject, {}) for one in (simulated, rehearsed))
        same = sum(1 for name, what in ours.items() if real.get(name) == what)
        if ours == real:
            findings.append(RehearsalFinding("start", subject, len(ours), len(real), SAME))
        for name in sorted({*ours, *real}):
            if ours.get(name) != real.get(name):
                why = f"{same} of {len(ours)} are the same"
                one = RehearsalFinding(
                    "start", f"{subject}: {name}", ours.get(name), real.get(name), DIFFERS, why
                )
                findings.append(one)
    return findings[:MOST_LISTED]


# Decisions and their times.

Decision = tuple[str, float]
"""A decision in words, and its time."""


def _gangs(side: Side) -> list[Decision]:
    """Gang events, by reason and object."""
    found = []
    for one in side.events:
        if one.kind.startswith(GANG):
            kind, _, name = one.subject.partition("/")
            found.append(
                (f"{one.kind.removeprefix(GANG)} {kind} {name.rpartition('/')[2]}", one.time)
            )
    return found


def _servers(side: Side) -> list[Decision]:
    """Servers that start or stop taking requests; those that never did are not compared."""
    found = []
    serves: dict[str, bool] = {}
    for one in side.events:
        if one.kind in vocabulary.REPLICA_KINDS:
            state = one.kind.removeprefix("replica.")
            if one.time > 0.0 and (state == "ready" or serves.get(one.subject, True)):
                found += [(f"{one.subject} {state}", one.time)] if state in SERVER_STATES else []
            serves[one.subject] = state in ("ready", "draining")
    return found


def _timed(
    about: str, simulated: list[Decision], rehearsed: list[Decision], delays: MeasuredDelays
) -> list[RehearsalFinding]:
    """Matches each decision with its counterpart, the next one with the same words."""
    waiting: dict[str, list[float]] = {}
    for what, at_s in rehearsed:
        waiting.setdefault(what, []).append(at_s)
    findings: list[RehearsalFinding] = []
    late: list[float] = []
    for what, at_s in simulated:
        times = waiting.get(what)
        if not times:
            findings.append(
                RehearsalFinding(about, what, at_s, None, DIFFERS, "only in the simulation")
            )
            continue
        other_s = times.pop(0)
        late.append(other_s - at_s)
        if abs(other_s - at_s) > _allowed_s(at_s, delays):
            why = f"{other_s - at_s:+.1f} s"
            findings.append(RehearsalFinding(about, what, at_s, other_s, DIFFERS, why))
    for what, times in waiting.items():
        findings += [
            RehearsalFinding(about, what, None, at_s, DIFFERS, "only in the rehearsal")
            for at_s in times
        ]
    if late:
        mean_s, most_s = sum(late) / len(late), max(late, key=abs)
        verdict: Verdict = EXPLAINED if abs(most_s) > 0.0 else SAME
        why = (
            f"{mean_s:+.2f} s on average, {most_s:+.2f} s at most; "
            f"an API call takes {1000 * delays.api_round_trip_s:.0f} ms, "
            f"the event loop was up to {1000 * delays.loop_lag_p99_s:.0f} ms late"
        )
        what = "decisions in both"
        findings.insert(
            0, RehearsalFinding(about, what, len(simulated), len(rehearsed), verdict, why)
        )
    return findings[: MOST_LISTED + 1]


def _allowed_s(at_s: float, delays: MeasuredDelays) -> float:
    lag_s = LAGS * (delays.loop_lag_p99_s + delays.api_round_trip_s)
    return LATE_S + LATE_SHARE * max(at_s, 0.0) + lag_s


def _sizes(simulated: Side, rehearsed: Side, delays: MeasuredDelays) -> list[RehearsalFinding]:
    """Scaling decisions, aligned by pool: what was decided, whenever it was."""
    mine, theirs = _scaled(simulated), _scaled(rehearsed)
    findings = []
    for pool in sorted({*mine, *theirs}):
        ours, real = mine.get(pool, []), theirs.get(pool, [])
        pairs = SequenceMatcher(
            a=[what for what, _ in ours], b=[what for what, _ in real], autojunk=False
        )
        for tag, begin, end, first, last in pairs.get_opcodes():
            if tag != "equal":
                for what, at_s in ours[begin:end]:
                    why = "only in the simulation"
                    findings.append(
                        RehearsalFinding("scaling", f"{pool} {what}", at_s, None, DIFFERS, why)
                    )
                for what, at_s in real[first:last]:
                    why = "only in the rehearsal"
                    findings.append(
                        RehearsalFinding("scaling", f"{pool} {what}", None, at_s, DIFFERS, why)
                    )
                continue
            for (what, at_s), (_, other_s) in zip(ours[begin:end], real[first:last], strict=True):
                off_s = other_s - at_s
                verdict: Verdict = SAME if abs(off_s) <= _allowed_s(at_s, delays) else DIFFERS
                why = f"{off_s:+.1f} s"
                findings.append(
                    RehearsalFinding("scaling", f"{pool} {what}", at_s, other_s, verdict, why)
                )
    return findings[:MOST_LISTED]


def _scaled(side: Side) -> dict[str, list[Decision]]:
    found: dict[str, list[Decision]] = {}
    for one in side.events:
        if one.kind == vocabulary.RESIZED:
            pool = one.subject.rpartition("pool/")[2]
            what = f"{one.data.get('current')} to {one.data.get('target')}"
            found.setdefault(pool, []).append((what, one.time))
    return found


# Shares of requests.


def _routed(side: Side) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in side.events:
        if one.kind == vocabulary.ROUTED:
            server = str(one.data.get("server"))
            counts[server] = counts.get(server, 0) + 1
    return counts


def _admitted(side: Side) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in side.events:
        if one.kind in (vocabulary.QUEUED, vocabulary.REJECTED, vocabulary.EVICTED):
            word = one.kind.removeprefix("request.")
            counts[word] = counts.get(word, 0) + 1
    return counts


def _shares(
    about: str, simulated: Mapping[str, int], rehearsed: Mapping[str, int]
) -> list[RehearsalFinding]:
    """Compares shares of all; the effect of chance is subtracted."""
    totals = sum(simulated.values()), sum(rehearsed.values())
    if not any(totals):
        return []
    findings = []
    for name in sorted({*simulated, *rehearsed}):
        shares = [
            counts.get(name, 0) / total if total else 0.0
            for counts, total in zip((simulated, rehearsed), totals, strict=True)
        ]
        off, chance = abs(shares[0] - shares[1]), _chance(shares[0], min(totals))
        verdict: Verdict = SAME if off <= chance else EXPLAINED
        why = "" if off <= chance else f"{100 * off:.1f} points, within {100 * SHARE_OFF:.0f}"
        if off > chance + SHARE_OFF:
            verdict = DIFFERS
            why = f"{100 * off:.1f} points, of which chance explains {100 * chance:.1f}"
        findings.append(
            RehearsalFinding(about, f"share of {name}", shares[0], shares[1], verdict, why)
        )
    return findings[:MOST_LISTED]


def _chance(share: float, total: int) -> float:
    """Two standard deviations of a share of this many draws."""
    return 2.0 * math.sqrt(max(share * (1.0 - share), 1e-4) / max(total, 1))


# Figures.


def _requests(simulated: Side, rehearsed: Side) -> list[RehearsalFinding]:
    findings = []
    for name in ("sent", "completed"):
        ours, real = (int(one.figures["requests"][name]) for one in (simulated, rehearsed))
        off = abs(ours - real) / max(ours, 1)
        verdict: Verdict = SAME if ours == real else EXPLAINED if off <= SHARE_OFF else DIFFERS
        why = "" if ours == real else f"{100 * off:.1f}%"
        if name == "completed":
            why = _endings(simulated, rehearsed)
        findings.append(RehearsalFinding("requests", name, ours, real, verdict, why))
    ours_share, real_share = (float(one.figures["attained"]) for one in (simulated, rehearsed))
    off = abs(ours_share - real_share)
    chance = _chance(ours_share, int(rehearsed.figures["requests"]["sent"]))
    verdict = SAME if off <= chance else DIFFERS if off > chance + SHARE_OFF else EXPLAINED
    why = "" if off <= chance else f"{100 * off:.1f} points"
    findings.append(
        RehearsalFinding("requests", "SLO attainment", ours_share, real_share, verdict, why)
    )
    return findings


def _endings(simulated: Side, rehearsed: Side) -> str:
    """Requests that were not completed, and why the sides may differ."""
    said = []
    left = [int(one.figures["requests"].get("unfinished", 0)) for one in (simulated, rehearsed)]
    if any(left):
        said.append(f"{left[0]} and {left[1]} were unfinished at the end")
    real = rehearsed.figures["requests"]
    broken = int(real.get("failed", 0)) + int(real.get("cut_off", 0))
    if broken:
        restarted = sum(one.kind == vocabulary.RETRIED for one in simulated.events)
        said.append(
            f"{broken} lost {'its' if broken == 1 else 'their'} server in the rehearsal, where an "
            f"answer that has begun cannot be sent again; the simulation restarted {restarted}"
        )
    return "; ".join(said)


def _latencies(simulated: Side, rehearsed: Side, delays: MeasuredDelays) -> list[RehearsalFinding]:
    findings = []
    for name, statistic in LATENCIES:
        ours, real = (one.figures["latency"][name][statistic] for one in (simulated, rehearsed))
        if ours is None or real is None:
            continue
        off_s = abs(real - ours)
        usual_s = LATENCY_OFF * ours + (LATENCY_OFF_S if name != "tpot" else LATENCY_OFF_S / 4)
        lag_s = delays.loop_lag_p99_s if statistic == "p99" else delays.loop_lag_s
        busy_s = usual_s + LAGS * lag_s
        verdict: Verdict = SAME if off_s <= usual_s else EXPLAINED if off_s <= busy_s else DIFFERS
        why = ""
        if verdict == EXPLAINED:
            why = f"this machine was busy: event loops were {1000 * lag_s:.0f} ms late"
        elif verdict == DIFFERS:
            why = f"{1000 * (real - ours):+.0f} ms, and a busy machine explains {1000 * busy_s:.0f}"
        findings.append(
            RehearsalFinding("latency", f"{name} {statistic}", ours, real, verdict, why)
        )
    return findings

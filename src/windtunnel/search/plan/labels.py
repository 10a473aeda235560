"""Labels of candidates, and a sentence why each is not the answer."""

import operator
from collections.abc import Mapping, Sequence

from windtunnel.search.plan.candidates.bounds import E2E_FLOOR, TOO_LONG, TPOT_FLOOR, TTFT_FLOOR
from windtunnel.search.plan.candidates.space import (
    DOES_NOT_FIT,
    OVER_BUDGET,
    SPLIT,
    SPLIT_ROLES,
    TOO_SLOW,
    Candidate,
    ServerKind,
)
from windtunnel.search.plan.runs.race import (
    BEST,
    DEARER,
    FAILED,
    FEWER,
    MISSES,
    NOT_SURE,
    RUNNER_UP,
    UNTRIED,
    CandidateVerdict,
)

FLOORS = {
    TOO_LONG: "are too long for its KV cache or its context",
    TTFT_FLOOR: "get their first token too late even on an empty server",
    TPOT_FLOOR: "get their tokens too slowly even on an empty server",
    E2E_FLOOR: "end too late even on an empty server",
}


def percent(share: float) -> str:
    """Formats a share with one decimal, never as 100.0% if it is less than all."""
    shown = f"{100.0 * share:.1f}"
    return "99.9%" if shown == "100.0" and share < 1.0 else f"{shown}%"


def _alone(runs: int) -> str:
    """Marks a result from a single run: other seeds may differ by more than its bounds."""
    return " in one run" if runs == 1 else ""


class CandidateLabels:
    """Labels that name only what candidates differ in."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        kinds = [candidate.kind for candidate in candidates]
        self._settings = [
            (name, word)
            for name, word in (
                ("max_num_seqs", "seqs"),
                ("max_num_batched_tokens", "batched tokens"),
                ("memory_utilization", "of memory"),
            )
            if self._varies(name, kinds)
        ]

    @staticmethod
    def _varies(name: str, kinds: Sequence[ServerKind]) -> bool:
        """Whether a setting was varied rather than implied by the accelerator."""
        found: dict[tuple[str | None, int], object] = {}
        for kind in kinds:
            own = kind.hardware
            value = getattr(own, name)
            if found.setdefault((own.accelerator, own.tensor_parallel), value) != value:
                return True
        return False

    def of(self, candidate: Candidate) -> str:
        """`24 x h100-sxm (6 servers, tp 4), least-loaded`: accelerators, then servers and
        settings."""
        kind = candidate.kind
        hardware, roles = kind.hardware, [""] * len(candidate.servers)
        if kind.frame.shape == SPLIT:
            roles = [f" {role}" for role in SPLIT_ROLES]
        counts = zip(candidate.servers, roles, strict=True)
        first = " + ".join(f"{count}{role}" for count, role in counts)
        first += " servers" if candidate.total > 1 else " server"
        if hardware.accelerator is not None:
            each = kind.accelerators or [hardware.tensor_parallel] * len(candidate.servers)
            whole = sum(map(operator.mul, candidate.servers, each))
            first = f"{whole} x {hardware.accelerator} ({first}, tp {hardware.tensor_parallel})"
        if kind.scales:
            first = f"{kind.frame.scaling} from {first}"
        return ", ".join([first, *self._rest(kind)])

    def kind(self, kind: ServerKind) -> str:
        """The same without the number of servers."""
        first = [kind.hardware.accelerator] if kind.hardware.accelerator else []
        if kind.hardware.accelerator:
            first.append(f"tp {kind.hardware.tensor_parallel}")
        if kind.frame.shape == SPLIT:
            first.append(" + ".join(SPLIT_ROLES))
        scaling = [f"scaled by {kind.frame.scaling}"] if kind.frame.scaling else []
        return ", ".join([*first, *self._rest(kind), *scaling])

    def _rest(self, kind: ServerKind) -> list[str]:
        rest = [] if kind.frame.model is None else [kind.frame.model]
        rest += [f"{getattr(kind.hardware, name)} {word}" for name, word in self._settings]
        return [*rest, kind.frame.router]

    def why(
        self, candidate: Candidate, verdict: CandidateVerdict, kept: Mapping[str, float]
    ) -> str:
        """One sentence. `kept` is the share of requests that met each target."""
        kind, reason = candidate.kind, verdict.reason
        if reason in FLOORS and kind.ruled is not None:
            who = f"{percent(kind.ruled.share)} or more of {kind.ruled.slo}"
            return f"{who} {FLOORS[reason]}"
        if reason == TOO_SLOW:
            return self._too_slow(candidate)
        if reason in (DOES_NOT_FIT, FAILED, OVER_BUDGET):
            return verdict.sentence
        if reason == DEARER:
            return verdict.sentence or "costs more than the answer"
        if reason == UNTRIED:
            return self._untried(verdict)
        if reason == FEWER:
            assert verdict.instead is not None
            more = " + ".join(str(one) for one in self._candidates[verdict.instead].servers)
            alone = _alone(verdict.reached_runs)
            return f"even {more} servers attain {percent(verdict.reached or 0.0)}{alone}"
        return self._attained(verdict, kept)

    def _too_slow(self, candidate: Candidate) -> str:
        kind = candidate.kind
        if candidate.total < kind.fewest:
            return f"the work takes {kind.fewest} servers or more"
        return f"the answers take {kind.fewest_decode} decode servers or more"

    def _untried(self, verdict: CandidateVerdict) -> str:
        if verdict.attained is None or verdict.low is None or verdict.high is None:
            return (
                "not tried to the end: the run limit ended the search"
                if verdict.runs
                else "not simulated"
            )
        between = f"{percent(verdict.low)} to {percent(verdict.high)}"
        so_far = f"attains {percent(verdict.attained)} ({between}){_alone(verdict.runs)} so far"
        return f"{so_far}: not sure, the run limit ended the search"

    def _attained(self, verdict: CandidateVerdict, kept: Mapping[str, float]) -> str:
        if verdict.attained is None or verdict.low is None:
            return ""
        share, low = percent(verdict.attained), percent(verdict.low)
        part = ""
        if verdict.share is not None and verdict.share < 1.0:
            part = f" of the first {percent(verdict.share)} of its requests"
        if verdict.reason == MISSES:
            several = len({name.rpartition(".")[0] for name in kept}) > 1
            targets = [
                f"{name.replace('.', ' ') if several else name.rpartition('.')[2]} {percent(one)}"
                for name, one in kept.items()
            ]
            missed = f": {', '.join(targets)}" if len(targets) > 1 else ""
            alone = "" if verdict.low == verdict.high else _alone(verdict.runs)
            return f"attains {share}{part}{alone}{missed}"
        if verdict.reason == NOT_SURE:
            most = percent(verdict.high or 0.0)
            return f"attains {share} ({low} to {most}): not sure enough"
        assert verdict.reason in (BEST, RUNNER_UP), verdict.reason
        if verdict.low == verdict.high:
            return f"attains {share}; nothing is random"
        return f"attains {share}, at least {low}"

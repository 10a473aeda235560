"""`check`: runs both sides on the same traffic and reports differences and regressions."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import windtunnel
from windtunnel.analysis.comparison import RATIOS, ComparedFigure, compared, ends, judged
from windtunnel.analysis.figures import (
    ATTAINMENT,
    COST,
    DOLLARS,
    GROUPS,
    LATENCY,
    LOWER,
    NOT_COMPLETED,
    SECONDS,
    SHARE,
    figure,
)
from windtunnel.core.errors import InputError
from windtunnel.core.statistics.intervals import CONFIDENCE
from windtunnel.core.system.processes import Died, processors
from windtunnel.core.units import format_duration
from windtunnel.search.check.blocks import BlockIntervals, BlockTotals, block_count
from windtunnel.search.check.decisions import (
    DecisionDifference,
    DecisionDifferences,
    decision_differences,
)
from windtunnel.search.check.limits import (
    DEFAULTS,
    TOTAL_COST,
    UNCERTAIN,
    WITHOUT_TARGETS,
    FigureLimit,
    judge,
    spread,
    unit_notes,
    verdict_of,
)
from windtunnel.search.check.observation import Observation, observe
from windtunnel.search.check.sides import CheckInput, CheckSide, sides_of
from windtunnel.search.execution.workers import PAYS_FROM_S, SpreadTasks
from windtunnel.search.measure import check_name
from windtunnel.search.repeats.comparison import settings
from windtunnel.search.repeats.runs import RepeatProgress, RunStopped
from windtunnel.twin.estimate import mean_estimate
from windtunnel.twin.results.chance import draws
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import price_of
from windtunnel.workload.settings.sources import ReplaySettings

USUAL_SEEDS = 5
"""For generated traffic. Recorded traffic exists once and is cut into blocks of time instead."""


GROUP_BY_UNIT = {SECONDS: LATENCY, SHARE: ATTAINMENT, DOLLARS: COST}
"""The group for figures that only limits refer to."""


class CheckAsk(NamedTuple):
    """Options of a check."""

    limits: Sequence[FigureLimit] = ()
    seeds: int | None = None
    block_s: float | None = None
    jobs: int | None = None


class PairedRuns(NamedTuple):
    """The runs of both sides with one seed."""

    base: Observation
    changed: Observation


def check(given: CheckInput, ask: CheckAsk, done: RepeatProgress) -> dict[str, Any]:
    """Runs the whole check and returns the contents of `check.json` as plain data."""
    with ExitStack() as stack:
        sides = sides_of(given, stack)
        limits = _priced(sides, ask.limits or DEFAULTS, asked=bool(ask.limits))
        for limit in limits:
            if "CLASS" not in limit.path:
                option = "--max" if limit.is_most else "--min"
                check_name(limit.path, sides[0].plan, f"{option} {limit.path}")
        seeds = _seeds(sides, ask.seeds)
        pairs = _run(sides, seeds, ask.jobs, done)
    return _found(given, sides, seeds, pairs, limits, ask)


def _seeds(sides: Sequence[CheckSide], asked: int | None) -> list[int]:
    first = sides[0].plan.seed
    replayed = all(isinstance(one, ReplaySettings) for side in sides for one in side.plan.workload)
    if replayed or not any(draws(side.plan) for side in sides):
        asked = 1
    return [first + number for number in range(USUAL_SEEDS if asked is None else asked)]


def _priced(
    sides: Sequence[CheckSide], limits: Sequence[FigureLimit], *, asked: bool
) -> list[FigureLimit]:
    """The limits that can be measured: cost limits need servers with a price."""
    for side in sides:
        plan = side.plan
        if plan.on_machines or any(price_of(pool) for pool in plan.pools):
            continue
        if asked and any(limit.path == TOTAL_COST for limit in limits):
            what = "its servers have no price, so their cost cannot be held to a limit"
            hint = "give their pools a price_per_hour, or leave the limit out"
            raise InputError(what, where=side.name, hint=hint)
        return [limit for limit in limits if limit.path != TOTAL_COST]
    return list(limits)


def _run(
    sides: Sequence[CheckSide], seeds: Sequence[int], jobs: int | None, done: RepeatProgress
) -> list[PairedRuns]:
    plans = [side.plan.changed(seed=seed) for seed in seeds for side in sides]
    if jobs is None and mean_estimate(plans).cpu_s > PAYS_FROM_S:
        jobs = processors()  # at once: running the first alone would take half the time
    processes = min(len(plans), processors() if jobs is None else jobs)
    found: dict[int, Observation] = {}
    one_run = partial(observe, processes=processes)
    with SpreadTasks[ScenarioPlan, Observation](one_run, jobs) as spread_tasks:
        for number, answer in spread_tasks.map(plans):
            side = sides[number % 2]
            if isinstance(answer, Died):
                hint = "memory may be short: --jobs 1 runs one at a time"
                raise RunStopped(
                    "its worker process ended before the run did", where=side.name, hint=hint
                )
            if answer.partial is not None:
                raise RunStopped(f"the run ended early: {answer.partial}", where=side.name)
            found[number] = answer
            done(len(found), len(plans))
    return [PairedRuns(found[at], found[at + 1]) for at in range(0, len(plans), 2)]


def _found(
    given: CheckInput,
    sides: Sequence[CheckSide],
    seeds: Sequence[int],
    pairs: Sequence[PairedRuns],
    limits: Sequence[FigureLimit],
    ask: CheckAsk,
) -> dict[str, Any]:
    runs = [_figures([pair[side] for pair in pairs]) for side in range(2)]
    classes = list(dict.fromkeys(name for own in runs for name in own[0]["classes"]))
    without = [name for name in classes if not _has_targets(sides, name)]
    no_targets = without == classes
    if no_targets and not ask.limits:
        limits = [*limits, *_latency_limits(runs)]
    limits = spread(limits, classes)
    several = len(seeds) > 1
    metrics = compared(runs, [several] * 2, [_figure(limit.path) for limit in limits])
    metrics.sort(key=lambda metric: GROUPS.index(metric["group"]))
    blocks = None if several else _blocks(pairs[0], ask.block_s)
    if blocks is not None:
        metrics = [_with_blocks(metric, blocks) for metric in metrics]
    by_path = {metric["path"]: metric for metric in metrics}
    measurable = not no_targets or not ask.limits
    judgements = [judge(limit, by_path[limit.path], has_targets=measurable) for limit in limits]
    differences = _together([decision_differences(*pair) for pair in pairs])
    verdicts = [one["verdict"] for one in judgements]
    end_s = _end_s(pairs[0])
    return {
        "windtunnel": windtunnel.__version__,
        "verdict": verdict_of(verdicts),
        "traffic": None if given.trace is None else given.trace.name,
        "requests": [own[0]["arrived"] for own in runs],
        "traffic_s": end_s,
        "seeds": list(seeds),
        "blocks": None if blocks is None else {"count": blocks.count, "s": end_s / blocks.count},
        "confidence": CONFIDENCE,
        "designs": [
            {
                "name": side.name,
                "scenario_sha256": side.plan.sha256,
                "trust": own[0]["trust"],
                "arrived": [run["arrived"] for run in own],
            }
            for side, own in zip(sides, runs, strict=True)
        ],
        "settings": settings([side.plan.data() for side in sides]),
        "decisions": [_plain_difference(one) for one in differences.kinds],
        "limits": judgements,
        "default_limits": not ask.limits,
        "notes": [
            *unit_notes(limits),
            *_target_notes(sides, classes, without, asked=bool(ask.limits)),
            *_notes(sides, differences, verdicts, blocks, count=len(seeds), end_s=end_s),
        ],
        "metrics": metrics,
    }


def _figures(runs: Sequence[Observation]) -> list[dict[str, Any]]:
    """All figures by path: those of comparisons and those of sweeps."""
    return [{**run.figures, "figures": {**run.metrics, **run.figures["figures"]}} for run in runs]


def _latency_limits(runs: Sequence[Sequence[Mapping[str, Any]]]) -> Sequence[FigureLimit]:
    """The limits used when no request has targets. TPOT is left out where all answers have one
    token.

    Where no request completed there is no latency at all: all limits are returned, and fail.
    """
    figures = [run["figures"] for own in runs for run in own]
    known = [
        limit
        for limit in WITHOUT_TARGETS
        if any(one.get(limit.path) is not None for one in figures)
    ]
    return known or WITHOUT_TARGETS


def _figure(path: str) -> ComparedFigure:
    found = figure(path)
    group = GROUP_BY_UNIT.get(found.unit, NOT_COMPLETED)
    return ComparedFigure(path, found.label, group, found.unit, found.better or LOWER)


def _end_s(pair: PairedRuns) -> float:
    """Arrival time of the last request."""
    return max(
        (float(run.requests["arrived"].max()) for run in pair if len(run.requests["arrived"])),
        default=0.0,
    )


def _blocks(pair: PairedRuns, block_s: float | None) -> BlockIntervals | None:
    end_s = _end_s(pair)
    count = block_count(end_s, block_s)
    if not count:
        return None
    base, changed = (BlockTotals(run, end_s, count) for run in pair)
    return BlockIntervals(base, changed)


def _with_blocks(metric: dict[str, Any], blocks: BlockIntervals) -> dict[str, Any]:
    """The figure with intervals from blocks of time, where blocks give any."""
    path, unit = metric["path"], metric["unit"]
    (base,), (changed,) = (design["values"] for design in metric["designs"])
    if base is None or changed is None:
        return metric
    spreads = unit in RATIOS and min(base, changed) > 0.0
    found = blocks.of(path, base, changed, ratio=spreads)
    if found is None:
        return metric
    first, second = metric["designs"]
    difference = judged(unit, metric["better"], found.difference, found.ratio)
    designs = [
        {**first, **ends(found.base)},
        {**second, **ends(found.changed), "difference": difference},
    ]
    return {**metric, "designs": designs}


def _together(found: Sequence[DecisionDifferences]) -> DecisionDifferences:
    """Differences over all seeds: counts summed, and the first difference of the first seed with
    one."""
    kinds: dict[str, DecisionDifference] = {}
    for one in (kind for seed in found for kind in seed.kinds):
        old = kinds.get(one.kind)
        kinds[one.kind] = (
            one
            if old is None
            else DecisionDifference(
                one.kind,
                old.decided + one.decided,
                old.differ + one.differ,
                old.first or one.first,
            )
        )
    return DecisionDifferences(list(kinds.values()), sum(one.unpaired for one in found))


def _plain_difference(one: DecisionDifference) -> dict[str, Any]:
    first = None if one.first is None else one.first._asdict()
    return {**one._asdict(), "first": first}


def _has_targets(sides: Sequence[CheckSide], name: str) -> bool:
    found = (side.plan.slos.get(name) for side in sides)
    return any(
        one is not None and (one.ttft_s, one.tpot_s, one.e2e_s) != (None, None, None)
        for one in found
    )


def _target_notes(
    sides: Sequence[CheckSide], classes: Sequence[str], without: Sequence[str], *, asked: bool
) -> list[dict[str, str]]:
    """Notes which requests have no latency target, so that latency cannot cause an SLO miss."""
    if not without:
        return []
    named = dict.fromkeys(name for side in sides for name in side.plan.slos)
    known = [name for name in named if _has_targets(sides, name)]
    if without == classes:
        says = "No request has a latency target, so every completed request counts as attained"
        says += "." if asked else "; TTFT p99 and TPOT p99 may rise by 10% instead."
    else:
        says = f"Requests of class {', '.join(without)} have no latency target: every completed "
        says += "one counts as attained."
    if known:
        says += f" Classes with targets: {', '.join(known)}; `--set workload.0.slo={known[0]}` "
        says += "gives the requests of a trace that class."
    else:
        says += " Targets are set under `slo`."
    return [{"code": "no-targets", "says": says}]


def _notes(
    sides: Sequence[CheckSide],
    differences: DecisionDifferences,
    verdicts: Sequence[str],
    blocks: BlockIntervals | None,
    *,
    count: int,
    end_s: float,
) -> list[dict[str, str]]:
    """Notes for the reader, each a code and a sentence."""
    several = count > 1
    notes = []
    for side in sides:
        notes += [
            {"code": "setting", "says": f"{side.name}: {sentence}"} for sentence in side.plan.notes
        ]
    base, changed = (side.plan for side in sides)
    if (base.workload, base.duration_s) != (changed.workload, changed.duration_s):
        says = "The two sides have different traffic, which changes figures and decisions "
        says += "by itself. --trace gives both the same."
        notes.append({"code": "other-traffic", "says": says})
    elif differences.unpaired:
        says = f"{differences.unpaired:,} requests did not arrive at the same time on both sides, "
        says += "since users wait for answers before they go on; their decisions are not compared."
        notes.append({"code": "other-arrivals", "says": says})
    if not several and blocks is None:
        says = f"The traffic lasts {format_duration(end_s)}, too short to be cut into blocks: "
        says += "differences have no confidence interval. Replay more of it, or give --block."
        notes.append({"code": "one-sample", "says": says})
    if UNCERTAIN in verdicts:
        says = "A change is beyond its limit, but its confidence interval includes zero, so it may "
        says += "be chance. "
        says += (
            f"More seeds can decide it: these were {count}; use --seeds {4 * count}."
            if several
            else "More traffic can decide it."
        )
        notes.append({"code": "uncertain", "says": says})
    return notes

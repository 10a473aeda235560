"""Every figure of a result, declared once: its path, unit, meaning and label.

Terminal tables, reports, comparisons, sweeps and the reference page of `result.json` all take
labels, units and formats from here. A path is that of `result.json`, with dots between keys; a word
in capitals stands for any name, and `[]` for the entries of a list. A latency (`stats`) has a mean,
percentiles and a maximum below its path: `latency.ttft.p99`.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from windtunnel.core.statistics.distribution import PERCENTILES
from windtunnel.core.units import duration_cell, format_count, format_size

LOWER, HIGHER = "lower", "higher"

SECONDS, SHARE, DOLLARS, BYTES = "s", "share", "$", "bytes"
REQUESTS, TOKENS = "requests", "tokens"
PER_S, TOKENS_PER_S = "requests/s", "tokens/s"

STATS: Final = ("mean", *(name for name, _ in PERCENTILES), "max")
"""The statistics of each latency."""

LATENCY, ATTAINMENT, THROUGHPUT, COST, NOT_COMPLETED = GROUPS = (
    "latency",
    "SLO attainment",
    "throughput",
    "cost",
    "not completed",
)
"""The groups of a comparison, in order."""
COMPARED_STATS = ("mean", "p50", "p95", "p99")

_NAME = re.compile(r"\b[A-Z]{4,}\b")
NOTHING = "-"
"""Shown in place of a missing value."""


class Figure(NamedTuple):
    """A value of a result; `group` is its group in comparisons, `kept` whether sweeps keep it."""

    path: str
    meaning: str
    unit: str = ""
    label: str = ""
    better: str | None = None
    null_when: str = ""
    stats: bool = False
    kept: bool = False
    group: str = ""
    title: str = ""
    """The label where there is more room."""


class FigureLabel(NamedTuple):
    """A figure at one path: its label there, its unit, and which direction is better."""

    label: str
    unit: str
    better: str | None


def _outcomes(part: str, *, kept: bool) -> tuple[Figure, ...]:
    """Counts of the outcomes of a class, a source or a tenant."""
    return (
        Figure(f"{part}.requests", "requests that arrived", REQUESTS, "requests",
               kept=kept),
        Figure(f"{part}.completed", "requests with a complete response", REQUESTS, "completed",
               kept=kept),
        Figure(f"{part}.rejected", "requests that admission rejected", REQUESTS, "rejected", LOWER,
               kept=kept),
        Figure(f"{part}.timed_out", "requests whose client gave up", REQUESTS, "timed out", LOWER,
               kept=kept),
        Figure(f"{part}.dropped", "requests too large for their server, or lost with it too "
               "often", REQUESTS, "dropped", LOWER,
               kept=kept),
        Figure(f"{part}.unfinished", "requests queued or running at the end",
               REQUESTS, "unfinished", LOWER, kept=kept),
    )  # fmt: skip


def _account(part: str) -> tuple[Figure, ...]:
    """The demand of a source or a tenant, and the service it got."""
    return (
        *_outcomes(part, kept=False),
        Figure(f"{part}.attained", "SLO attainment: share of requests that completed and met "
           "every target of their class", SHARE, "attained", HIGHER, "none arrived"),
        Figure(f"{part}.goodput_requests_per_s",
               "requests that attained their SLO, per second measured", PER_S, "goodput",
               HIGHER),
        Figure(f"{part}.prompt_tokens", "prompt tokens of completed requests", TOKENS,
               "prompt tokens"),
        Figure(f"{part}.output_tokens", "output tokens of completed requests", TOKENS,
               "output tokens"),
        Figure(f"{part}.served_share", "those tokens over all that were asked for", SHARE,
               "served", HIGHER, "none arrived"),
    )  # fmt: skip


def _latency(
    path: str, label: str, title: str, meaning: str, null_when: str, group: str = ""
) -> Figure:
    kept = path.startswith(("latency.", "slo."))
    named: dict[str, Any] = {"kept": kept, "group": group, "title": title, "stats": True}
    return Figure(path, meaning, SECONDS, label, LOWER, null_when, **named)


NONE_COMPLETED = "nothing completed"

FIGURES: Final = (
    Figure("name", "the scenario's name"),
    Figure("seed", "the seed in force"),
    Figure("overrides[]", "what `--set` changed, as `PATH=VALUE`"),
    Figure("windtunnel", "the version that ran"),
    Figure("scenario_sha256", "digest of the [scenario](scenario.md)"),
    Figure("simulated_seconds",
           "from the start to `duration`, or to the last event", SECONDS,
           "simulated time", kept=True),
    Figure("ended_by", "`duration`; without one `last request`, or [`nothing to wait "
           "for`](../explanation/runs-that-end.md); of a partial run: `interrupt`, `memory` or "
           "`no progress`"),
    Figure("partial", "why the run ended early",
           null_when="it ran to its end"),
    Figure("measured.from", "start of the window of `latency` (except `itl`), `throughput`, "
           "`slo`, `sources`, `tenants`, `fairness` and these in `models`; others cover the "
           "whole run. `measured` is null without a window",
           SECONDS, "measured from"),
    Figure("measured.to", "end of the window", SECONDS, "measured to",
           null_when="to the end"),
    Figure("measured.requests", "requests in the window", REQUESTS, "measured"),
    Figure("requests.arrived", "the sum of the next five",
           REQUESTS, "arrived", kept=True),
    Figure("requests.completed", "requests with a complete response", REQUESTS, "completed",
           kept=True),
    Figure("requests.rejected", "requests that admission rejected", REQUESTS, "rejected", LOWER,
           kept=True, group=NOT_COMPLETED),
    Figure("requests.timed_out", "requests whose client gave up", REQUESTS, "timed out", LOWER,
           kept=True, group=NOT_COMPLETED),
    Figure("requests.dropped", "requests too large for their server, or lost with it too often",
           REQUESTS, "dropped", LOWER, kept=True, group=NOT_COMPLETED),
    Figure("requests.unfinished",
           "requests queued or running at the end", REQUESTS,
           "unfinished", LOWER, kept=True, group=NOT_COMPLETED),
    Figure("reasons.completed", "responses shorter than requested, by reason"),
    Figure("reasons.rejected", "rejected requests by reason"),
    Figure("reasons.timed_out", "timeouts by what the request waited for"),
    Figure("reasons.dropped", "dropped requests by reason"),
    Figure("reasons.unfinished", "unfinished requests by where they were"),
    Figure("tokens.prompt", "prompt tokens of completed requests, shared prefixes included",
           TOKENS, "prompt tokens", kept=True),
    Figure("tokens.output", "output tokens of completed requests", TOKENS, "output tokens",
           kept=True),
    Figure("tokens.prefix_hit", "prompt tokens found in a prefix cache or a slower tier; a "
           "preempted request may hit more than once", TOKENS, "prefix-hit tokens", kept=True),
    _latency("latency.ttft", "TTFT", "time to first token", "arrival to first token",
             "nothing completed", LATENCY),
    _latency("latency.tpot", "TPOT", "time per output token",
             "first token to last, divided by the tokens after the first",
             "no completed request has two tokens", LATENCY),
    _latency("latency.itl", "ITL", "inter-token latency", "gap between successive tokens of a "
           "request, preemptions included", "no gap was seen"),
    _latency("latency.e2e", "E2E", "end-to-end latency", "arrival to the end of the request",
             "nothing completed", LATENCY),
    _latency("latency.queue", "queued", "time queued",
             "arrival to the start of the request's first step",
             "nothing completed"),
    _latency("latency.gateway", "gateway", "queued at the gateway",
             "arrival to admission",
             "no gateway, or nothing completed"),
    Figure("throughput.requests_per_s", "completed requests per second measured", PER_S,
           "throughput", HIGHER, kept=True, group=THROUGHPUT),
    Figure("throughput.output_tokens_per_s", "their output tokens per second measured",
           TOKENS_PER_S, "output tokens/s", HIGHER, kept=True, group=THROUGHPUT),
    Figure("throughput.goodput_requests_per_s",
           "completed requests that met every target, per second measured",
           PER_S, "goodput", HIGHER, kept=True, group=THROUGHPUT),
    *_outcomes("slo.CLASS", kept=True),
    Figure("slo.CLASS.attained", "SLO attainment: share of requests that completed and met every "
           "target of their class", SHARE, "attained",
           HIGHER, "none arrived", kept=True, group=ATTAINMENT, title="SLO attainment"),
    Figure("slo.CLASS.attained_by.ttft", "share that completed and met this target", SHARE,
           "TTFT attained", HIGHER, "no such target, or none arrived", kept=True),
    Figure("slo.CLASS.attained_by.tpot", "the same; a request of one token meets it", SHARE,
           "TPOT attained", HIGHER, "the same", kept=True),
    Figure("slo.CLASS.attained_by.e2e", "the same", SHARE, "E2E attained", HIGHER, "the same",
           kept=True),
    Figure("slo.CLASS.goodput_requests_per_s",
           "requests that attained their SLO, per second measured", PER_S,
           "goodput", HIGHER, kept=True),
    _latency("slo.CLASS.ttft", "TTFT", "", "arrival to first token", NONE_COMPLETED),
    _latency("slo.CLASS.tpot", "TPOT", "",
             "first token to last, divided by the tokens after the first",
             "no completed request has two tokens"),
    _latency("slo.CLASS.e2e", "E2E", "", "arrival to the end of the request", NONE_COMPLETED),
    _latency("slo.CLASS.queue", "queued", "", "arrival to the start of the request's first step",
             NONE_COMPLETED),
    *_account("sources.SOURCE"),
    *_account("tenants.TENANT"),
    _latency("tenants.TENANT.ttft", "TTFT", "", "arrival to first token",
             NONE_COMPLETED),
    _latency("tenants.TENANT.e2e", "E2E", "", "arrival to the end of the request", NONE_COMPLETED),
    Figure("fairness.served_tokens", "Jain's index over tenants of `served_share`, below", SHARE,
           "fairness of served tokens", HIGHER, "nothing completed", kept=True),
    Figure("fairness.goodput", "Jain's index over tenants of `attained`", SHARE,
           "fairness of goodput", HIGHER, "no request attained its SLO", kept=True),
    Figure("sessions.count", "sessions that began", "", "sessions"),
    Figure("sessions.turns", "requests that were turns of a session", REQUESTS, "turns"),
    Figure("sessions.ended", "ended sessions by "
           "[state](../explanation/workload.md#conversations). Sessions of a trace replayed at "
           "its times end with the run"),
    _latency("sessions.cold_ttft", "TTFT of first turns", "",
             "TTFT of first turns", "no first turn completed"),
    _latency("sessions.warm_ttft", "TTFT of later turns", "",
             "TTFT of later turns", "no later turn completed"),
    _latency("sessions.duration", "session", "", "first arrival to last end, of the first "
           "million ended sessions", "none ended"),
    Figure("gateway", "`waiting_peak`, the most requests queued for one model; `decisions`: "
           "`admit`, `queue`, `reject` and `evict`, each by "
           "[reason](../explanation/gateway.md#reasons)",
           null_when="every request is admitted at once"),
    Figure("adapters",
           "LoRA adapters by name, in the scenario's order; below",
           null_when="no pool has `lora`"),
    Figure("routing", "with `router.counterfactual`: `requests` examined; "
           "[regret](../explanation/routing.md#regret) as `regret_mean`, `regret_p99` and "
           "`regret_max`; `better_elsewhere`, the share of requests with a better server",
           null_when="not asked for"),
    Figure("encode", "encoders: `requests` and media `tokens` encoded; `busy`, the share of time "
           "in use; `wait` for an encoder", null_when="no `serving.encode`"),
    Figure("disaggregation", "prefill/decode split: `split` requests; those that `waited` for KV "
           "blocks; `moved_tokens`, `moved_bytes`; `present_tokens` already cached at the "
           "decode server; `link_busy`, the busy share of the busiest link (NIC, uplink or "
           "fabric); requests that `stayed` on the prefill server for lack of room; those not "
           "split because `no_prefill_server` was ready; `room`, from prefill end until the "
           "decode server had KV blocks; `transfer`, from then until all KV was there",
           null_when="no pool has a role of its own", kept=True),
    Figure("models", "by model: `requests`, `tokens`, `latency` (without `gateway`), "
           "`throughput` and `cost` as above; `attained`; `pools` that serve it",
           null_when="one model"),
    Figure("pools.POOL.model", "the model of its servers", "", "model",
           null_when="the scenario names none"),
    Figure("pools.POOL.cluster", "its cluster", "", "cluster"),
    Figure("pools.POOL.replica_seconds", "paid time of all servers, from start-up until gone",
           SECONDS, "replica-seconds", kept=True),
    Figure("pools.POOL.ready_seconds",
           "the same without start-up", SECONDS,
           "ready time"),
    Figure("pools.POOL.accelerator_seconds",
           "`replica_seconds`, times the accelerators of a server", SECONDS, "accelerator-seconds",
           LOWER, kept=True),
    Figure("pools.POOL.replicas.initial", "servers when the run began", "", "initial servers"),
    Figure("pools.POOL.replicas.final", "servers ready or starting at the end", "",
           "final servers"),
    Figure("pools.POOL.replicas.most", "most servers paid for at once", "",
           "most servers"),
    Figure("pools.POOL.replicas.started", "servers that were added", "", "started"),
    Figure("pools.POOL.replicas.drained",
           "servers drained, including those that never became ready", "",
           "drained"),
    Figure("pools.POOL.replicas.redirected",
           "requests returned to the router by draining servers", REQUESTS, "redirected"),
    Figure("pools.POOL.replicas.lost", "servers lost with all their requests",
           "", "lost", LOWER),
    Figure("pools.POOL.replicas.retried", "requests retried because of that", REQUESTS,
           "retried", LOWER),
    Figure("pools.POOL.replicas.failed",
           "requests dropped after too many retries", REQUESTS, "failed", LOWER),
    Figure("pools.POOL.replicas.lost_tokens", "tokens computed for both", TOKENS,
           "lost tokens", LOWER),
    Figure("pools.POOL.replicas.rate_limited", "answers of 429", "",
           "rate limited"),
    Figure("pools.POOL.utilization",
           "share of `ready_seconds` in which a step was running", SHARE,
           "busy", kept=True),
    Figure("pools.POOL.preemptions", "preemptions", "",
           "preemptions", LOWER, kept=True),
    Figure("pools.POOL.kv_peak", "largest share of KV blocks in use on any server",
           SHARE, "KV peak", kept=True),
    Figure("pools.POOL.kv_blocks", "KV blocks per server", "", "KV blocks"),
    Figure("pools.POOL.kv_leaked",
           "KV blocks of all its servers that [leaked](../explanation/faults.md#kv-leak)", "",
           "KV leaked", LOWER),
    Figure("pools.POOL.price_per_hour",
           "dollars per accelerator-hour: the pool's, or the catalog's example",
           DOLLARS, "$ per hour", null_when="it has neither"),
    Figure("pools.POOL.cost", "`accelerator_seconds` at that price; 0 without one", DOLLARS,
           "cost", LOWER, kept=True),
    Figure("pools.POOL.offload", "slower tiers: `blocks` per server, `peak` use, `loads`, "
           "`loaded_tokens`, `loaded_bytes`, `stored_bytes`, `evicted_bytes`, `busy` (share of "
           "time loading); `wait` of requests for loads",
           null_when="the pool has none"),
    Figure("pools.POOL.step_time.model", "the step-time model"),
    Figure("pools.POOL.step_time.profile", "the profile of `physics`",
           null_when="other models"),
    Figure("pools.POOL.step_time.calibrated",
           "whether it was fitted to measurements of this accelerator",
           null_when="other models"),
    Figure("pools.POOL.speculative.drafts", "[drafts](../explanation/speculative.md) verified, "
           "one per request and step; only in pools that draft",
           "", "drafts"),
    Figure("pools.POOL.speculative.drafted_tokens", "tokens of those drafts", TOKENS,
           "drafted tokens"),
    Figure("pools.POOL.speculative.accepted_tokens", "of these, accepted", TOKENS,
           "accepted tokens"),
    Figure("pools.POOL.speculative.acceptance_rate", "accepted over drafted tokens", SHARE,
           "acceptance rate", HIGHER, "nothing was drafted"),
    Figure("pools.POOL.speculative.acceptance_length", "mean tokens per verifying step, "
           "including the model's own", TOKENS, "acceptance length", HIGHER,
           "nothing was drafted"),
    Figure("servers[].pool", "the pool of the server"),
    Figure("servers[].server", "its number in the pool, from 0"),
    Figure("servers[].requests",
           "ended requests sent there, for prefill or decode",
           REQUESTS, "requests"),
    Figure("servers[].queue_mean",
           "mean time of completed requests from admission until the prompt was computed there",
           SECONDS, "mean time queued", LOWER, "none did"),
    Figure("servers[].utilization", "share of the run in which a step was running", SHARE, "busy"),
    Figure("servers[].steps", "steps that ended", "", "steps"),
    Figure("servers[].preemptions", "preemptions", "",
           "preemptions", LOWER),
    Figure("servers[].kv_peak", "largest share of its KV blocks in use", SHARE, "KV peak"),
    Figure("servers[].prefix_hit_tokens",
           "prompt tokens of completed requests found in its prefix cache", TOKENS,
           "prefix hits"),
    Figure("servers[].output_tokens", "output tokens of completed requests", TOKENS,
           "output tokens"),
    Figure("cost.total", "sum over pools; with `fleet`, the cost of machines", DOLLARS,
           "cost", LOWER, kept=True, group=COST),
    Figure("cost.per_million_output_tokens", "per million of `tokens.output`", DOLLARS,
           "cost per M tokens", LOWER, "no output", kept=True, group=COST,
           title="cost per million output tokens"),
    Figure("scaling", "`ticks`; `changes` of a pool's size; `superseded` decisions; "
           "`changes_per_hour`, `direction_changes`, `under_provisioned_s` and "
           "`wasted_replica_seconds` "
           "([meaning](../explanation/elastic-pools.md#how-well-it-was-scaled)); by `pools`, "
           "`sizes`: per change its time, wanted, pending, starting, ready and draining "
           "servers (beyond 4,000 changes, every second one); `notes`, settings that may "
           "surprise", null_when="no `scaling`"),
    Figure("gangs", "`terminations` of gangs below their minimum; by `clusters`, at the end: "
           "`gangs`, `pods`, pods `waiting` and `ready`, and `sizes`: per change its time, pods "
           "waiting, starting, ready and ending, gangs with waiting pods; `notes`: skipped parts "
           "of manifests, and gangs terminated repeatedly before they were ready",
           null_when="neither `gangs` nor `fleet`"),
    Figure("fleet", "`cost` of all machines (then `cost.total`); by `pools`: `machine_seconds` "
           "and `cost` from creation until given back or lost, `machines` at the end, `most`, "
           "`created`, `given_back`, `lost`, and `sizes`: per change its time, machines "
           "creating, idle, configuring, configured, draining, deleting and failed, and dollars "
           "per hour; `actions` by kind; `short`, needs not met at the end, and why",
           null_when="no `fleet`"),
    Figure("decisions.scaling", "changes of replica counts", "", "scaling decisions"),
    Figure("decisions.faults", "[faults](../explanation/faults.md) begun", "", "faults"),
    Figure("decisions.gang_terminations", "gangs terminated", "", "gang terminations"),
    Figure("decisions.fleet_actions", "machines ordered, assigned, moved or given back", "",
           "fleet actions"),
    Figure("faults", "the first 1,000: `name`, `kind`, `at`, `until` (null if not ended), up to "
           "100 `subjects` (servers as POOL-NUMBER), `reason`"),
    Figure("invariants.checked", "checks made"),
    Figure("invariants.broken", "always 0"),
    Figure("trust.verdict", "the worst severity below"),
    Figure("trust.findings[].code",
           "subject, from [a closed set](../explanation/trust.md)"),
    Figure("trust.findings[].severity", "`good`, `caution` or `doubt`; worst first"),
    Figure("trust.findings[].says", "a sentence with the numbers"),
    Figure("trust.findings[].figures", "the numbers by name"),
    Figure("trust.pools.POOL.error.basis",
           "[evidence](../explanation/trust.md#evidence-for-the-step-times): "
           "`fitted steps`, `unseen steps`, `other models`, `operators`, `left out`, `none`"),
    Figure("trust.pools.POOL.error.mape",
           "mean absolute relative error of predicted step times",
           SHARE, null_when="nothing was measured"),
    Figure("trust.pools.POOL.error.p90", "90th percentile of it", SHARE,
           null_when="nothing was measured"),
    Figure("trust.pools.POOL.error.points", "measurements"),
    Figure("trust.pools.POOL.error.of", "what was measured, or why nothing was"),
    Figure("trust.pools.POOL.measured", "the largest measured step: `tokens`, `decodes` "
           "(decoding sequences), their `context`, `prompt` up to the end of a chunk",
           null_when="no such bounds"),
    Figure("trust.pools.POOL.extrapolated", "larger steps: `step_share`, `time_share`, `steps` "
           "beyond it in tokens, decodes or context, and the `most` of each",
           null_when="no such bounds"),
    Figure("trust.saturated.seconds", "time in which servers could not keep up, or none was "
           "ready for requests", SECONDS, "time saturated", LOWER),
    Figure("trust.saturated.stretches",
           "when: `start_s`, `end_s`, `cause`, `most_servers` at once (0: none was ready)"),
    Figure("trust.latency_intervals", "with `--trust`: for `mean`, `p50`, `p90`, `p95` and `p99` "
           "of each latency, the ends of the [95% interval](../explanation/trust.md#intervals)",
           null_when="not asked for, or nothing varies"),
    Figure("trust.repeats", "their origin: `seeds`, `step_error` by pool, factors of assumed "
           "`host_time`, intervals `by_chance` alone (null where seeds change nothing), and "
           "means with fast and slow steps, `by_model`",
           null_when="not asked for"),
)  # fmt: skip
"""In the order of `result.json`."""

BELOW: Final = (
    Figure("adapters.ADAPTER.output_tokens_per_s", "", TOKENS_PER_S, "output tokens/s", HIGHER),
    Figure("adapters.ADAPTER.loads", "how often any server loaded it", "", "loads", LOWER),
    Figure("adapters.ADAPTER.evictions", "how often it made room", "", "evictions", LOWER),
    Figure("models.MODEL.attained", "", SHARE, "attained", HIGHER),
    Figure("disaggregation.link_busy", "", SHARE, "link busy"),
    Figure("disaggregation.moved_bytes", "", BYTES, "KV moved"),
    Figure("disaggregation.room", "", SECONDS, "waiting for room", LOWER, stats=True),
    Figure("disaggregation.transfer", "", SECONDS, "KV transfer", LOWER, stats=True),
    Figure("accelerator_seconds", "of all pools", SECONDS, "accelerator-seconds", LOWER),
    Figure("trust.saturated_seconds", "", SECONDS, "time saturated", LOWER),
)
"""Figures below keys that the reference page describes as a whole, and those that sweeps add."""

ALIKE: Final = (("adapters.", "tenants."), ("models.MODEL.", ""))
"""Parts with the same figures as another part."""


def misfit(result: Mapping[str, Any]) -> str:
    """The first figure that a result lacks or has in another form; empty if there is none."""
    found = (_misfit(result, figure.path.split("."), figure, "") for figure in FIGURES)
    return next(filter(None, found), "")


def _misfit(value: Any, parts: list[str], figure: Figure, path: str) -> str:
    """What is wrong with a figure whose remaining path below `value` is `parts`."""
    if value is None:
        return ""
    if not parts:
        if figure.stats:
            below = [_misfit(value, [name], Figure("", "", figure.unit), path) for name in STATS]
            return next(filter(None, below), "")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return f"{path} is not a number" if figure.unit and not is_number else ""
    if not isinstance(value, dict):
        return f"{path or 'it'} is not an object"
    key, rest = parts[0].removesuffix("[]"), parts[1:]
    if _NAME.fullmatch(key):
        items = [(f"{path}.{name}", item) for name, item in value.items()]
    else:
        here = f"{path}.{key}".lstrip(".")
        if key not in value:  # parts of an optional section are there if the section is
            return f"{here} is missing" if not (path and rest) else ""
        if value[key] is None or parts[0] == key:
            return _misfit(value[key], rest, figure, here)
        if not isinstance(value[key], list):
            return f"{here} is not a list"
        items = [(f"{here}[{number}]", item) for number, item in enumerate(value[key])]
    return next(filter(None, (_misfit(item, rest, figure, at) for at, item in items)), "")


LATENCIES: Final = {
    one.path.removeprefix("latency."): (one.title, one.label)
    for one in FIGURES
    if one.path.startswith("latency.")
}
"""The latencies of a run: title and label."""
TARGETS: Final = {key: LATENCIES[key][1] for key in ("ttft", "tpot", "e2e")}
"""The latencies that SLO classes have targets for."""
OUTCOMES: Final = {
    one.path.removeprefix("requests."): one.label
    for one in FIGURES
    if one.path.startswith("requests.") and one.label != "arrived"
}
"""Labels of request outcomes."""

COLUMNS: Final = {
    "models.MODEL": ("requests.arrived", "requests.completed", "attained", "latency.ttft.p50",
                     "latency.ttft.p99", "latency.tpot.p99", "latency.e2e.p99",
                     "latency.queue.p99", "cost.total"),
    "slo.CLASS": ("requests", "attained", "ttft.p50", "ttft.p99", "tpot.p99", "e2e.p99",
                  "queue.p99"),
    "tenants.TENANT": ("requests", "attained", "served_share", "ttft.p50", "ttft.p99", "e2e.p99",
                       "output_tokens"),
    "sources.SOURCE": ("requests", "attained", "served_share", "prompt_tokens", "output_tokens"),
    "adapters.ADAPTER": ("requests", "attained", "ttft.p50", "ttft.p99", "loads", "evictions"),
    "pools.POOL": ("utilization", "kv_peak", "preemptions"),
    "servers[]": ("requests", "queue_mean", "utilization", "kv_peak", "preemptions",
                  "prefix_hit_tokens", "output_tokens"),
}  # fmt: skip
"""The columns of tables; the last one is the first to be omitted on a narrow screen."""


def heads_of(part: str) -> list[str]:
    """The column heads of a table."""
    return [figure(f"{part}.{path}").label for path in COLUMNS[part]]


def cells_of(part: str, entry: Mapping[str, Any]) -> list[str]:
    """The cells of one row."""
    return [text_of(figure(f"{part}.{path}").unit, value_at(entry, path)) for path in COLUMNS[part]]


def has_target(slo: Mapping[str, Any]) -> bool:
    """Whether requests of this SLO class, an entry of a result, could miss a target."""
    return any(share is not None for share in slo["attained_by"].values())


@cache
def _by_letters() -> list[tuple[str, str, Figure]]:
    """The first and last fixed parts of each path, the longest first, since names may contain
    dots."""
    found = [(_NAME.split(one.path), one) for one in (*FIGURES, *BELOW)]
    found.sort(key=lambda one: -len("".join(one[0])))
    return [(fixed[0], fixed[-1], one) for fixed, one in found]


@cache
def _pattern(path: str, *, stats: bool) -> re.Pattern[str]:
    pattern = _NAME.sub("(.+)", re.escape(path))
    return re.compile(pattern + (r"\.(" + "|".join(STATS) + ")" if stats else ""))


@cache
def figure(path: str) -> FigureLabel:
    """The label, unit and direction of the figure at a path.

    A path that stands for many, such as `slo.CLASS.ttft.p99`, has the label of a column.
    """
    for part, other in ALIKE:
        if path.startswith(part) and not any(path.startswith(one.path) for one in BELOW):
            return figure(path.replace(part, other, 1))
    for start, end, found in _by_letters():
        if not path.startswith(start) or end not in path:
            continue
        matched = _pattern(found.path, stats=bool(found.stats)).fullmatch(path)
        if matched is not None:
            words = [word for word in matched.groups() if not _NAME.fullmatch(word)]
            stat = words.pop() if found.stats else ""
            label = " ".join(filter(None, (*words, found.label or found.path, stat)))
            return FigureLabel(label, found.unit, found.better)
    words = path.replace("_", " ").split(".")
    return FigureLabel(" ".join(words), "", None)


def title(path: str) -> str:
    """The label of a figure where there is room for it, such as `time to first token`."""
    found = next(one for one in FIGURES if one.path == path)
    return found.title or found.label


def value_at(result: Mapping[str, Any], path: str) -> Any:
    """The value at a path."""
    value: Any = result
    for key in path.split("."):
        value = value[key]
    return value


def text_of(unit: str, value: float | None) -> str:
    """A value formatted in its unit, for a column or a tile."""
    return NOTHING if value is None else _FORMATS.get(unit, _plain)(value)


def share_text(share: float | None) -> str:
    """Percent with one decimal, or two near 100 %: 99.96 % is not 100 %."""
    if share is None:
        return NOTHING
    return f"{share:.1%}" if share < 0.999 or share == 1.0 else f"{int(share * 1e4) / 100:.2f}%"


def _dollars(value: float) -> str:
    """In cents, and below a dollar with three digits: $0.113 beside $0.105."""
    if value >= 1.0 or not value:
        return f"${value:,.2f}"
    return f"${value:.3g}" if value < 0.1 else f"${value:.3f}".removesuffix("0")


def _per_s(value: float) -> str:
    return f"{value:.3g}/s" if value < 999.5 else f"{value:,.0f}/s"


def _tokens_per_s(value: float) -> str:
    return f"{format_count(value)}/s"


def _plain(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


_FORMATS = {
    SECONDS: duration_cell,
    SHARE: share_text,
    DOLLARS: _dollars,
    PER_S: _per_s,
    TOKENS_PER_S: _tokens_per_s,
    TOKENS: format_count,
    BYTES: format_size,
}

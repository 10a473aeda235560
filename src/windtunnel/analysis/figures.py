"""Every figure of a result, declared once: where it is, its unit, its meaning and its label.

Terminal tables, reports, comparisons, sweeps and the reference page of `result.json` all take
labels, units and formats from here. A path is that of `result.json`, with dots between keys; a word
in capitals stands for any name, and `[]` for the entries of a list. A latency (`stats`) has a mean,
percentiles and a maximum below its path: `latency.ttft.p99`.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from windtunnel.core.distribution import PERCENTILES
from windtunnel.core.units import duration_cell, format_count, format_size

LOWER, HIGHER = "lower", "higher"

SECONDS, SHARE, DOLLARS, BYTES = "s", "share", "$", "bytes"
REQUESTS, TOKENS = "requests", "tokens"
PER_S, TOKENS_PER_S = "requests/s", "tokens/s"

STATS: Final = ("mean", *(name for name, _ in PERCENTILES), "max")
"""What each latency has."""

LATENCY, ATTAINMENT, THROUGHPUT, COST, NOT_COMPLETED = GROUPS = (
    "latency",
    "SLO attainment",
    "throughput",
    "cost",
    "not completed",
)
"""The groups of a comparison, in their order."""
COMPARED_STATS = ("mean", "p50", "p95", "p99")

NOTHING = "-"
"""Shown in place of a value that does not exist."""


class Figure(NamedTuple):
    """A value of a result; `group` is where comparisons show it, `kept` whether sweeps keep it."""

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
    """A figure under one path: its label there, its unit, and which way is better."""

    label: str
    unit: str
    better: str | None


def _outcomes(part: str, whose: str, *, kept: bool) -> tuple[Figure, ...]:
    """The ways in which requests of a class, a source or a tenant ended."""
    return (
        Figure(f"{part}.requests", f"requests of the {whose} that arrived", REQUESTS, "requests",
               kept=kept),
        Figure(f"{part}.completed", "requests with a complete response", REQUESTS, "completed",
               kept=kept),
        Figure(f"{part}.rejected", "requests that admission rejected", REQUESTS, "rejected", LOWER,
               kept=kept),
        Figure(f"{part}.timed_out", "requests whose client gave up", REQUESTS, "timed out", LOWER,
               kept=kept),
        Figure(f"{part}.dropped", "requests that could not be served", REQUESTS, "dropped", LOWER,
               kept=kept),
        Figure(f"{part}.unfinished", "requests that were queued or running when the run ended",
               REQUESTS, "unfinished", LOWER, kept=kept),
    )  # fmt: skip


def _account(part: str, whose: str) -> tuple[Figure, ...]:
    """What a source or a tenant asked for, and what it got."""
    return (
        *_outcomes(part, whose, kept=False),
        Figure(f"{part}.attained", "SLO attainment: the share of these requests that completed "
               "and met every target of their class", SHARE, "attained", HIGHER, "none arrived"),
        Figure(f"{part}.goodput_requests_per_s",
               "requests that attained their SLO, per second measured", PER_S, "goodput",
               HIGHER),
        Figure(f"{part}.prompt_tokens", "prompt tokens of completed requests", TOKENS,
               "prompt tokens"),
        Figure(f"{part}.output_tokens", "output tokens of completed requests", TOKENS,
               "output tokens"),
        Figure(f"{part}.served_share", f"those tokens over all that the {whose} asked for", SHARE,
               "served", HIGHER, "none arrived"),
    )  # fmt: skip


def _latency(
    path: str, label: str, title: str, meaning: str, null_when: str, group: str = ""
) -> Figure:
    kept = path.startswith(("latency.", "slo."))
    named: dict[str, Any] = {"kept": kept, "group": group, "title": title, "stats": True}
    return Figure(path, meaning, SECONDS, label, LOWER, null_when, **named)


NONE_COMPLETED = "none completed"

FIGURES: Final = (
    Figure("name", "the scenario's name"),
    Figure("seed", "the seed in force"),
    Figure("windtunnel", "the version that ran"),
    Figure("scenario_sha256", "digest of all values in force, defaults and overrides included, "
           "and of the manifests that `scaling` and `gangs` name"),
    Figure("simulated_seconds",
           "from the start to `duration`, or to the last event where there is none", SECONDS,
           "simulated time", kept=True),
    Figure("ended_by", "`duration`; where the scenario has none `last request`, or `nothing to "
           "wait for` when requests were left that no server would ever have served; of a run that "
           "ended before its time, what ended it: `interrupt`, `memory`, `no progress`"),
    Figure("partial", "why the run ended before its time, in a sentence: the results are those of "
           "its beginning", null_when="it ran to its end"),
    Figure("measured.from", "requests that arrived from here on are those that `latency` (but for "
           "`itl`), `throughput`, `slo`, `sources`, `tenants`, `fairness` and those figures of "
           "`models` are of; everything else is of the whole run. Where all are measured, "
           "`measured` is null", SECONDS, "measured from"),
    Figure("measured.to", "and those that arrived before", SECONDS, "measured to",
           null_when="to the end"),
    Figure("measured.requests", "how many these are", REQUESTS, "measured"),
    Figure("requests.arrived", "requests that arrived; the next five add up to it, always",
           REQUESTS, "arrived", kept=True),
    Figure("requests.completed", "requests with a complete response", REQUESTS, "completed",
           kept=True),
    Figure("requests.rejected", "requests that admission rejected", REQUESTS, "rejected", LOWER,
           kept=True, group=NOT_COMPLETED),
    Figure("requests.timed_out", "requests whose client gave up", REQUESTS, "timed out", LOWER,
           kept=True, group=NOT_COMPLETED),
    Figure("requests.dropped", "requests that could not be served: too large for the server that "
           "they were sent to, or their server was lost once too often", REQUESTS, "dropped",
           LOWER, kept=True, group=NOT_COMPLETED),
    Figure("requests.unfinished",
           "requests that were queued or running when `duration` ended the run", REQUESTS,
           "unfinished", LOWER, kept=True, group=NOT_COMPLETED),
    Figure("reasons.completed", "how many responses are shorter than asked for, by reason"),
    Figure("reasons.rejected", "how many were rejected, by reason"),
    Figure("reasons.timed_out", "how many clients gave up, by what their requests waited for"),
    Figure("reasons.dropped", "how many could not be served, by reason"),
    Figure("reasons.unfinished", "where unfinished requests were when the run ended"),
    Figure("tokens.prompt", "prompt tokens of completed requests, shared prefixes included",
           TOKENS, "prompt tokens", kept=True),
    Figure("tokens.output", "output tokens of completed requests", TOKENS, "output tokens",
           kept=True),
    Figure("tokens.prefix_hit", "prompt tokens of completed requests that were found in a prefix "
           "cache, loaded from slower tiers or not; a preempted request may hit more than once",
           TOKENS, "prefix-hit tokens", kept=True),
    _latency("latency.ttft", "TTFT", "time to first token", "arrival to first token",
             "nothing completed", LATENCY),
    _latency("latency.tpot", "TPOT", "time per output token",
             "first token to last, divided by the tokens after the first",
             "no completed request has two tokens", LATENCY),
    _latency("latency.itl", "ITL", "inter-token latency", "every gap between two tokens that "
             "follow each other in a request, pauses by preemption included", "no gap was seen"),
    _latency("latency.e2e", "E2E", "end-to-end latency", "arrival to the end of the request",
             "nothing completed", LATENCY),
    _latency("latency.queue", "queued", "time queued",
             "arrival to the start of the first step that computes a token of the request",
             "nothing completed"),
    _latency("latency.gateway", "gateway", "queued at the gateway",
             "the time queued at the gateway: arrival to admission",
             "there is no gateway, or nothing completed"),
    Figure("throughput.requests_per_s", "completed requests per second measured", PER_S,
           "throughput", HIGHER, kept=True, group=THROUGHPUT),
    Figure("throughput.output_tokens_per_s", "their output tokens per second measured",
           TOKENS_PER_S, "output tokens/s", HIGHER, kept=True, group=THROUGHPUT),
    Figure("throughput.goodput_requests_per_s",
           "completed requests that met every target of their class, per second measured",
           PER_S, "goodput", HIGHER, kept=True, group=THROUGHPUT),
    *_outcomes("slo.CLASS", "class", kept=True),
    Figure("slo.CLASS.attained", "SLO attainment: the share of these requests that completed and "
           "met every target; unfinished, dropped and rejected ones did not", SHARE, "attained",
           HIGHER, "none arrived", kept=True, group=ATTAINMENT, title="SLO attainment"),
    Figure("slo.CLASS.attained_by.ttft", "share that completed and met this one target", SHARE,
           "TTFT attained", HIGHER, "the class has no such target, or none arrived", kept=True),
    Figure("slo.CLASS.attained_by.tpot", "the same; a request of one token meets it", SHARE,
           "TPOT attained", HIGHER, "the same", kept=True),
    Figure("slo.CLASS.attained_by.e2e", "the same", SHARE, "E2E attained", HIGHER, "the same",
           kept=True),
    Figure("slo.CLASS.goodput_requests_per_s",
           "requests that met every target of the class, per second measured", PER_S,
           "goodput", HIGHER, kept=True),
    _latency("slo.CLASS.ttft", "TTFT", "", "as `latency.ttft`, of this class", NONE_COMPLETED),
    _latency("slo.CLASS.tpot", "TPOT", "", "as `latency.tpot`", "none completed with two tokens"),
    _latency("slo.CLASS.e2e", "E2E", "", "as `latency.e2e`", NONE_COMPLETED),
    _latency("slo.CLASS.queue", "queued", "", "as `latency.queue`", NONE_COMPLETED),
    *_account("sources.SOURCE", "source"),
    *_account("tenants.TENANT", "tenant"),
    _latency("tenants.TENANT.ttft", "TTFT", "", "as `latency.ttft`, of this tenant",
             NONE_COMPLETED),
    _latency("tenants.TENANT.e2e", "E2E", "", "as `latency.e2e`", NONE_COMPLETED),
    Figure("fairness.served_tokens", "Jain's index over tenants of `served_share`, below", SHARE,
           "fairness of served tokens", HIGHER, "nothing completed", kept=True),
    Figure("fairness.goodput", "Jain's index over tenants of `attained`", SHARE,
           "fairness of goodput", HIGHER, "no request attained its SLO", kept=True),
    Figure("sessions.count", "sessions that began", "", "sessions"),
    Figure("sessions.turns", "requests that were turns of a session", REQUESTS, "turns"),
    Figure("sessions.ended", "how many ended in which [state](../explanation/workload.md); each "
           "ends in exactly one. Turns of a trace that arrive at its times do not wait for each "
           "other, so those sessions end with the run: `completed` when every turn that arrived "
           "was, `cancelled` when one was not, `interrupted` when one was still under way"),
    _latency("sessions.cold_ttft", "TTFT of first turns", "",
             "TTFT of first turns, whose history is in no cache", "no first turn completed"),
    _latency("sessions.warm_ttft", "TTFT of later turns", "",
             "TTFT of later turns, whose history may be cached", "no later turn completed"),
    _latency("sessions.duration", "session", "", "first arrival to last end, of sessions whose "
             "last turn has ended; of the first million", "none ended"),
    Figure("gateway", "what was decided before requests were routed: `waiting_peak`, the most "
           "requests that were queued there at once (with several models, at the gateway of one "
           "of them), and `decisions`, how many `admit`, `queue`, `reject` and `evict`, each by "
           "[reason](../explanation/gateway.md)", null_when="every request is admitted at once"),
    Figure("adapters",
           "LoRA adapters by name, in the order in which the scenario names them; below",
           null_when="no pool has `lora`"),
    Figure("routing", "with `router.counterfactual`: over how many `requests` choices were "
           "examined, `regret_mean`, `regret_p99` and `regret_max` (how much higher the best "
           "server would have scored on fresh signals), and `better_elsewhere`, the share of "
           "requests for which there was a better one", null_when="not asked for"),
    Figure("encode", "encoding of images and sound: `requests` that came to the encoders with how "
           "many media `tokens`, the share of the encoders' time that they were `busy`, and the "
           "figures of their `wait` for an encoder", null_when="there is no `serving.encode`"),
    Figure("disaggregation", "prompts that were computed on another server than their response: "
           "`split` requests, those that `waited` for KV blocks, `moved_tokens` and `moved_bytes`, "
           "`present_tokens` that were already cached on the decode server, `link_busy`, the "
           "share of the run in which KV was moving over the busiest link (a server's NIC in one "
           "direction, a rack's uplink, or a fabric), requests that `stayed` where "
           "their prompt was computed because there was no room elsewhere, those that would have "
           "been split while `no_prefill_server` was ready and were computed where they are "
           "decoded, and the figures of `room`, the time from the end of a prefill until there "
           "were KV blocks on the decode server, and of `transfer`, the time from then until all "
           "KV was there", null_when="no pool has a role of its own", kept=True),
    Figure("models", "of each of several models, by name, what the keys of the same name say of "
           "the whole: `requests`, `tokens`, `latency` (but `gateway`), `throughput` and `cost`; "
           "`attained`, the SLO attainment of its requests; and `pools`, those that serve it. A "
           "model without a name is called after the scenario", null_when="there is one model"),
    Figure("pools.POOL.model", "the model that its servers serve", "", "model",
           null_when="the scenario names none"),
    Figure("pools.POOL.cluster", "the cluster that they are in", "", "cluster"),
    Figure("pools.POOL.replica_seconds", "time that servers were paid for, from the beginning of "
           "their start-up until they were gone, summed over servers", SECONDS, "replica-seconds",
           kept=True),
    Figure("pools.POOL.ready_seconds",
           "time in which they could serve: from the end of the start-up on", SECONDS,
           "ready time"),
    Figure("pools.POOL.accelerator_seconds",
           "`replica_seconds`, times the accelerators of a server", SECONDS, "accelerator-seconds",
           LOWER, kept=True),
    Figure("pools.POOL.replicas.initial", "servers when the run began", "", "initial servers"),
    Figure("pools.POOL.replicas.final", "servers that were ready or starting when it ended", "",
           "final servers"),
    Figure("pools.POOL.replicas.most", "the most that were paid for at one time", "",
           "most servers"),
    Figure("pools.POOL.replicas.started", "servers that were added", "", "started"),
    Figure("pools.POOL.replicas.drained",
           "servers that were removed by draining, including those that never became ready", "",
           "drained"),
    Figure("pools.POOL.replicas.redirected",
           "requests that draining servers sent back to the router", REQUESTS, "redirected"),
    Figure("pools.POOL.replicas.lost", "servers that were lost at once, with all their requests",
           "", "lost", LOWER),
    Figure("pools.POOL.replicas.retried", "requests that were retried because of that", REQUESTS,
           "retried", LOWER),
    Figure("pools.POOL.replicas.failed",
           "requests that had been retried too often, and were dropped", REQUESTS, "failed", LOWER),
    Figure("pools.POOL.replicas.lost_tokens", "tokens that had been computed for both", TOKENS,
           "lost tokens", LOWER),
    Figure("pools.POOL.replicas.rate_limited", "how often its servers answered 429", "",
           "rate limited"),
    Figure("pools.POOL.utilization",
           "share of `ready_seconds` in which a step was running, however small its batch", SHARE,
           "busy", kept=True),
    Figure("pools.POOL.preemptions", "how often a request had to give its KV blocks back", "",
           "preemptions", LOWER, kept=True),
    Figure("pools.POOL.kv_peak", "largest share of its KV blocks that any one server had in use",
           SHARE, "KV peak", kept=True),
    Figure("pools.POOL.kv_blocks", "KV blocks that each server can use", "", "KV blocks"),
    Figure("pools.POOL.kv_leaked",
           "KV blocks of all its servers that [leaked](../explanation/faults.md#kv-leak)", "",
           "KV leaked", LOWER),
    Figure("pools.POOL.price_per_hour",
           "dollars for an hour of one accelerator: the pool's own, or else the catalog's example",
           DOLLARS, "$ per hour", null_when="it has neither"),
    Figure("pools.POOL.cost", "`accelerator_seconds` at that price; 0 without one", DOLLARS,
           "cost", LOWER, kept=True),
    Figure("pools.POOL.offload", "slower tiers: of each its `blocks` on a server, `peak` (the "
           "largest share in use on any), `loads`, `loaded_tokens` and `loaded_bytes`, "
           "`stored_bytes` that came, `evicted_bytes` that went on or were lost, `busy` (share of "
           "the time in which it was loading); and the figures of `wait`, how long requests "
           "waited for loads", null_when="the pool has none"),
    Figure("pools.POOL.step_time.model", "the step-time model that was asked for"),
    Figure("pools.POOL.step_time.profile", "the profile of `physics`",
           null_when="the model is another"),
    Figure("pools.POOL.step_time.calibrated",
           "whether that profile was fitted to measurements of this accelerator",
           null_when="the model is another"),
    Figure("pools.POOL.speculative.drafts", "[drafts](../explanation/speculative.md) that were "
           "verified, one for each request and step; `speculative` is there where a pool has it",
           "", "drafts"),
    Figure("pools.POOL.speculative.drafted_tokens", "tokens of those drafts", TOKENS,
           "drafted tokens"),
    Figure("pools.POOL.speculative.accepted_tokens", "of these, tokens that were accepted", TOKENS,
           "accepted tokens"),
    Figure("pools.POOL.speculative.acceptance_rate", "accepted over drafted tokens", SHARE,
           "acceptance rate", HIGHER, "nothing was drafted"),
    Figure("pools.POOL.speculative.acceptance_length", "mean tokens that a request gets of a step "
           "that verifies a draft, the model's own included", TOKENS, "acceptance length", HIGHER,
           "nothing was drafted"),
    Figure("servers[].pool", "the pool of the server"),
    Figure("servers[].server", "its number in the pool, from 0"),
    Figure("servers[].requests",
           "requests that were sent there, for a prompt or for a response, and have ended",
           REQUESTS, "requests"),
    Figure("servers[].queue_mean",
           "mean time from admission until their prompt was computed there, of completed requests",
           SECONDS, "mean time queued", LOWER, "none did"),
    Figure("servers[].utilization", "share of the run in which a step was running", SHARE, "busy"),
    Figure("servers[].steps", "steps that ended", "", "steps"),
    Figure("servers[].preemptions", "how often a request had to give its KV blocks back", "",
           "preemptions", LOWER),
    Figure("servers[].kv_peak", "largest share of its KV blocks in use", SHARE, "KV peak"),
    Figure("servers[].prefix_hit_tokens",
           "prompt tokens of completed requests that were found in its prefix cache", TOKENS,
           "prefix hits"),
    Figure("servers[].output_tokens", "output tokens of completed requests", TOKENS,
           "output tokens"),
    Figure("cost.total", "the sum over pools; with a `fleet` the cost of its machines", DOLLARS,
           "cost", LOWER, kept=True, group=COST),
    Figure("cost.per_million_output_tokens", "the same over a million of `tokens.output`", DOLLARS,
           "cost per M tokens", LOWER, "no output", kept=True, group=COST,
           title="cost per million output tokens"),
    Figure("scaling", "of an autoscaler: `ticks`; `changes`, decisions that changed the size of a "
           "pool; `superseded`, those that a later one overtook; `changes_per_hour` and "
           "`direction_changes`, how often a pool grew after it had shrunk or the other way "
           "round; `under_provisioned_s`, the time in which there were fewer replicas than [were "
           "needed](../explanation/elastic-pools.md#how-well-it-was-scaled), and "
           "`wasted_replica_seconds`, by how much the pools were over-provisioned; and of each of "
           "the `pools` its `sizes`: for every change its time, how many servers were wanted, and "
           "how many were pending, starting, ready and draining then. Of more than 4,000 changes "
           "every second is left out; `notes`, what is allowed and may surprise, such as no "
           "patience at all", null_when="the scenario has no `scaling`"),
    Figure("gangs", "`terminations` of gangs that fell below their minimum and stayed there; of "
           "each of the `clusters` at the end its `gangs` and `pods`, how many of these were "
           "`waiting` for a machine and how many were `ready`, and `sizes`, a list for each "
           "change: the time, pods that wait, start, are ready and end, and gangs of which a pod "
           "waits; `notes`, where there are any: what of the manifests was skipped, and what was "
           "terminated again and again before it was ready, and why",
           null_when="the scenario has neither `gangs` nor `fleet`"),
    Figure("fleet", "`cost`, the dollars for all machines, which is then the `cost.total` of the "
           "run; of each of the `pools` of machines `machine_seconds` and `cost` from when a "
           "machine is there until it is given back or lost, how many `machines` there are at the "
           "end and at `most`, how many were `created`, `given_back` and `lost`, and `sizes`, a "
           "list for each change: the time, machines that are creating, idle, configuring, "
           "configured, draining, deleting and failed, and the dollars an hour of those that are "
           "paid for; `actions`, what was decided, by kind; `short`, the needs that were not met "
           "at the end, and why", null_when="the scenario has no `fleet`"),
    Figure("decisions.scaling", "changes of a number of replicas", "", "scaling decisions"),
    Figure("decisions.faults", "[faults](../explanation/faults.md) that began", "", "faults"),
    Figure("decisions.gang_terminations", "gangs that were terminated", "", "gang terminations"),
    Figure("decisions.fleet_actions", "machines that were taken, given or moved", "",
           "fleet actions"),
    Figure("faults", "the first 1,000 of them, in order: `name`, `kind`, `at` and `until` in "
           "seconds, up to 100 `subjects` (servers as POOL-NUMBER; none when nothing was there to "
           "strike), and the `reason` that it began; `until` is null for one that had not ended"),
    Figure("invariants.checked", "checks that were made"),
    Figure("invariants.broken", "0, or there would be no result"),
    Figure("trust.verdict", "the gravest severity below: `good`, `caution` or `doubt`"),
    Figure("trust.findings[].code",
           "what it is about, from [a closed set](../explanation/trust.md)"),
    Figure("trust.findings[].severity", "`good`, `caution` or `doubt`; the gravest come first"),
    Figure("trust.findings[].says", "a sentence with the numbers that count"),
    Figure("trust.findings[].figures", "those numbers by name"),
    Figure("trust.pools.POOL.error.basis", "what the error of the step-time model was found on, "
           "best first: `fitted steps` or `unseen steps` of this very model, steps of `other "
           "models`, single `operators`, measurements `left out` of a table, `none`"),
    Figure("trust.pools.POOL.error.mape",
           "mean absolute error of predicted step times, as a fraction of the measured ones",
           SHARE, null_when="nothing was measured"),
    Figure("trust.pools.POOL.error.p90", "nine in ten were off by less", SHARE,
           null_when="nothing was measured"),
    Figure("trust.pools.POOL.error.points", "on how many measurements"),
    Figure("trust.pools.POOL.error.of", "measurements of what, or why there are none"),
    Figure("trust.pools.POOL.measured", "the largest step that was measured: `tokens`, `decodes` "
           "(sequences that decode), `context` of those, `prompt` up to the end of a chunk",
           null_when="the model has no such bounds"),
    Figure("trust.pools.POOL.extrapolated", "steps larger than that: `step_share`, `time_share`, "
           "how many `steps` were beyond in tokens, decodes or context, and the `most` of each",
           null_when="the model has no such bounds"),
    Figure("trust.saturated.seconds", "how long servers could not keep up", SECONDS,
           "time saturated", LOWER),
    Figure("trust.saturated.stretches",
           "when: `start_s`, `end_s`, `cause`, `most_servers` at once"),
    Figure("trust.latency_intervals", "with `--trust`: for each latency and each of `mean`, "
           "`p50`, `p90`, `p95` and `p99`, the two ends between which [95 % of further "
           "runs](../explanation/trust.md#intervals) are",
           null_when="not asked for, or neither seeds nor errors of step times change anything"),
    Figure("trust.repeats", "what they come from: the `seeds`, the `step_error` of each pool, the "
           "factors of `host_time` where it is not the scenario's own, the ends `by_chance` alone "
           "and the means with fast and with slow steps, `by_model`; "
           "`by_chance` is null where seeds change nothing, and then one seed runs",
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
"""Parts that have the figures of another part."""

LATENCIES: Final = {
    one.path.removeprefix("latency."): (one.title, one.label)
    for one in FIGURES
    if one.path.startswith("latency.")
}
"""The latencies of a run: title and label."""
TARGETS: Final = {key: LATENCIES[key][1] for key in ("ttft", "tpot", "e2e")}
"""The latencies that classes of service have targets for."""
OUTCOMES: Final = {
    one.path.removeprefix("requests."): one.label
    for one in FIGURES
    if one.path.startswith("requests.") and one.label != "arrived"
}
"""The ways in which requests end, by label."""

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
"""The columns of tables; what is left out first on a narrow screen is the last."""


def heads_of(part: str) -> list[str]:
    """The heads of the columns of a table."""
    return [figure(f"{part}.{path}").label for path in COLUMNS[part]]


def cells_of(part: str, entry: Mapping[str, Any]) -> list[str]:
    """The cells of one row."""
    return [text_of(figure(f"{part}.{path}").unit, value_at(entry, path)) for path in COLUMNS[part]]


_NAME = re.compile(r"\b[A-Z]{4,}\b")


@cache
def _patterns() -> list[tuple[re.Pattern[str], Figure]]:
    """By path, those with the most fixed letters first: names may have dots in them."""
    found = []
    for figure in (*FIGURES, *BELOW):
        fixed = re.escape(figure.path)
        pattern = _NAME.sub("(.+)", fixed) + (
            r"\.(" + "|".join(STATS) + ")" if figure.stats else ""
        )
        found.append((re.compile(pattern), figure))
    return sorted(found, key=lambda one: -len(_NAME.sub("", one[1].path)))


@cache
def figure(path: str) -> FigureLabel:
    """The label, unit and direction of the figure under a path.

    A path that stands for many, such as `slo.CLASS.ttft.p99`, has the label of a column.
    """
    for part, other in ALIKE:
        if path.startswith(part) and not any(path.startswith(one.path) for one in BELOW):
            return figure(path.replace(part, other, 1))
    for pattern, found in _patterns():
        matched = pattern.fullmatch(path)
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
    """The value under a path."""
    value: Any = result
    for key in path.split("."):
        value = value[key]
    return value


def text_of(unit: str, value: float | None) -> str:
    """A value in its unit, as a column or a tile shows it."""
    return NOTHING if value is None else _FORMATS.get(unit, _plain)(value)


def share_text(share: float | None) -> str:
    """Percent with one decimal; 99.96 % is not 100 %."""
    if share is None:
        return NOTHING
    return f"{share:.1%}" if share < 0.999 or share == 1.0 else f"{int(share * 1e4) / 100:.2f}%"


def _dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.1 or not value else f"${value:.3g}"


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

"""Prefill apart from decode: what the sections mean, and what is wrong with them."""

from collections.abc import Iterator

from windtunnel.settings.faults import Fault
from windtunnel.twin.scenario.disaggregation_spec import DisaggregationSpec
from windtunnel.twin.scenario.plan import EncodePlan, SplitPlan
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.serving_spec import ServingSpec
from windtunnel.twin.scenario.workload_spec import SourceSpec

DEFAULT_THRESHOLD = 16
PREFILLS = ("prefill", "both")
DECODES = ("decode", "both")


def split_plan(serving: ServingSpec) -> SplitPlan | None:
    """None where no pool has a role of its own."""
    if all(pool.role == "both" for pool in serving.pools):
        return None
    spec = serving.disaggregation or DisaggregationSpec()
    transfer = spec.transfer
    return SplitPlan(
        decider=spec.decider,
        threshold=DEFAULT_THRESHOLD if spec.threshold is None else spec.threshold,
        bytes_per_s=transfer.bandwidth,
        latency_s=transfer.latency,
        contention=transfer.contention,
        bytes_per_token=transfer.bytes_per_token,
    )


def encode_plan(serving: ServingSpec) -> EncodePlan | None:
    encode = serving.encode
    if encode is None:
        return None
    return EncodePlan(encode.servers, encode.fixed, encode.per_token)


def encode_faults(spec: Scenario) -> Iterator[Fault]:
    """Encoders that nobody needs; a trace may have media in any row."""
    if spec.serving.encode is None:
        return
    if not any(not isinstance(entry, SourceSpec) or entry.media for entry in spec.workload):
        what = "no source has media, so that there is nothing to encode"
        hint = "give a source `media`, or leave it out"
        yield Fault(("serving", "encode"), what, hint=hint, because_of=(("workload",),))


def disaggregation_faults(spec: Scenario) -> Iterator[Fault]:
    serving = spec.serving
    section = ("serving", "disaggregation")
    roles = [pool.role for pool in serving.pools]
    split = serving.disaggregation
    if split is not None and split.threshold is not None and split.decider != "prefix-threshold":
        what = f"the decider is {split.decider!r}, which has no use for it"
        because = ((*section, "decider"),)
        hint = "set decider: prefix-threshold, or leave it out"
        yield Fault((*section, "threshold"), what, hint=hint, because_of=because)
    if all(role == "both" for role in roles):
        if split is not None:
            what = "every pool has the role 'both', so that nothing is split"
            yield Fault(section, what, hint="give pools the roles 'prefill' and 'decode'")
        return
    alone = list(_alone(spec))
    yield from alone
    if alone:
        return  # nothing would be moved
    named = all(pool.model or spec.model for pool in serving.pools if pool.role != "both")
    if not named and (split is None or split.transfer.bytes_per_token is None):
        what = "missing, and the scenario has no model that says how large the KV of a token is"
        yield Fault((*section, "transfer", "bytes_per_token"), what, "a size, such as 128KiB")


def _alone(spec: Scenario) -> Iterator[Fault]:
    """Pools that do one half of the work, where nobody does the other for the same requests."""
    pools = spec.serving.pools
    models = {pool.model or spec.model for pool in pools}
    clusters = {pool.cluster for pool in pools}
    for index, pool in enumerate(pools):
        if pool.role == "both":
            continue
        partner = DECODES if pool.role == "prefill" else PREFILLS
        roles = [
            other.role
            for other in pools
            if (other.model or spec.model, other.cluster)
            == (pool.model or spec.model, pool.cluster)
        ]
        if any(role in partner for role in roles):
            continue
        which = " for its model" * (len(models) > 1) + " in its cluster" * (len(clusters) > 1)
        what = f"'{pool.role}', but no pool{which} has the role '{partner[0]}' or 'both'"
        yield Fault(("serving", "pools", index, "role"), what)

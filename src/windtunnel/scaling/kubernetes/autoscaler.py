"""The `Autoscaler` resource: the `scaling` section of a scenario, and its targets on a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, ValidationError

from windtunnel.core.addresses import address_fault
from windtunnel.core.errors import InputError
from windtunnel.scaling.build import LivePolicySection, setup_of
from windtunnel.scaling.kubernetes.plan import (
    REPLICA_LABELS,
    InvalidPlan,
    LinearStepTimes,
    ObjectName,
    PrometheusSource,
    QueueSource,
    ScaledTarget,
    ScalingPlan,
)
from windtunnel.scaling.policies.keda.policy import KedaSettings
from windtunnel.scaling.settings import PolicySettings
from windtunnel.scaling.snapshot import Objective, ReplicaSpec
from windtunnel.settings.faults import Fault, checker_faults, dotted
from windtunnel.settings.fields import Duration, Name, Number, Text, Whole
from windtunnel.settings.limits import LONGEST_TARGET, MOST_REPLICAS
from windtunnel.settings.manifests import AnyText, DnsName, Manifest
from windtunnel.settings.section import ApiSection, Context, faults_of

GROUP: Final = "windtunnel.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"
AUTOSCALER: Final = "Autoscaler"
MOST_TARGETS: Final = 64
MOST_LIMITS: Final = 32
CLOCK_BEGINS: Final = "1970-01-01T00:00"
"""The epoch of live clocks, from which cron schedules count."""
STEP_TIMES: Final = ("predictive", "dynamo")
"""Policies that plan with engine step times."""

Tokens = Annotated[int, Whole(0, 10**12)]
Time = Annotated[float, Duration("0s", LONGEST_TARGET)]
StepPart = Annotated[float, Duration("0s", "1m")]
FolderPath = Annotated[str, Text("a path below the operator's --canary folder")]
FigureName = Annotated[str, Text("a figure, such as latency.ttft.p99")]
LimitText = Annotated[str, Text("a limit, such as +5%")]


class TargetReference(ApiSection):
    """An object with a scale subresource, in the namespace of the Autoscaler."""

    api_version: Annotated[str, Text("group and version, such as apps/v1")] = Field(
        description="Its group and version."
    )
    kind: Annotated[str, Text("a kind, such as Deployment")] = Field(description="Its kind.")
    name: DnsName = Field(description="Its name.")


class StepTimeForm(ApiSection):
    """How long an engine step takes, as in the `linear` step-time model."""

    fixed: StepPart = Field(description="Fixed time per step.")
    prefill_token: StepPart = Field(default=0.0, description="Time per new prompt token.")
    decode: StepPart = Field(default=0.0, description="Time per decoding sequence.")
    context_token: StepPart = Field(
        default=0.0, description="Time per token in the contexts of decoding sequences."
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if self.fixed == 0.0 and (self.prefill_token == 0.0 or self.decode == 0.0):
            allowed = "a fixed cost above 0, or costs above 0 for prefill tokens and for decodes"
            yield where.fault("fixed", "a step would take no time", allowed)


class AutoscaledTarget(ApiSection):
    """A target to scale, and what one replica of it consists of."""

    name: Annotated[str, Name()] | None = Field(
        default=None,
        description="Name of this pool in `scaling`; default: the name of the target.",
    )
    target_ref: TargetReference = Field(description="The object to scale.")
    role: Literal["both", "prefill", "decode"] = Field(
        default="both", description="The role of its servers."
    )
    selector: AnyText = Field(
        default="",
        description="Label selector of the pods that serve, such as `role=leader`, in "
        "addition to the selector of the scale; default: all pods of the "
        "scale.",
    )
    replica_label: AnyText | None = Field(
        default=None,
        description="Pods with the same value of this label form one replica; default: "
        "each pod is a replica, and for Grove's sets and scaling groups their "
        "replica label.",
    )
    port: Annotated[int, Whole(1, 65535)] = Field(
        default=8000, description="Port to scrape on each pod."
    )
    path: AnyText = Field(default="/metrics", description="Path to scrape.")
    accelerator: AnyText = Field(
        default="", description="Kind of accelerator, as limited by `accelerators` in `scaling`."
    )
    accelerators: Annotated[int, Whole(1, 10**6)] = Field(
        default=1, description="Accelerators per replica."
    )
    price_per_hour: Annotated[float, Number(0, 10**9)] = Field(
        default=0.0, description="Price of a replica, in any unit: the cheapest pool grows first."
    )
    startup: Time = Field(
        default=0.0, description="Mean time from request to ready, for policies that plan ahead."
    )
    kv_tokens: Tokens = Field(
        default=0,
        description="KV-cache capacity of a replica in tokens, if servers do not publish it.",
    )
    max_num_seqs: Tokens = Field(default=0, description="Limit of the engine; default: unknown.")
    max_num_batched_tokens: Tokens = Field(
        default=0, description="Limit of the engine; default: unknown."
    )
    step_time: StepTimeForm | None = Field(
        default=None, description="Step times, required by `predictive` and `dynamo`."
    )

    @property
    def pool(self) -> str:
        return self.name or self.target_ref.name

    def check(self, where: Context) -> Iterator[Fault]:
        if not self.path.startswith("/"):
            yield where.fault("path", "the path does not start with '/'")

    def replica(self) -> ReplicaSpec:
        times = self.step_time
        return ReplicaSpec(
            accelerator=self.accelerator,
            accelerators=self.accelerators,
            price_per_hour=self.price_per_hour,
            startup_s=self.startup,
            kv_tokens=float(self.kv_tokens),
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            step_times=None
            if times is None
            else LinearStepTimes(
                times.fixed, times.prefill_token, times.decode, times.context_token
            ),
        )


class MetricsForm(ApiSection):
    """The source of pod metrics."""

    source: Literal["pods", "prometheus"] = Field(
        default="pods",
        description="`pods`: every pod is scraped; `prometheus`: the operator's "
        "Prometheus server (`--prometheus`) is queried.",
    )
    pod_label: Annotated[str, Text("a label")] = Field(
        default="pod", description="The label with the pod name in Prometheus."
    )


class QueueForm(ApiSection):
    """Requests queued at a gateway, before any server."""

    url: Annotated[str, Text("an http:// or https:// address")] = Field(
        description="The gateway's metrics page."
    )
    metric: Annotated[str, Text("the name of a metric")] = Field(
        default="windtunnel_queued",
        description="The gauge of queued requests; series with a label `model` count for "
        "that model alone.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        what = address_fault(self.url)
        if what:
            yield where.fault("url", what)


class ObjectiveForm(ApiSection):
    """Latency targets; an omitted one does not apply."""

    ttft: Time = Field(default=0.0, description="Time to the first token.")
    tpot: Time = Field(default=0.0, description="Time per output token after the first.")
    e2e: Time = Field(default=0.0, description="Time to the last token.")
    attained: Annotated[float, Number(0, 1)] = Field(
        default=0.95, description="Share of requests that must meet the targets."
    )


class CanaryLimits(ApiSection):
    """Limits on a change, as in `windtunnel check`; default: those of `check`."""

    max_cost: LimitText | None = Field(
        default=None, description="Maximum cost, or maximum increase, such as `+5%`."
    )
    min_attainment: LimitText | None = Field(
        default=None,
        description="Minimum SLO attainment of every class, such as `99%`, or maximum "
        "decrease, such as `-0.5%` (points).",
    )
    max: dict[FigureName, LimitText] = Field(
        default_factory=dict,
        max_length=MOST_LIMITS,
        description="Maximum of any figure, or maximum increase, such as `latency.ttft.p99: +10%`.",
    )
    min: dict[FigureName, LimitText] = Field(
        default_factory=dict,
        max_length=MOST_LIMITS,
        description="Minimum of any figure, or maximum decrease.",
    )


class CanarySpec(ApiSection):
    """A changed `scaling` is applied only after it has passed `check` on recorded traffic."""

    scenario: FolderPath = Field(
        description="The scenario with the servers, a file in the operator's `--canary` "
        "folder. Its pools are named like the targets."
    )
    trace: FolderPath = Field(
        description="The recorded traffic, in the same folder: a gateway's trace folder, "
        "or a file from it."
    )
    last: Annotated[float, Duration("1min", "14d")] = Field(
        default=6 * 3600.0, description="How much of the trace to replay, counted from its end."
    )
    limits: CanaryLimits = Field(default_factory=CanaryLimits, description="Limits on the change.")

    def check(self, where: Context) -> Iterator[Fault]:
        for name in ("scenario", "trace"):
            path = PurePosixPath(getattr(self, name))
            if path.is_absolute() or ".." in path.parts:
                what = f"{str(path)!r} is outside of the folder"
                yield where.fault(name, what, "a path below the operator's --canary folder")


class AutoscalerSpec(ApiSection):
    """Scales the targets of one model by a policy that also runs unchanged in a simulation."""

    model: AnyText | None = Field(
        default=None, description="The model; default: the name of this object."
    )
    targets: list[AutoscaledTarget] = Field(
        min_length=1, max_length=MOST_TARGETS, description="The targets to scale, one per pool."
    )
    scaling: LivePolicySection = Field(
        description="The `scaling` section of a scenario, unchanged. `pools` must have "
        "bounds for every target."
    )
    metrics: MetricsForm = Field(default_factory=MetricsForm, description="The source of metrics.")
    queue: QueueForm | None = Field(
        default=None, description="The queue of a gateway; required to scale up from zero replicas."
    )
    objective: ObjectiveForm = Field(
        default_factory=ObjectiveForm,
        description="Latency targets, for policies that plan by them.",
    )
    canary: CanarySpec | None = Field(
        default=None,
        description="How a changed `scaling` is checked before it is applied; default: it "
        "is applied at once.",
    )
    mode: Literal["Scale", "Recommend"] = Field(
        default="Scale",
        description="`Scale`: targets are scaled; `Recommend`: sizes are only published "
        "as metrics.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        pools = [target.pool for target in self.targets]
        for number, pool in enumerate(pools):
            if pool in pools[:number]:
                what = f"there are two pools {pool!r}"
                yield where.fault(("targets", number, "name"), what)
            if pool not in self.scaling.pools:
                hint = f"write pools: {{{pool}: {{min: 1, max: 8}}}}"
                what = "missing: without bounds a mistake could grow without end"
                yield where.fault(("scaling", "pools", pool), what, hint=hint)
            if self.scaling.policy in STEP_TIMES and self.targets[number].step_time is None:
                what = f"missing: {self.scaling.policy} plans with it"
                yield where.fault(("targets", number, "stepTime"), what)
        asleep = [pool for pool in pools if self.scaling.bounds_of(pool).min == 0]
        if len(asleep) == len(pools) and self.queue is None:
            what = "missing: without it nothing starts again from zero replicas"
            hint = "name the gateway's page of metrics, or set a min of 1"
            yield where.fault("queue", what, hint=hint)


class AutoscalerManifest(Manifest):
    """Scales the targets of one model by a policy that also runs unchanged in a simulation."""

    spec: AutoscalerSpec = Field(description="The spec.")


class _Pool(NamedTuple):
    """A target as the rules of a policy see it."""

    name: str
    role: str
    replicas: int
    accelerator: str | None
    gpus: int
    model: str | None


class _Serving(NamedTuple):
    pools: Sequence[_Pool]


class _Scope(NamedTuple):
    """The root of a `Context`: the part of a scenario that the rules of a policy read."""

    serving: _Serving
    model: str


def autoscaler_plan(namespace: str, name: str, spec: Mapping[str, Any]) -> ScalingPlan:
    """Returns the plan of an Autoscaler; raises `InvalidPlan` with every fault in it."""
    data: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": AUTOSCALER,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    try:
        manifest = AutoscalerManifest.read(data)
    except ValidationError as error:
        raise invalid(checker_faults(error, AutoscalerManifest)) from None
    form = manifest.spec
    pools = [_pool(target, form.scaling) for target in form.targets]
    model = form.model or name
    found = faults_of(manifest, Context(_Scope(_Serving(pools), model), Path()))
    faults = [fault for fault in found if not fault.is_note]
    if faults:
        raise invalid(faults)
    scaling = form.scaling
    if isinstance(scaling, KedaSettings):
        scaling = scaling.model_copy(update={"begins": CLOCK_BEGINS})
    try:
        setup = setup_of(scaling, pools, Path())
        setup.policies[0].policy.build()
    except InputError as error:
        raise InvalidPlan(str(error)) from None
    objective = form.objective
    return ScalingPlan(
        model,
        tuple(_target(target, form.scaling, namespace) for target in form.targets),
        setup,
        Objective(objective.ttft, objective.tpot, objective.e2e, objective.attained),
        PrometheusSource(form.metrics.pod_label) if form.metrics.source == "prometheus" else None,
        queue=None if form.queue is None else QueueSource(form.queue.url, form.queue.metric),
        recommends_only=form.mode == "Recommend",
    )


def _pool(target: AutoscaledTarget, scaling: PolicySettings) -> _Pool:
    size = min(max(1, scaling.bounds_of(target.pool).min), MOST_REPLICAS)
    accelerator = target.accelerator or None
    return _Pool(target.pool, target.role, size, accelerator, target.accelerators, None)


def _target(target: AutoscaledTarget, scaling: PolicySettings, namespace: str) -> ScaledTarget:
    ref = target.target_ref
    label = target.replica_label
    return ScaledTarget(
        target.pool,
        ObjectName(ref.api_version, ref.kind, namespace, ref.name),
        scaling.bounds_of(target.pool),
        target.role,
        target.selector,
        replica_label=REPLICA_LABELS.get(ref.kind, "") if label is None else label,
        port=target.port,
        path=target.path,
        replica=target.replica(),
    )


def invalid(faults: Sequence[Fault]) -> InvalidPlan:
    """All faults, one sentence each."""
    said = []
    for fault in faults[:20]:
        error = InputError(
            fault.what, where=dotted(fault.path), allowed=fault.allowed, hint=fault.hint
        )
        said.append(str(error))
    return InvalidPlan("; ".join(said))

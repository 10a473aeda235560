"""Knative's Service: its autoscaler is set by the annotations of the template."""

from typing import Final

from pydantic import Field

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.units import parse_duration
from windtunnel.scaling.manifests.fields import AnyText, Manifest, Opaque, number_in
from windtunnel.scaling.manifests.pools import Assignment, Pools
from windtunnel.scaling.peers.plans import KnativePlan
from windtunnel.scaling.plan import BoundsPlan
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import ApiSection

INTERVAL_S = 2.0
PREFIX: Final = "autoscaling.knative.dev/"
KPA: Final = "kpa.autoscaling.knative.dev"
MOST_REPLICAS: Final = 100_000
ANNOTATIONS: Final[KeyPath] = ("spec", "template", "metadata", "annotations")
EARLIER: Final = {"minScale": "min-scale", "maxScale": "max-scale"}
"""Keys as they were once written."""
TARGETS: Final = {"concurrency": 100.0, "rps": 200.0}
"""Metrics, and the targets that they have by default."""

Range = tuple[float, float]
NUMBERS: Final[dict[str, Range]] = {
    "min-scale": (0.0, MOST_REPLICAS),
    "max-scale": (0.0, MOST_REPLICAS),
    "initial-scale": (0.0, MOST_REPLICAS),
    "target": (0.01, 1e9),
    "target-utilization-percentage": (1.0, 100.0),
    "target-burst-capacity": (-1.0, 1e9),
    "panic-window-percentage": (1.0, 100.0),
    "panic-threshold-percentage": (110.0, 1000.0),
    "activation-scale": (1.0, MOST_REPLICAS),
}
TIMES: Final[dict[str, Range]] = {
    "window": (6.0, 3600.0),
    "scale-down-delay": (0.0, 3600.0),
    "scale-to-zero-pod-retention-period": (0.0, 3600.0),
}
WORDS: Final = {"class": (KPA,), "metric": tuple(TARGETS)}


class TemplateMetadata(ApiSection):
    """What is said of each revision."""

    name: AnyText | None = Field(default=None, description="Not used.")
    labels: dict[str, AnyText] | None = Field(default=None, description="Not used.")
    annotations: dict[str, AnyText] = Field(
        default_factory=dict, description="Those of the autoscaler are read."
    )


class TemplateSpec(ApiSection):
    """What a revision is."""

    metadata: TemplateMetadata = Field(
        default_factory=TemplateMetadata, description="Its annotations."
    )
    spec: Opaque = Field(
        default_factory=dict, description="Only `containerConcurrency` of it is read."
    )


class ServiceSpec(ApiSection):
    """What a Service says."""

    template: TemplateSpec = Field(description="What a revision is.")
    traffic: list[Opaque] | None = Field(default=None, description="Not used.")


class Service(Manifest):
    """A Knative Service."""

    spec: ServiceSpec = Field(description="What it says.")

    def assignment(self, label: str, pools: Pools) -> tuple[Assignment | None, list[Fault]]:
        """Who scales which pool, or what is wrong."""
        read = _Annotations(self.spec.template.metadata.annotations)
        pool = pools.find(self.metadata.name, ("metadata", "name"))
        least, most = int(read.number("min-scale", 0.0)), int(read.number("max-scale", 0.0))
        if most and most < least:
            what = f"max-scale={most} is less than min-scale={least}"
            read.fault("max-scale", what)
        if read.number("scale-to-zero-pod-retention-period", 0.0) > 0:
            read.fault("scale-to-zero-pod-retention-period", "this is not simulated")
        plan = self._plan(read)
        faults = read.faults if isinstance(pool, str) else [*read.faults, pool]
        if faults or isinstance(pool, Fault):
            return None, faults
        bounds = {pool: BoundsPlan(least, most or MOST_REPLICAS)}
        return Assignment(label, plan, bounds, INTERVAL_S), []

    def _plan(self, read: "_Annotations") -> KnativePlan:
        metric = read.word("metric", "concurrency")
        # A hard limit is the target, too, where no lower one is written, and is filled to the brim.
        hard = self.spec.template.spec.get("containerConcurrency", 0)
        target = read.number("target", TARGETS.get(metric, 100.0))
        if isinstance(hard, int) and hard > 0 and metric == "concurrency":
            target = min(target, float(hard))
        return KnativePlan(
            metric=metric,
            target=target,
            utilization_percent=read.number("target-utilization-percentage", 70.0),
            window_s=read.number("window", 60.0),
            panic_window_percent=read.number("panic-window-percentage", 10.0),
            panic_threshold_percent=read.number("panic-threshold-percentage", 200.0),
            scale_down_delay_s=read.number("scale-down-delay", 0.0),
            activation_scale=int(read.number("activation-scale", 1.0)),
        )


class _Annotations:
    """The annotations of the autoscaler, each in its range; what is not known is a fault."""

    def __init__(self, written: dict[str, str]) -> None:
        self.faults: list[Fault] = []
        self._values: dict[str, float] = {}
        self._words: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        for key, text in written.items():
            if key.startswith(PREFIX):
                short = key.removeprefix(PREFIX)
                short = EARLIER.get(short, short)
                self._keys[short] = key
                self._read(short, text)

    def number(self, name: str, default: float) -> float:
        return self._values.get(name, default)

    def word(self, name: str, default: str) -> str:
        return self._words.get(name, default)

    def fault(
        self, name: str, what: str, allowed: str | None = None, hint: str | None = None
    ) -> None:
        path = (*ANNOTATIONS, self._keys[name])
        self.faults.append(Fault(path, what, allowed, hint))

    def _read(self, name: str, text: str) -> None:
        if name in WORDS:
            if text not in WORDS[name]:
                allowed = ", ".join(WORDS[name])
                self.fault(name, f"{text!r} is not simulated", allowed, nearest(text, WORDS[name]))
            self._words[name] = text
            return
        if name not in NUMBERS and name not in TIMES:
            known = [PREFIX + known for known in (*WORDS, *NUMBERS, *TIMES)]
            self.fault(name, "unknown annotation", hint=nearest(PREFIX + name, known))
            return
        low, high = NUMBERS.get(name) or TIMES[name]
        value = number_in(text) if name in NUMBERS else _seconds(text)
        if value is None or not low <= value <= high:
            what = f"{text!r} is out of range"
            self.fault(name, what, f"{low:g} to {high:g}{'' if name in NUMBERS else ' s'}")
            return
        self._values[name] = value


def _seconds(text: str) -> float | None:
    try:
        return parse_duration(text)
    except InputError:
        return None

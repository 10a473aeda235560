"""Knative's KnativeService: its autoscaler is set by the annotations of the template."""

from typing import Any, Final

from pydantic import Field

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.units import parse_duration
from windtunnel.scaling.manifests.fields import AnyText, ManifestForm, Opaque, limits_of, number_in
from windtunnel.scaling.manifests.pools import Assignment, PoolNames
from windtunnel.scaling.policies.knative import KnativeSettings
from windtunnel.scaling.settings import PoolBounds
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.limits import MOST_REPLICAS
from windtunnel.settings.section import ApiSection

INTERVAL_S = 2.0
PREFIX: Final = "autoscaling.knative.dev/"
KPA: Final = "kpa.autoscaling.knative.dev"
ANNOTATIONS: Final[KeyPath] = ("spec", "template", "metadata", "annotations")
EARLIER: Final = {"minScale": "min-scale", "maxScale": "max-scale"}
"""Keys as they were once written."""
TARGETS: Final = {"concurrency": 100.0, "rps": 200.0}
"""Metrics, and the targets that they have by default."""
SETTINGS: Final = {
    "target": "target",
    "target-utilization-percentage": "utilization_percent",
    "window": "window_s",
    "panic-window-percentage": "panic_window_percent",
    "panic-threshold-percentage": "panic_threshold_percent",
    "scale-down-delay": "scale_down_delay_s",
    "activation-scale": "activation_scale",
}
"""Annotations, and what they are called in a scenario."""
RANGES: Final[dict[str, tuple[float, float]]] = {
    "min-scale": (0.0, MOST_REPLICAS),
    "max-scale": (0.0, MOST_REPLICAS),
    "initial-scale": (0.0, MOST_REPLICAS),
    "target-burst-capacity": (-1.0, 1e9),
    "scale-to-zero-pod-retention-period": (0.0, 3600.0),
    **{name: limits_of(KnativeSettings, field) for name, field in SETTINGS.items()},
}
TIMES: Final = ("window", "scale-down-delay", "scale-to-zero-pod-retention-period")
WORDS: Final = {"class": (KPA,), "metric": tuple(TARGETS)}


class RevisionMetadata(ApiSection):
    """What is said of each revision."""

    name: AnyText | None = Field(default=None, description="Not used.")
    labels: dict[str, AnyText] | None = Field(default=None, description="Not used.")
    annotations: dict[str, AnyText] = Field(
        default_factory=dict, description="Those of the autoscaler are read."
    )


class RevisionForm(ApiSection):
    """What a revision is."""

    metadata: RevisionMetadata = Field(
        default_factory=RevisionMetadata, description="Its annotations."
    )
    spec: Opaque = Field(
        default_factory=dict, description="Only `containerConcurrency` of it is read."
    )


class KnativeServiceForm(ApiSection):
    """What a KnativeService says."""

    template: RevisionForm = Field(description="What a revision is.")
    traffic: list[Opaque] | None = Field(default=None, description="Not used.")


class KnativeService(ManifestForm):
    """A Knative KnativeService."""

    spec: KnativeServiceForm = Field(description="What it says.")

    def assignment(self, label: str, pools: PoolNames) -> tuple[Assignment | None, list[Fault]]:
        """Who scales which pool, or what is wrong."""
        read = _Annotations(self.spec.template.metadata.annotations)
        pool = pools.find(self.metadata.name, ("metadata", "name"))
        least, most = int(read.number("min-scale", 0.0)), int(read.number("max-scale", 0.0))
        if most and most < least:
            what = f"max-scale={most} is less than min-scale={least}"
            read.fault("max-scale", what)
        if read.number("scale-to-zero-pod-retention-period", 0.0) > 0:
            read.fault("scale-to-zero-pod-retention-period", "this is not simulated")
        faults = read.faults if isinstance(pool, str) else [*read.faults, pool]
        if faults or isinstance(pool, Fault):
            return None, faults
        bounds = PoolBounds(min=least, max=most or MOST_REPLICAS)
        return Assignment(label, self._policy(read, pool, bounds)), []

    def _policy(self, read: "_Annotations", pool: str, bounds: PoolBounds) -> KnativeSettings:
        metric = read.word("metric", "concurrency")
        # A hard limit is the target, too, where no lower one is written, and is filled to the brim.
        hard = self.spec.template.spec.get("containerConcurrency", 0)
        target = read.number("target", TARGETS.get(metric, 100.0))
        if isinstance(hard, int) and hard > 0 and metric == "concurrency":
            target = min(target, float(hard))
        return KnativeSettings(
            policy="knative",
            interval_s=INTERVAL_S,
            pools={pool: bounds},
            metric=metric,
            **{**read.settings(), "target": target},
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

    def settings(self) -> dict[str, Any]:
        """What is written of the settings, by their names in a scenario."""
        written = {SETTINGS[name]: self._values[name] for name in SETTINGS if name in self._values}
        if "activation_scale" in written:
            written["activation_scale"] = int(written["activation_scale"])
        return written

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
        if name not in RANGES:
            known = [PREFIX + known for known in (*WORDS, *RANGES)]
            self.fault(name, "unknown annotation", hint=nearest(PREFIX + name, known))
            return
        low, high = RANGES[name]
        value = _seconds(text) if name in TIMES else number_in(text)
        if value is None or not low <= value <= high:
            what = f"{text!r} is out of range"
            self.fault(name, what, f"{low:g} to {high:g}{' s' if name in TIMES else ''}")
            return
        self._values[name] = value


def _seconds(text: str) -> float | None:
    try:
        return parse_duration(text)
    except InputError:
        return None

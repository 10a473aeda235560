"""From the names in manifests to pools and metrics of the scenario."""

from collections.abc import Mapping, Sequence
from typing import Final

from windtunnel.core.errors import InputError, nearest
from windtunnel.scaling.manifests.queries import QueriedMetric, queried
from windtunnel.scaling.metrics import metric


class ScenarioNames:
    """Maps names in manifests to the pools and metrics of a scenario.

    A target is the pool of the same name. A role of a target is the pool `TARGET-ROLE`, or the pool
    named like the role. `targets` maps other names: from `TARGET` or `TARGET/ROLE` to a pool.
    `metrics` maps names that only the author of a manifest knows, in the manifest or in one of its
    queries, to metrics measured here.
    """

    def __init__(
        self,
        pools: Sequence[str],
        targets: Mapping[str, str] | None = None,
        metrics: Mapping[str, str] | None = None,
    ) -> None:
        self._pools: Final = dict.fromkeys(pools)  # ordered, with fast lookup
        self._targets: Final = dict(targets or {})
        self._metrics: Final = dict(metrics or {})
        self._routes: Final[dict[str, Mapping[str, float]]] = {}
        self._used_targets: Final[set[str]] = set()
        self._used_metrics: Final[set[str]] = set()

    def pool(self, target: str, role: str = "") -> str:
        """The pool of a target; an InputError lists the pools."""
        key = f"{target}/{role}" if role else target
        if key in self._targets:
            self._used_targets.add(key)
            return self._targets[key]
        wanted = [f"{target}-{role}", role] if role else [target]
        for name in wanted:
            if name in self._pools:
                return name
        hint = f"or write scaling.targets: {{{key}: POOL}}"
        close = nearest(wanted[0], self._pools)
        what = f"no pool is called {' or '.join(repr(name) for name in wanted)}"
        allowed = ", ".join(self._pools)
        raise InputError(what, allowed=allowed, hint=f"{close} {hint}" if close else hint)

    def metric(self, name: str) -> str:
        """The name of a metric that is measured here; an InputError lists them."""
        if name in self._metrics:
            self._used_metrics.add(name)
            return self._metrics[name]
        try:
            metric(name)
        except InputError as error:
            hint = f"or write scaling.metrics: {{{name}: METRIC}}"
            hint = f"{error.hint} {hint}" if error.hint else hint
            raise InputError(error.what, allowed=error.allowed, hint=hint) from None
        return name

    def resource(self, name: str) -> str:
        """The metric that replaces a machine resource, such as CPU."""
        if name not in self._metrics:
            what = f"{name!r} is a resource of the machine, and is not simulated"
            hint = f"write scaling.metrics: {{{name}: batch_utilization}} for a metric in its place"
            raise InputError(what, hint=hint)
        return self.metric(name)

    def query(self, query: str, name: str | None = None) -> QueriedMetric:
        """The metric that a query asks for; `name` is that of the query, if it has one."""
        found = queried(query, self._metrics, name)
        self._used_metrics.update(found.mapped)
        return found

    def add_route(self, name: str, targets: Mapping[str, float]) -> None:
        """Adds a route of KEDA's HTTP add-on: its metrics, with the target per replica of each."""
        self._routes[name] = targets

    def route(self, name: str) -> Mapping[str, float]:
        """The targets of the route with this name; an InputError lists the routes."""
        if name not in self._routes:
            allowed = ", ".join(self._routes) or None
            what = f"there is no InterceptorRoute {name!r}"
            raise InputError(what, allowed=allowed, hint=nearest(name, self._routes))
        return self._routes[name]

    def unused(self) -> dict[str, str]:
        """Mappings for names that occur in no manifest, by their place in the scenario."""
        targets = self._targets.keys() - self._used_targets
        metrics = self._metrics.keys() - self._used_metrics
        return {
            **{f"targets.{key}": "no manifest has such a target" for key in sorted(targets)},
            **{f"metrics.{key}": "no manifest has such a metric" for key in sorted(metrics)},
        }

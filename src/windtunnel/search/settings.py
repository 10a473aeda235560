"""Settings of a plan: the deployments to try, and the goal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from windtunnel.core.errors import InputError, nearest
from windtunnel.models.catalog.accelerators import ACCELERATORS, resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.settings import LinearStepTime, TableStepTime
from windtunnel.routing.settings import RouterSettings
from windtunnel.scaling.build import ScalingSection
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Flag, ModelName, Name, Number, Share, Text, Whole
from windtunnel.settings.limits import (
    HIGHEST_PRICE,
    MOST_CHOICES,
    MOST_REPLICAS,
    MOST_SEQUENCES,
    MOST_TENSOR_PARALLEL,
    MOST_TOKENS,
)
from windtunnel.settings.section import Added, Context, Section
from windtunnel.workload.settings.sources import BUILT_IN_PRIORITIES, SloClass

if TYPE_CHECKING:
    from windtunnel.twin.scenario.sections import Scenario

ATTAINED = 0.95
CONFIDENCE = 0.95

Switch = Annotated[bool, Flag()]
Below = Annotated[float, Share(above=True)]
Count = Annotated[int, Whole(1, MOST_REPLICAS)]
Money = Annotated[float, Number(0, HIGHEST_PRICE, above=True)]
AcceleratorName = Annotated[str, Text("the name of an accelerator, such as h200")]
Stock = dict[AcceleratorName, Annotated[int, Whole(0, MOST_REPLICAS)]]


class CountRange(Section):
    """A range of server counts."""

    min: Count = Field(default=1, description="Fewest tried.")
    max: Count = Field(description="Most tried.")

    def check(self, where: Context) -> Iterator[Fault]:
        if self.min > self.max:
            what = f"{self.min} is more than max, which is {self.max}"
            yield where.fault("min", what, beside=("max",))


class PrefillDecodeCounts(Section):
    """Disaggregated prefill and decode: how many servers of each."""

    prefill: CountRange = Field(description="Prefill servers.")
    decode: CountRange = Field(description="Decode servers.")


class EngineChoices(Section):
    """Engine settings to try; omitted ones stay as in the pool."""

    max_num_seqs: list[Annotated[int, Whole(1, MOST_SEQUENCES)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Most requests in one batch.",
    )
    max_num_batched_tokens: list[Annotated[int, Whole(1, MOST_TOKENS)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Most tokens in one step.",
    )
    memory_utilization: list[Below] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Usable share of the accelerator's memory.",
    )


class ModelChoices(Section):
    """Choices for one model. Omitted keys of `by_model` default to those of `plan`."""

    attained: Below = Field(
        default=ATTAINED,
        description="Share of requests of each class that must meet all its targets.",
    )
    each_target: Annotated[Switch, Added()] = Field(
        default=False,
        description="Whether `attained` applies to each target (p95 TTFT, p95 TPOT) instead of "
        "all jointly.",
    )
    models: Annotated[list[ModelName] | None, Added()] = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Model variants, such as quantised ones. Default: the scenario's.",
    )
    accelerators: list[AcceleratorName] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Accelerators. Default: the whole catalog.",
    )
    tensor_parallel: list[Annotated[int, Whole(1, MOST_TENSOR_PARALLEL)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Tensor-parallel degrees. Default: 1, 2, 4, 8.",
    )
    engine: EngineChoices = Field(
        default_factory=EngineChoices,
        description="Engine settings to try. Default: the pool's.",
    )
    together: Switch = Field(
        default=True,
        description="Whether servers that do both prefill and decode are candidates.",
    )
    replicas: CountRange | None = Field(
        default=None,
        description="Number of such servers. Default: from the fewest possible to eight times as "
        "many.",
    )
    prefill_decode: PrefillDecodeCounts | None = Field(
        default=None,
        description="Disaggregated candidates. Default: only if the scenario has such pools.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        """Reports unknown names, contradictory ranges, and choices without any option."""
        listed: list[KeyPath] = [
            ("accelerators", index, name) for index, name in enumerate(self.accelerators or ())
        ]
        unknown = list(_unknown(where, listed))
        yield from unknown
        if not unknown:
            yield from self._hardware_faults(where)
        yield from self._model_faults(where)
        yield from self._range_faults(where)
        lists: tuple[tuple[KeyPath, Sequence[Any] | None], ...] = (
            (("models",), self.models),
            (("accelerators",), _catalog_names(self.accelerators)),
            (("tensor_parallel",), self.tensor_parallel),
            (("engine", "max_num_seqs"), self.engine.max_num_seqs),
            (("engine", "max_num_batched_tokens"), self.engine.max_num_batched_tokens),
            (("engine", "memory_utilization"), self.engine.memory_utilization),
        )
        for path, values in lists:
            yield from _repeated(where, path, values)

    def _hardware_faults(self, where: Context) -> Iterator[Fault]:
        """Reports hardware choices if the step time of every pool is the same on all hardware."""
        scenario: Scenario = where.root
        own = [
            pool.step_time
            for pool in scenario.serving.pools
            if where.path[-1] in ("plan", pool.model or scenario.model)
        ]
        if not own or not all(isinstance(one, LinearStepTime | TableStepTime) for one in own):
            return
        for key in ("accelerators", "tensor_parallel"):
            if getattr(self, key) is not None:
                what = f"the step time {own[0].model!r} of the pool would be the same for all"
                hint = "leave it out, or give the pool a step time that follows from its "
                yield where.fault(key, f"{what} of them", hint=f"{hint}accelerator")

    def _model_faults(self, where: Context) -> Iterator[Fault]:
        """Reports names that are not in the catalog; files are read when a candidate is built."""
        for index, name in enumerate(self.models or ()):
            if "/" in name or name.endswith(".json"):
                continue
            try:
                resolve_model(name)
            except InputError as error:
                yield where.fault(("models", index), error.what, error.allowed, error.hint)

    def _range_faults(self, where: Context) -> Iterator[Fault]:
        split = self.prefill_decode
        if self.replicas is not None and not self.together:
            what = "`together` is false, so there are no servers that it could count"
            yield where.fault("replicas", what, hint="leave it out")
        if not self.together and split is None:
            what = "neither servers that do both nor a prefill_decode: there is nothing to try"
            yield where.fault("together", what)
        seqs, budgets = self.engine.max_num_seqs, self.engine.max_num_batched_tokens
        if seqs and budgets and min(seqs) > max(budgets):
            what = f"the largest is {max(budgets)}, and the smallest max_num_seqs is {min(seqs)}"
            hint = "each running request needs a token of every step"
            yield where.fault(("engine", "max_num_batched_tokens"), what, hint=hint)


class PlanSettings(ModelChoices):
    """The choices of `windtunnel plan`, which tries every combination. Omitted keys keep the
    scenario's values, except the number of servers, and `accelerators` and `tensor_parallel` where
    step times depend on them."""

    slo: list[Annotated[str, Name()]] | None = Field(
        default=None,
        min_length=1,
        description="Classes whose targets must be met. Default: every class with targets and "
        "requests.",
    )
    confidence: Annotated[float, Share("60%", "99.99%")] = Field(
        default=CONFIDENCE,
        description="Confidence, over other seeds of the traffic.",
    )
    prices: dict[AcceleratorName, Annotated[float, Number(0, HIGHEST_PRICE)]] = Field(
        default_factory=dict,
        description="Dollars per accelerator-hour, by name. Others: the catalog's example.",
    )
    stock: Annotated[Stock, Added()] = Field(
        default_factory=dict,
        description="Available accelerators by name; others are unlimited.",
    )
    machine: Annotated[Annotated[int, Whole(1, MOST_TENSOR_PARALLEL)] | None, Added()] = Field(
        default=None,
        description="Accelerators per machine; servers do not span machines, which are paid for "
        "whole. Default: single accelerators.",
    )
    dollars_per_hour: Annotated[Money | None, Added()] = Field(
        default=None, description="Budget of a deployment. Default: none."
    )
    routers: list[RouterSettings] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Routers, each as under `serving.router`. Default: the scenario's.",
    )
    fixed: Switch = Field(
        default=True,
        description="Whether a fixed number of servers is a candidate.",
    )
    autoscalers: list[ScalingSection] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Autoscalers, each as under `scaling`. Default: the scenario's.",
    )
    by_model: Annotated[dict[ModelName, ModelChoices], Added()] = Field(
        default_factory=dict,
        description="Choices of one of several models, by its name, instead of those above.",
    )

    @property
    def prices_by_name(self) -> dict[str, float]:
        """`prices` by catalog name."""
        return {resolve_accelerator(name).name: price for name, price in self.prices.items()}

    @property
    def stock_by_name(self) -> dict[str, int]:
        """`stock` by catalog name."""
        return {resolve_accelerator(name).name: count for name, count in self.stock.items()}

    @property
    def written_routers(self) -> list[dict[str, Any]] | None:
        """Each router as it could be written under `serving.router`."""
        return _written(self.routers)

    @property
    def written_autoscalers(self) -> list[dict[str, Any]] | None:
        """Each autoscaler as it could be written under `scaling`."""
        return _written(self.autoscalers)

    def check(self, where: Context) -> Iterator[Fault]:
        """Reports faults in its own keys, after those of `ModelChoices`."""
        yield from super().check(where)
        scenario: Scenario = where.root
        yield from self._class_faults(where, scenario.slo)
        yield from self._price_faults(where)
        if not self.fixed and self.autoscalers is None:
            what = "neither a fixed number of servers nor autoscalers: there is nothing to try"
            yield where.fault("fixed", what)
        lists = (
            ("slo", self.slo),
            ("routers", self.written_routers),
            ("autoscalers", self.written_autoscalers),
        )
        for key, values in lists:
            yield from _repeated(where, (key,), values)

    def _class_faults(self, where: Context, slos: dict[str, SloClass]) -> Iterator[Fault]:
        known = list(dict.fromkeys([*BUILT_IN_PRIORITIES, *slos]))
        for index, name in enumerate(self.slo or ()):
            slo = slos.get(name, SloClass())
            if name not in known:
                what = f"{name!r} is not a class of service"
                yield where.fault(("slo", index), what, ", ".join(known), nearest(name, known))
            elif slo.ttft_s is slo.tpot_s is slo.e2e_s is None:
                what = f"{name!r} has no targets, so nothing could miss them"
                yield where.fault(("slo", index), what, hint=f"give it some under slo.{name}")

    def _price_faults(self, where: Context) -> Iterator[Fault]:
        """Reports unknown names, and prices of accelerators that are not tried."""
        of_prices: list[KeyPath] = [("prices", name) for name in self.prices]
        unknown = list(_unknown(where, [*of_prices, *(("stock", name) for name in self.stock)]))
        yield from unknown
        listed = [*(self.accelerators or ())]
        listed += [name for own in self.by_model.values() for name in own.accelerators or ()]
        if unknown or self.accelerators is None:
            return
        tried = _catalog_names(listed)
        for name in self.prices:
            if resolve_accelerator(name).name not in tried:
                what = "it is not among the accelerators to try"
                yield where.fault(("prices", name), what, ", ".join(dict.fromkeys(listed)))


def _unknown(where: Context, listed: Sequence[KeyPath]) -> Iterator[Fault]:
    """Reports accelerators not in the catalog; the last key of a path is the name, also after an
    index."""
    for path in listed:
        try:
            resolve_accelerator(str(path[-1]))
        except InputError as error:
            at = path[:-1] if len(path) > 2 else path
            yield where.fault(at, error.what, error.allowed, error.hint)


def _repeated(where: Context, path: KeyPath, values: Sequence[Any] | None) -> Iterator[Fault]:
    """Reports a value that is listed twice, since it would be tried twice."""
    seen = list(values or ())
    twice = next((index for index, one in enumerate(seen) if one in seen[:index]), None)
    if twice is not None:
        yield where.fault((*path, twice), "this is already listed")


def _written(sections: Sequence[Section] | None) -> list[dict[str, Any]] | None:
    if sections is None:
        return None
    return [
        section.model_dump(mode="json", by_alias=True, exclude_unset=True) for section in sections
    ]


def _catalog_names(names: Any) -> list[Any]:
    """Accelerators by catalog name; unknown ones unchanged."""
    found = []
    for name in names if isinstance(names, list) else ():
        try:
            found.append(resolve_accelerator(name).name if isinstance(name, str) else name)
        except InputError:
            found.append(name)
    return found


# An override may change the accelerators, and so leave prices of the file unused.


def choice_of(data: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Accelerators and prices of the section as written, before any checks."""
    section = data.get("plan")
    if not isinstance(section, dict):
        return None, {}
    prices = section.get("prices")
    chosen = section.get("accelerators")
    own = list(chosen) if isinstance(chosen, list) else chosen
    return own, dict(prices) if isinstance(prices, dict) else {}


def drop_unused_prices(
    data: dict[str, Any], written: tuple[Any, dict[str, Any]], sets: Sequence[str]
) -> None:
    """Removes prices of the file that become unused because an override changed the accelerators.

    A price that was already unused in the file, or that an override gives, stays and is reported.
    """
    (was, listed), (chosen, prices) = written, choice_of(data)
    paths = [text.partition("=")[0].strip() for text in sets]
    if chosen == was or not isinstance(chosen, list) or {"plan", "plan.prices"} & {*paths}:
        return
    before, after = _catalog_names(was), _catalog_names(chosen)
    for name in prices:
        known = _catalog_names([name])[0]
        fitted = name in listed and known in (before or ACCELERATORS)
        if fitted and known not in after and f"plan.prices.{name}" not in paths:
            del data["plan"]["prices"][name]

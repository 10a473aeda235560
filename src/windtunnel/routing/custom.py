"""Custom policies: a plain class with a `choose` method, found by its path or name.

Such a class sees only what a real router could see: no output lengths, and signals with their age.
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.random import Stream
from windtunnel.core.signals import Signals
from windtunnel.routing.prefixes import CacheIndex
from windtunnel.routing.router import CUSTOM_POLICY, Routed, Router
from windtunnel.workload.request import DEFAULT_SLO, DEFAULT_TENANT, Request

ENTRY_POINTS = "windtunnel.routers"


class RequestLabels(NamedTuple):
    """Names for the numbers in a request. The lists may grow during a run."""

    classes: Sequence[str] = (DEFAULT_SLO,)
    tenants: Sequence[str] = (DEFAULT_TENANT,)
    adapters: Sequence[str] = ()


class RequestView:
    """What a router knows about a request."""

    def __init__(self, request: Request, labels: RequestLabels) -> None:
        self._request = request
        self.id = int(request.id)
        self.arrived_s = request.arrived_s
        self.prompt_tokens = int(request.prompt_tokens)
        self.priority = int(request.priority)
        self.slo = labels.classes[request.slo]
        self.tenant = labels.tenants[request.tenant]
        self.session = int(request.session)
        self.turn = int(request.turn)
        self.adapter = labels.adapters[request.adapter] if request.adapter >= 0 else None


class ServerView:
    """What a router knows about a server: `in_flight` exactly, the rest as last observed."""

    def __init__(self, number: int, pool: str, router: "CustomRouter") -> None:
        self.number = number
        self.pool = pool
        self.slots = router.signals.slots[number]
        self._router = router
        self._signals = router.signals

    def __repr__(self) -> str:
        return f"<server {self.number}>"

    @property
    def waiting(self) -> int:
        return self._signals.waiting[self.number]

    @property
    def running(self) -> int:
        return self._signals.running[self.number]

    @property
    def in_flight(self) -> int:
        return self._signals.in_flight[self.number]

    @property
    def kv_used(self) -> float:
        """The share of its KV blocks that are in use."""
        return self._signals.kv_used[self.number]

    @property
    def load_age_s(self) -> float:
        """Age of `waiting`, `running` and `kv_used`; inf if they were never observed."""
        return self._router.now_s - self._signals.load_seen_s[self.number]

    @property
    def adapters(self) -> Sequence[str]:
        """The LoRA adapters that are loaded."""
        names = self._router.labels.adapters
        return [names[number] for number in self._signals.adapters[self.number]]

    @property
    def adapters_age_s(self) -> float:
        """Age of `adapters`; inf if they were never observed."""
        return self._router.now_s - self._signals.adapters_seen_s[self.number]

    def prefix_tokens(self, request: RequestView) -> int:
        """Tokens at the start of the prompt that are cached on this server."""
        return self._router.index.tokens(request._request, self.number)  # noqa: SLF001 - its other half

    @property
    def cache_age_s(self) -> float:
        """Age of the index that `prefix_tokens` reads."""
        return self._router.index.age_s(self._router.now_s)


class CustomPolicy(Protocol):
    """The method that a custom policy must have: it returns a server or its number."""

    def choose(self, request: RequestView, servers: Sequence[ServerView]) -> ServerView | int: ...


class NamedPolicy(NamedTuple):
    """An instance of a user's class, its name, and where it is named."""

    name: str
    policy: CustomPolicy
    place: str | None = None


@contextmanager
def named_at(place: str | None) -> Iterator[None]:
    """Adds the place where the scenario names a policy to the policy's errors."""
    try:
        yield
    except InputError as error:
        error.where = error.where or place
        raise


class CustomRouter(Router):
    """Delegates each choice to a user's class."""

    def __init__(
        self,
        policy: NamedPolicy,
        candidates: list[int],
        signals: Signals,
        index: CacheIndex,
        pools: list[str],
        labels: RequestLabels,
    ) -> None:
        super().__init__(candidates)
        self.reads_signals = True
        self.signals = signals
        self.index = index
        self.labels = labels
        self.now_s = 0.0  # of the current decision
        self._policy = policy
        self._pools = pools  # by server; the driver appends to it
        self._views: list[ServerView] = []
        self._show(candidates)

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        self._show(candidates)

    def gone(self, server: int) -> None:
        self.index.forget(server)

    def _show(self, candidates: list[int]) -> None:
        self.index.follow(candidates)
        for number in range(len(self._views), len(self._pools)):
            self._views.append(ServerView(number, self._pools[number], self))
        self._shown = tuple(self._views[number] for number in candidates)
        self._allowed = frozenset(candidates)

    def pick(self, request: Request, now_s: float) -> Routed:
        self.now_s = now_s
        self.index.catch_up(now_s)
        name, policy, place = self._policy
        try:
            chosen: object = policy.choose(RequestView(request, self.labels), self._shown)
        except Exception as error:
            fault = failed(name, "in choose", error)
            fault.where = place
            raise fault from error
        number = chosen.number if isinstance(chosen, ServerView) else chosen
        if isinstance(number, int) and not isinstance(number, bool) and number in self._allowed:
            return Routed(number, CUSTOM_POLICY)
        what = f"{name} chose {chosen!r} for request {request.id}"
        allowed = "one of the servers that it was shown, or its number"
        raise InputError(what, where=place, allowed=allowed)


def failed(name: str, when: str, error: Exception) -> InputError:
    """The error of a custom policy, with the traceback within its own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__]
    told = "".join(traceback.format_list(own) + traceback.format_exception_only(error))
    return InputError(f"{name} failed {when}: {type(error).__name__}: {error}\n{told.rstrip()}")


def is_custom(policy: str) -> bool:
    return ":" in policy or policy in names_installed()


def names_installed() -> list[str]:
    """Names of policies offered by installed packages."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=ENTRY_POINTS)})


def load_policy(policy: str, folder: Path, stream: Stream) -> CustomPolicy:
    """Instantiates the class that a policy names; its constructor may take `stream`.

    Modules in the scenario's folder take precedence over installed ones.
    """
    chosen = policy_class(policy, folder)
    try:
        built: CustomPolicy = chosen(stream=stream) if takes_stream(chosen) else chosen()
    except Exception as error:
        raise failed(policy, "when it was created", error) from error
    return built


def takes_stream(chosen: Any) -> bool:
    """Whether a class's constructor takes a random stream."""
    return "stream" in inspect.signature(chosen).parameters


def policy_class(policy: str, folder: Path) -> Any:
    """The class that a policy names; an InputError if its name or module is wrong."""
    from importlib.metadata import EntryPoint, entry_points

    if ":" in policy:
        point = EntryPoint(policy, policy, ENTRY_POINTS)
    else:
        point = next(p for p in entry_points(group=ENTRY_POINTS) if p.name == policy)
    module_name, _, name = point.value.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        allowed = "package.module:Class"
        raise InputError(f"{policy!r} names no class", allowed=allowed)
    with _first_on_path(folder):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            what = f"{policy} cannot be imported: there is no module {error.name!r}"
            hint = "it may lie beside the scenario, or be installed"
            raise InputError(what, hint=hint) from None
        except Exception as error:
            raise failed(policy, "when it was imported", error) from error
    chosen: Any = module
    for part in name.split("."):
        found = getattr(chosen, part, None)
        if found is None:
            what = f"{policy}: {module_name} has no {name!r}"
            raise InputError(what, hint=nearest(part, vars(chosen)))
        chosen = found
    if not isinstance(chosen, type) or not callable(getattr(chosen, "choose", None)):
        what = f"{policy} is not a class with a method choose(request, servers)"
        raise InputError(what)
    return chosen


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))

"""As much of Ray as points need, in this process: what was begun last ends first."""

import pickle
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any


class RayError(Exception):
    """Whatever Ray says of a task."""


class WorkerCrashedError(RayError):
    """Its worker died once too often."""


class OutOfMemoryError(RayError):
    """There was none left."""


class NodeDiedError(RayError):
    """The machine went."""


class Task:
    """A call that is under way, and how it was asked for."""

    def __init__(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.call = call
        self.args = args


class Remote:
    """A function on the cluster."""

    def __init__(self, ray: "FakeRay", call: Callable[..., Any]) -> None:
        self._ray = ray
        self._call = call

    def options(self, **options: Any) -> "Remote":
        self._ray.options = options
        return self

    def remote(self, *args: Any) -> Task:
        self._ray.flying += 1
        self._ray.most_flying = max(self._ray.most_flying, self._ray.flying)
        return Task(self._call, pickle.loads(pickle.dumps(args)))


class FakeRay(ModuleType):
    """Put it into `sys.modules` as `ray`."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.__spec__ = ModuleSpec("ray", None)
        self.exceptions = SimpleNamespace(
            RayError=RayError,
            WorkerCrashedError=WorkerCrashedError,
            OutOfMemoryError=OutOfMemoryError,
            NodeDiedError=NodeDiedError,
        )
        self.inits: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.connected = False
        self.cancelled = 0
        self.flying = self.most_flying = 0
        self.fails: Callable[..., Exception | None] = lambda *_: None
        self.refuses: Exception | None = None

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, **options: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.inits.append(options)
        self.connected = True

    def shutdown(self) -> None:
        self.connected = False

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Resources": {"CPU": 2.0}}, {"Resources": {"CPU": 1.0}}, {"Resources": {}}]

    def remote(self, call: Callable[..., Any]) -> Remote:
        return Remote(self, call)

    def wait(self, tasks: list[Task], num_returns: int) -> tuple[list[Task], list[Task]]:
        return tasks[-num_returns:], tasks[:-num_returns]

    def get(self, task: Task) -> Any:
        self.flying -= 1
        error = self.fails(*task.args)
        if error is not None:
            raise error
        return pickle.loads(pickle.dumps(task.call(*task.args)))

    def cancel(self, task: Task, force: bool) -> None:
        assert force
        self.cancelled += 1

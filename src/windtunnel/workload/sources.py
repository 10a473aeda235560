"""Sources of synthetic requests: open loops with an arrival process, and closed loops of users."""

import math
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final

from windtunnel.core.loop import Actor
from windtunnel.core.random import Stream, Streams
from windtunnel.workload.arrivals import ArrivalTimes
from windtunnel.workload.lengths import LengthDraw, TimeDraw, pick
from windtunnel.workload.register import NAMELESS, Register
from windtunnel.workload.request import NEVER, PrefixChain, Request
from windtunnel.workload.settings.sources import ExtraTokens, SourceSettings

RETRY_S: Final = 1.0
"""Minimum think time after an immediate rejection; without it, time might not advance."""


class RequestSource(Actor):
    """Generates requests one by one; `wake_s` is the arrival time of the next."""

    def take(self, number: int) -> Request:
        """The request that arrives at `wake_s`."""
        raise NotImplementedError

    def ended(self, request: Request, completed: bool, now_s: float) -> None:  # noqa: FBT001
        """Called when a request marked `followed` has ended."""

    def stop(self, now_s: float) -> None:
        """Called when the run is over."""


class Persona:
    """A client: the shared prefix of its prompts, its tenant and its adapter."""

    def __init__(self, prefix: PrefixChain | None, tenant: int, adapter: int) -> None:
        self.prefix: Final = prefix
        self.tenant: Final = tenant
        self.adapter: Final = adapter


class Personas:
    """Draws clients. Each is built once, when it is first drawn."""

    def __init__(self, entry: int, plan: SourceSettings, register: Register) -> None:
        prefix = plan.prefix
        self._entry: Final = entry
        self._register: Final = register
        self._members: Final[int] = plan.members
        self._per_member: Final[bool] = prefix is not None and plan.prefix_per_member
        groups: int = prefix.groups if prefix is not None else 1
        self._groups: Final[int] = plan.members if self._per_member else groups
        self.prefix_tokens: Final[int] = prefix.tokens if prefix is not None else 0
        self._tenant: Final[str] = plan.tenant
        self._tenants: Final[int] = plan.members if plan.tenant_per_member else 1
        adapters: tuple[tuple[str, float], ...] = plan.adapter_weights
        self._adapters: Final = [register.adapters.number(name) for name, _ in adapters]
        self._upto: Final[list[float]] = list(accumulate([weight for _, weight in adapters]))
        self._kinds: Final = max(len(self._adapters), 1)
        self._made: Final[dict[int, Persona]] = {}
        self.keys: Final = self._groups * self._kinds  # smaller numbers are keys of prefixes
        if self._tenants == 1:
            register.tenants.number(self._tenant)

    def draw(self, groups: Stream, members: Stream, adapters: Stream, user: int = -1) -> Persona:
        """Draws a random member; in a closed loop, the member that `user` maps to."""
        member = 0
        if user >= 0:
            member = user % self._members
        elif self._members > 1:
            member = members.integer(0, self._members - 1)
        group = 0
        if self._per_member:
            group = member
        elif self._groups > 1:
            group = groups.integer(0, self._groups - 1)
        kind = pick(self._upto, adapters) if self._kinds > 1 else 0
        if self._tenants == 1:
            member = 0
        number = (group * self._tenants + member) * self._kinds + kind
        persona = self._made.get(number)
        if persona is None:
            persona = self._make(group, member, kind)
            self._made[number] = persona
        return persona

    def _make(self, group: int, member: int, kind: int) -> Persona:
        chain: PrefixChain | None = None
        if self.prefix_tokens:
            # KV computed with an adapter cannot be shared, so its prefix has a key of its own.
            key = self._register.own(self._entry, group * self._kinds + kind)
            chain = PrefixChain([key], [self.prefix_tokens])
        tenant = self._tenant if self._tenants == 1 else f"{self._tenant}-{member}"
        adapter = self._adapters[kind] if self._adapters else -1
        return Persona(chain, self._register.tenants.number(tenant), adapter)


class ExtraDraw:
    """Draws the additional tokens that some requests have."""

    def __init__(self, plan: ExtraTokens) -> None:
        self._tokens: Final = LengthDraw(plan.tokens.drawn())
        self._share: Final[float] = plan.share

    def draw(self, stream: Stream) -> int:
        if self._share < 1.0 and stream.uniform() >= self._share:
            return 0
        return self._tokens.draw(stream)


class Recipe:
    """The fixed properties and distributions from which a source builds its requests."""

    def __init__(self, entry: int, plan: SourceSettings, register: Register) -> None:
        self.entry: Final = entry
        self.register: Final = register
        self.source: Final = register.sources.number(plan.name)
        self.slo: Final = register.classes.number(plan.slo)
        self._model: Final = register.models.number(plan.model or NAMELESS)
        self.personas: Final = Personas(entry, plan, register)
        self.prompts: Final = LengthDraw(plan.prompt_tokens.drawn())
        self.outputs: Final = LengthDraw(plan.output_tokens.drawn())
        self.media: Final = ExtraDraw(plan.media) if plan.media is not None else None
        self.reasoning: Final = ExtraDraw(plan.reasoning) if plan.reasoning is not None else None
        self._priority: Final[int] = register.priorities[self.slo]
        self._timeout_s: Final[float] = plan.timeout_s if plan.timeout_s is not None else NEVER

    def request(
        self,
        number: int,
        arrived_s: float,
        prompt: int,
        output: int,
        persona: Persona,
        prefix: PrefixChain | None,
    ) -> Request:
        request = Request(number, arrived_s, prompt, output, self._priority, self.source, prefix)
        request.slo = self.slo
        request.tenant = persona.tenant
        request.model = self._model
        request.adapter = persona.adapter
        request.deadline_s = arrived_s + self._timeout_s
        return request


class Requests:
    """Builds independent requests; each property is drawn from its own stream."""

    def __init__(self, plan: SourceSettings, recipe: Recipe, streams: Streams) -> None:
        name: str = plan.name
        self._recipe: Final = recipe
        self._prompts: Final = streams[f"workload.{name}.prompt"]
        self._outputs: Final = streams[f"workload.{name}.output"]
        self._groups: Final = streams[f"workload.{name}.prefix"]
        self._members: Final = streams[f"workload.{name}.member"]
        self._adapters: Final = streams[f"workload.{name}.adapter"]
        self._media: Final = streams[f"workload.{name}.media"]
        self._reasoning: Final = streams[f"workload.{name}.reasoning"]

    def make(self, number: int, arrived_s: float, user: int = -1) -> Request:
        recipe = self._recipe
        persona = recipe.personas.draw(self._groups, self._members, self._adapters, user)
        prompt = recipe.prompts.draw(self._prompts) + recipe.personas.prefix_tokens
        output = recipe.outputs.draw(self._outputs)
        media = 0
        if recipe.media is not None:
            media = recipe.media.draw(self._media)
        if recipe.reasoning is not None:
            output += recipe.reasoning.draw(self._reasoning)
        request = recipe.request(number, arrived_s, prompt + media, output, persona, persona.prefix)
        request.media_tokens = media
        return request


class OpenSource(RequestSource):
    """Requests that arrive by an arrival process, whatever happened to earlier ones."""

    def __init__(
        self, entry: int, plan: SourceSettings, register: Register, streams: Streams
    ) -> None:
        super().__init__(entry)
        self._left: int = plan.count if plan.count is not None else -1
        arrivals = streams[f"workload.{plan.name}.arrivals"]
        self._times: Final = ArrivalTimes(plan.arrivals.drawn(), plan.curve, arrivals)
        self._requests: Final = Requests(plan, Recipe(entry, plan, register), streams)
        self._step()

    def _step(self) -> None:
        if self._left == 0:
            self.wake_s = math.inf
            return
        self._left -= 1
        self.wake_s = self._times.next()

    def take(self, number: int) -> Request:
        request = self._requests.make(number, self.wake_s)
        self._step()
        return request


class Users:
    """The users of a closed loop: those that wait for an answer, and when the others ask next."""

    def __init__(self, plan: SourceSettings, streams: Streams) -> None:
        arrivals = plan.arrivals.drawn()
        assert arrivals.think is not None
        users: int = arrivals.users
        self._thinks: Final = TimeDraw(arrivals.think)
        self._stream: Final = streams[f"workload.{plan.name}.think"]
        # First requests are spread over the mean think time; in order, so this is a heap.
        self._thinking: Final[list[tuple[float, int]]] = [
            (self._thinks.mean_s * user / users, user) for user in range(users)
        ]

    def next_s(self) -> float:
        """The time at which the next user sends a request; infinity if all wait for an answer."""
        return self._thinking[0][0] if self._thinking else math.inf

    def take(self) -> int:
        """Removes and returns the user that sends the next request."""
        return heappop(self._thinking)[1]

    def think(self, user: int, asked_s: float, now_s: float) -> None:
        """Starts the think time of a user whose request, sent at `asked_s`, ends now."""
        think_s = self._thinks.draw(self._stream)
        if now_s <= asked_s:
            think_s = max(think_s, RETRY_S)
        heappush(self._thinking, (now_s + think_s, user))


class ClosedSource(RequestSource):
    """Users who each wait for the end of a request, think, and send the next."""

    def __init__(
        self, entry: int, plan: SourceSettings, register: Register, streams: Streams
    ) -> None:
        super().__init__(entry)
        self._left: int = plan.count if plan.count is not None else -1
        self._requests: Final = Requests(plan, Recipe(entry, plan, register), streams)
        self._users: Final = Users(plan, streams)
        self._asking: Final[dict[int, int]] = {}  # users by the number of their request
        self._step()

    def _step(self) -> None:
        self.wake_s = self._users.next_s() if self._left != 0 else math.inf

    def take(self, number: int) -> Request:
        arrived_s = self.wake_s
        user = self._users.take()
        self._asking[number] = user
        self._left -= 1
        request = self._requests.make(number, arrived_s, user)
        request.followed = True
        self._step()
        return request

    def ended(self, request: Request, completed: bool, now_s: float) -> None:  # noqa: ARG002, FBT001
        user = self._asking.pop(request.id)
        if self._left != 0:
            self._users.think(user, request.arrived_s, now_s)
            self._step()

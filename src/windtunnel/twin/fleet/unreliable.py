"""Faults of machines and providers, drawn from named streams at configured rates.

Losses follow a Poisson process: the number in a tick has the mean configured machines x rate x
tick. A lost machine is listed as failed, or no longer listed. A rack or a zone fails as a whole.
The provider may be slow, unreachable or forgetful, or list false records.
"""

import math
from typing import Final

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.loop import EventQueue
from windtunnel.core.random import Stream, Streams
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.orders import MachineOrder
from windtunnel.fleet.provider import FROM_THE_START, PAGE, Completion, Page
from windtunnel.fleet.states import CONFIGURED, FAILED, IDLE, SPECULATIVE
from windtunnel.twin.fleet.provider import CapacityShortage, ProviderLink, SimulatedProvider

AGAIN_S: Final = 10.0
"""The mean delay of an answer's second copy."""
ERROR: Final = "the provider took it away"


class DomainOutage(msgspec.Struct, frozen=True):
    """All machines of one domain fail at once: a rack without power, a zone without a network."""

    at_s: float
    key: str
    value: str


class SlowPeriod(msgspec.Struct, frozen=True):
    """A period in which operations that begin take longer by a factor."""

    from_s: float
    until_s: float
    factor: float


class FlappingPeriod(msgspec.Struct, frozen=True):
    """A period in which the provider is reachable only in the first part of every cycle."""

    from_s: float
    until_s: float
    period_s: float
    up_s: float


class ShortagePeriod(msgspec.Struct, frozen=True):
    """A period in which the provider has no capacity for some machines."""

    from_s: float
    until_s: float
    of: CapacityShortage = msgspec.field(default_factory=CapacityShortage)


class ListCut(msgspec.Struct, frozen=True):
    """A period in which full lists lack the last part of all machines."""

    from_s: float
    until_s: float
    share: float


class ProviderFaults(msgspec.Struct, frozen=True):
    """The rates and times of provider faults. By default there are none."""

    losses_per_s: float = 0.0
    """Loss rate of each configured machine; 1.16e-7 is one in a hundred per day."""
    vanishing: float = 0.5
    """The share of lost machines that are no longer listed, instead of listed as failed."""
    replaced_after_s: float = math.inf
    """When a failed machine is taken off the list, and another of its kind can be created."""
    domains: tuple[DomainOutage, ...] = ()
    slow: tuple[SlowPeriod, ...] = ()
    flapping: tuple[FlappingPeriod, ...] = ()
    shortages: tuple[ShortagePeriod, ...] = ()
    cuts: tuple[ListCut, ...] = ()
    forgets: float = 0.0
    """The share of orders that are accepted, but neither carried out nor answered."""
    doubles: float = 0.0
    """The share of answers that arrive a second time, later."""
    lies: float = 0.0
    """The share of listed records that are false."""

    def check(self) -> "ProviderFaults":
        """Returns itself if every number is valid; raises InputError otherwise."""
        for name in ("vanishing", "forgets", "doubles", "lies"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} is {getattr(self, name)}", allowed="0 to 1")
        if not 0.0 <= self.losses_per_s < math.inf:
            raise InputError(f"losses_per_s is {self.losses_per_s}", allowed="0 or more")
        if not self.replaced_after_s >= 0.0:
            raise InputError(f"replaced_after_s is {self.replaced_after_s}", allowed="0 or more")
        self._check_times()
        for one in self.slow:
            if not 1.0 <= one.factor < math.inf:
                raise InputError(f"a slowness has factor {one.factor}", allowed="1 or more")
        for cut in self.cuts:
            if not 0.0 <= cut.share <= 1.0:
                raise InputError(f"a list lacks a share of {cut.share}", allowed="0 to 1")
        for two in self.flapping:
            if not 0.0 <= two.up_s <= two.period_s or not two.period_s > 0.0:
                raise InputError(
                    f"a flapping provider is up for {two.up_s} s of {two.period_s} s",
                    allowed="a period above 0, up for at most all of it",
                )
        return self

    def _check_times(self) -> None:
        """Rejects times that are never reached, which would silently have no effect."""
        for loss in self.domains:
            if not 0.0 <= loss.at_s < math.inf:
                raise InputError(
                    f"{loss.key} {loss.value!r} is lost at {loss.at_s} s", allowed="0 or more"
                )
        spans = [("slow", one.from_s, one.until_s) for one in self.slow]
        spans += [("flapping", one.from_s, one.until_s) for one in self.flapping]
        spans += [("out of capacity", one.from_s, one.until_s) for one in self.shortages]
        spans += [("cut short", one.from_s, one.until_s) for one in self.cuts]
        for word, from_s, until_s in spans:
            if not from_s < until_s:
                raise InputError(
                    f"the provider is {word} from {from_s} s until {until_s} s",
                    allowed="an end that is later",
                )


def poisson(mean: float, stream: Stream) -> int:
    """A Poisson number with this mean: counts exponential gaps until they exceed it."""
    count, passed = 0, stream.exponential(1.0)
    while passed < mean:
        count += 1
        passed += stream.exponential(1.0)
    return count


class UnreliableProvider(ProviderLink):
    """A provider with faults; `tick` applies them."""

    def __init__(
        self, provider: SimulatedProvider, faults: ProviderFaults, streams: Streams
    ) -> None:
        super().__init__(provider)
        self._faults: Final = faults.check()
        self._losses: Final = streams["fleet.faults.losses"]
        self._forgets: Final = streams["fleet.faults.forgets"]
        self._doubles: Final = streams["fleet.faults.doubles"]
        self._lies: Final = streams["fleet.faults.lies"]
        self._domains: Final = sorted(faults.domains, key=lambda one: -one.at_s)
        self._again: Final = EventQueue()  # answers that come a second time
        self._broken: Final[list[tuple[float, str]]] = []
        self._epochs: Final[dict[str, int]] = {}  # by shard
        self._known: Final[dict[str, dict[str, None]]] = {}
        """By shard: machines that were truthfully listed to the process that runs it."""
        self._now_s = 0.0
        self.out = int(self.is_out(0.0))
        self.expected = 0.0
        """The expected number of losses so far, without domains."""
        self.lost = 0
        """The actual number: listed as failed, or no longer listed."""
        self.lost_with_domain = 0
        self.empty_domains: Final[list[str]] = []
        """Domains that should have failed but have no machines: most likely a typo."""
        self.forgotten = 0
        self.doubled = 0
        self.lied = 0

    # Losses of machines.

    def tick(self, now_s: float) -> None:
        """Applies the faults since the last tick."""
        faults, tick_s = self._faults, now_s - self._now_s
        self._now_s = now_s
        mean = len(self._provider.configured) * faults.losses_per_s * tick_s
        self.expected += mean
        for _ in range(poisson(mean, self._losses) if mean > 0.0 else 0):
            self._lose_any(now_s)
        while self._domains and self._domains[-1].at_s <= now_s:
            self._lose_domain(self._domains.pop(), now_s)
        while self._broken and self._broken[0][0] <= now_s:
            _, name = self._broken.pop(0)
            self._provider.replace(name)
        self._provider.slowness = self._slowness(now_s)
        self.out = int(self.is_out(now_s))
        short = [one.of for one in faults.shortages if one.from_s <= now_s < one.until_s]
        self._provider.shortages[:] = short

    def _lose_any(self, now_s: float) -> None:
        configured = self._provider.configured
        if configured:
            self.lost += 1
            name = configured[self._losses.integer(0, len(configured) - 1)]
            if self._losses.uniform() < self._faults.vanishing:
                self._provider.replace(name)
            else:
                self._lose(name, now_s)

    def _lose_domain(self, loss: DomainOutage, now_s: float) -> None:
        found = False
        for record in self._provider.records():
            if record.shape.attributes().get(loss.key) == loss.value:
                found = True
                if record.state == SPECULATIVE:
                    self._provider.remove(record.id)
                elif record.state != FAILED:
                    self.lost_with_domain += 1
                    self._lose(record.id, now_s)
        if not found:
            self.empty_domains.append(f"no machine has {loss.key} {loss.value!r}: nothing was lost")

    def _lose(self, name: str, now_s: float) -> None:
        self._provider.lose(name, ERROR, now_s)
        if self._faults.replaced_after_s < math.inf:
            self._broken.append((now_s + self._faults.replaced_after_s, name))

    def _slowness(self, now_s: float) -> float:
        factors = [one.factor for one in self._faults.slow if one.from_s <= now_s < one.until_s]
        return max(factors, default=1.0)

    def is_out(self, now_s: float) -> bool:
        return any(
            one.from_s <= now_s < one.until_s and (now_s - one.from_s) % one.period_s >= one.up_s
            for one in self._faults.flapping
        )

    # The provider interface, with its faults.

    def begin(self, shard: str, order: MachineOrder, now_s: float) -> None:
        """Passes on an order, or forgets it."""
        forgets = self._faults.forgets
        if forgets and not self.is_out(now_s) and self._forgets.uniform() < forgets:
            self.forgotten += 1
        else:
            super().begin(shard, order, now_s)

    def list_since(self, shard: str, epoch: int, cursor: int, most: int = PAGE) -> Page:
        """The changes after a cursor; none while unreachable, and some of them false."""
        page = super().list_since(shard, epoch, cursor, most)
        cuts = [one for one in self._faults.cuts if one.from_s <= self._now_s < one.until_s]
        if cuts and cursor == FROM_THE_START:
            kept = round(len(page.records) * (1.0 - max(one.share for one in cuts)))
            page = msgspec.structs.replace(page, records=page.records[:kept])
        if not self._faults.lies or page.unreachable:
            return page
        if epoch > self._epochs.get(shard, 0):
            self._epochs[shard] = epoch
            self._known[shard] = {}
        known = self._known[shard]
        said = [self._said(one, known) for one in page.records]
        return msgspec.structs.replace(page, records=said)

    def _said(self, record: Machine, known: dict[str, None]) -> Machine:
        """The record, or a false one: without a host, without a price, or in an impossible state.

        The last only for machines that the shard already knows: it would have to believe it of
        others.
        """
        if self._lies.uniform() >= self._faults.lies:
            known[record.id] = None
            return record
        self.lied += 1
        kind = self._lies.integer(0, 2)
        if kind == 0 and record.id in known and record.state in (IDLE, CONFIGURED):
            return Machine(record.id, record.shape, SPECULATIVE)
        if kind <= 1:
            return Machine(record.id, record.shape, IDLE)
        unpriced = msgspec.structs.replace(record.shape, price_per_hour=math.nan)
        return msgspec.structs.replace(record, shape=unpriced)

    def next_s(self) -> float:
        """When the next operation or answer is due."""
        return min(self._provider.next_s(), self._again.next_s)

    def _finished(self, now_s: float) -> list[Completion]:
        answers = super()._finished(now_s)
        for answer in list(answers):
            if self._faults.doubles and self._doubles.uniform() < self._faults.doubles:
                self.doubled += 1
                self._again.push(now_s + self._doubles.exponential(AGAIN_S), 0, answer)
        while self._again.next_s <= now_s:
            entry = self._again.pop()
            assert entry is not None
            assert isinstance(entry.payload, Completion)
            answers.append(entry.payload)
        return answers

"""How groups share contended resources: strict shares, or shares with borrowing.

A policy judges a group whose next task would fit. The group may have to yield to others
(*yielding*: it goes only if no other can, so that yielding never leaves a resource idle) or may not
go at all (*refused*: a configured ceiling). Judging changes no group.

The grounds of a judgement stay on the policy until the next one: the denial, the resource, and the
combined weight of contenders at or below which the group should be judged again.
"""

from collections.abc import Mapping
from typing import Final

from mypy_extensions import mypyc_attr

from windtunnel.admission.queues.groups import (
    READY,
    REFUSED,
    YIELDING,
    DemandLane,
    GroupAccount,
    QueueGroup,
    SharedResource,
)
from windtunnel.admission.reasons import TaskDenial
from windtunnel.core.errors import InputError

RESERVED_MAX: Final = 8
"""Largest reserve for newcomers, in units."""
GROUP_DEBT: Final = "group"
LEASE_DEBT: Final = "lease"


@mypyc_attr(allow_interpreted_subclasses=True)
class SharePolicy:
    """Admits every group whose task fits."""

    def __init__(self) -> None:
        self.denial: TaskDenial = TaskDenial.GROUP_CAP
        self.resource: SharedResource | None = None
        self.wake_weight = 0
        self.repays_by_lease = False

    def judge(self, group: QueueGroup, lane: DemandLane, accounts: list[GroupAccount]) -> int:  # noqa: ARG002
        """Returns READY, YIELDING or REFUSED."""
        return READY

    def borrowed(
        self,
        group: QueueGroup,  # noqa: ARG002
        lane: DemandLane,  # noqa: ARG002
        accounts: list[GroupAccount],  # noqa: ARG002
    ) -> list[int] | None:
        """Returns how much of each amount a lease granted now would borrow; None for nothing at
        all."""
        return None


class StrictFair(SharePolicy):
    """Limits a group to its admitted limit while others that could go want the same resource."""

    def judge(self, group: QueueGroup, lane: DemandLane, accounts: list[GroupAccount]) -> int:  # noqa: ARG002
        limit = group.spec.admitted_limit
        if limit == 0 or lane.is_rationed or group.running < limit:
            return READY
        for number, resource in enumerate(lane.resources):
            if lane.considered[number] and resource.contenders > 1:
                self.denial = TaskDenial.GROUP_CAP
                self.resource = resource
                self.wake_weight = group.spec.weight
                return YIELDING
        return READY


class BoundedBorrow(SharePolicy):
    """Shares by weight; a group may borrow unused shares, and yields while in debt.

    A group beyond its share of a contended resource, or still in debt for it, yields. Debt is
    repaid by group (every released lease pays back, up to what is owed) or by lease (only a
    borrowed lease pays back what it borrowed).

    If a budget is the scarce resource, equal parts of the slots would give long calls a larger
    share of it than short ones: there each group goes in its turn.
    """

    def __init__(
        self,
        *,
        repayment: str = GROUP_DEBT,
        round_up: bool = True,
        reserve_fraction: float = 0.0,
        ceiling: int | None = None,
        ceilings: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        """Creates the policy; `ceiling` limits a group's debt, `ceilings` by (group, resource)."""
        super().__init__()
        if repayment not in (GROUP_DEBT, LEASE_DEBT):
            raise InputError(f"{repayment!r} is not a debt rule", allowed="group, lease")
        if not 0.0 <= reserve_fraction < 1.0:
            raise InputError(f"{reserve_fraction} is not a reserve", allowed="0 up to 1")
        if ceiling is not None and ceiling < 0:
            raise InputError(f"{ceiling} is not a borrow ceiling", allowed="0 or more")
        self.repays_by_lease = repayment == LEASE_DEBT
        self._round_up: Final = round_up
        self._reserve_fraction: Final = reserve_fraction
        self._ceiling: Final[int] = -1 if ceiling is None else ceiling
        self._ceilings: Final[dict[tuple[str, str], int]] = dict(ceilings or {})

    def judge(self, group: QueueGroup, lane: DemandLane, accounts: list[GroupAccount]) -> int:
        spec = group.spec
        if spec.admitted_limit == 0 or lane.is_rationed:
            return READY
        for number, resource in enumerate(lane.resources):
            account = accounts[number]
            amount = lane.amounts[number]
            projected = account.leased + amount
            strict = self._strict_share(group, resource)
            if lane.considered[number] and resource.contenders > 1:
                if account.debt > 0:
                    return self._gives_way(TaskDenial.BORROW_DEBT, resource, spec.weight)
                if projected > strict:
                    wake = self._weight_that_allows(group, resource, projected)
                    return self._gives_way(TaskDenial.GROUP_CAP, resource, wake)
            else:
                fresh = newly_borrowed(amount, projected, strict, account.debt)
                if fresh > 0 and account.debt + fresh > self._borrow_ceiling(
                    group, resource, strict
                ):
                    self.denial = TaskDenial.BORROW_DEBT
                    self.resource = resource
                    return REFUSED
        return READY

    def borrowed(
        self, group: QueueGroup, lane: DemandLane, accounts: list[GroupAccount]
    ) -> list[int] | None:
        if group.spec.admitted_limit == 0 or lane.is_rationed:
            return None
        amounts: list[int] | None = None
        for number, resource in enumerate(lane.resources):
            account = accounts[number]
            amount = lane.amounts[number]
            strict = self._strict_share(group, resource)
            fresh = newly_borrowed(amount, account.leased + amount, strict, account.debt)
            if fresh > 0:
                if amounts is None:
                    amounts = [0] * len(lane.resources)
                amounts[number] = fresh
        return amounts

    def _gives_way(self, denial: TaskDenial, resource: SharedResource, wake_weight: int) -> int:
        self.denial = denial
        self.resource = resource
        self.wake_weight = wake_weight
        return YIELDING

    def _strict_share(self, group: QueueGroup, resource: SharedResource) -> int:
        own = group.spec.weight
        together = resource.contending_weight if resource.contenders > 1 else 2 * own
        return strict_share(
            resource.limit, own, together, group.spec.admitted_limit, round_up=self._round_up
        )

    def _weight_that_allows(
        self, group: QueueGroup, resource: SharedResource, projected: int
    ) -> int:
        """Returns the combined weight of contenders at which the share reaches `projected`."""
        own, limit = group.spec.weight, resource.limit
        if projected > limit or projected > group.spec.admitted_limit or projected <= 1:
            return own
        if self._round_up:
            return max(own, (limit * own - 1) // (projected - 1))
        return max(own, limit * own // projected)

    def _borrow_ceiling(self, group: QueueGroup, resource: SharedResource, strict: int) -> int:
        if self._ceilings:
            explicit = self._ceilings.get((group.spec.key, resource.name))
            if explicit is not None:
                return explicit
        if self._ceiling >= 0:
            return self._ceiling
        reserved = reserve(resource.limit, self._reserve_fraction)
        return max(0, resource.limit - reserved - strict)


def strict_share(
    limit: int, own: int, together: int, admitted_limit: int, *, round_up: bool
) -> int:
    """Returns a group's part of a limit by weight: at least 1 if any, at most what it may run."""
    if limit <= 1:
        return limit
    part = (limit * own + together - 1) // together if round_up else limit * own // together
    if part < 1:
        part = 1
    if part > admitted_limit:
        part = admitted_limit
    return part if part < limit else limit


def newly_borrowed(amount: int, projected: int, strict: int, debt: int) -> int:
    """Returns what a lease adds to a group's debt: what exceeds its share and is not owed yet."""
    fresh = projected - strict - debt
    if fresh <= 0:
        return 0
    return fresh if fresh < amount else amount


def reserve(limit: int, fraction: float) -> int:
    """Returns what may not be borrowed, as it is reserved for the next new group."""
    exact = limit * fraction
    whole = int(exact)
    return min(RESERVED_MAX, whole if whole == exact else whole + 1)

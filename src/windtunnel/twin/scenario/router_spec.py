"""What a person writes under `serving.router:`, the rules that hold there, and what it comes to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from windtunnel.core.errors import nearest
from windtunnel.routing.build import (
    ALIASES,
    BY_CACHE,
    DEFAULT_SCORERS,
    POLICIES,
    SCORERS,
    looks_at_servers,
    unknown_policy,
)
from windtunnel.routing.custom import is_custom
from windtunnel.routing.plan import RouterPlan, ScorerPlan
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import Duration, Leaf, Number, Text, Whole, is_not
from windtunnel.settings.limits import (
    LARGEST_WEIGHT,
    LONGEST_STALENESS,
    MOST_REPLICAS,
    MOST_VIRTUAL_NODES,
)
from windtunnel.settings.section import Section

STALENESS_S = 0.05
CACHE_DELAY_S = 0.05
VIRTUAL_NODES = 100
LOAD_FACTOR = 1.25


class ScorerName(Leaf):
    """The name of a scorer."""

    allowed = ", ".join((*SCORERS, *ALIASES))
    schema = {"enum": [*SCORERS, *ALIASES]}  # noqa: RUF012 - a constant that no instance changes

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail(is_not(value, "text"))
        if value not in SCORERS and value not in ALIASES:
            hint = nearest(value, (*SCORERS, *ALIASES)) if len(value) < 100 else None
            self.fail(is_not(value, "a scorer"), hint)
        return value


class RouterSpec(Section):
    """Which server a request goes to."""

    policy: Annotated[
        str,
        Text(f"{', '.join(POLICIES)}, or a class of your own as package.module:Class"),
    ] = Field(
        default="round-robin",
        description="How a server is chosen. A class of your own has a method "
        "`choose(request, servers)`; its module may lie beside the scenario.",
    )
    scorers: (
        dict[Annotated[str, ScorerName()], Annotated[float, Number(0, LARGEST_WEIGHT, above=True)]]
        | None
    ) = Field(
        default=None,
        description="With `weighted`: opinions and how much each counts. "
        "Left out: prefix-cache 2, queue-depth 1, kv-utilization 1.",
    )
    staleness: Annotated[float, Duration("0s", LONGEST_STALENESS)] | None = Field(
        default=None,
        description="How old what is known of servers may grow before they are asked again; "
        "0s: asked for every request. For `weighted`, classes of your own and an admission that "
        "looks at servers; left out: 50ms, as routers in use have it.",
    )
    cache_delay: Annotated[float, Duration("0s", LONGEST_STALENESS)] | None = Field(
        default=None,
        description="How old the picture of what servers have cached may grow. "
        "For scorers that look at it and classes of your own; left out: 50ms.",
    )
    counterfactual: Annotated[int, Whole(0, MOST_REPLICAS)] = Field(
        default=0,
        description="Of how many other servers the scores are noted for each request, judged on "
        "fresh signals; with it the result tells the regret. It asks every server every time; "
        "0: off.",
    )
    virtual_nodes: Annotated[int, Whole(1, MOST_VIRTUAL_NODES)] | None = Field(
        default=None,
        description="With `consistent-hash`: places of each server on the ring. More spread "
        "prompts more evenly; left out: 100.",
    )
    load_factor: Annotated[float, Number(1, 100)] | None = Field(
        default=None,
        description="With `consistent-hash`: how many times the mean load a server may have "
        "before its prompts go to the next; left out: 1.25.",
    )


def router_faults(path: KeyPath, router: RouterSpec, *, watched: bool) -> Iterator[Fault]:
    """An unknown policy, and every option that the chosen one has no use for.

    `watched`: whether the gateway looks at servers, so that the age of what it sees matters.
    """
    policy = router.policy
    own = policy not in POLICIES and is_custom(policy)
    if policy not in POLICIES and not own:
        fault = unknown_policy(policy)
        yield Fault((*path, "policy"), fault.what, fault.allowed, fault.hint)
        return
    weighted = policy == "weighted"
    names = [ALIASES.get(name, name) for name in router.scorers or ()]
    if router.scorers is not None and not names:
        yield Fault((*path, "scorers"), "there is no scorer", "at least one")
    for alias in ALIASES:
        if alias in (router.scorers or ()) and ALIASES[alias] in (router.scorers or ()):
            what = f"it is another name of {ALIASES[alias]!r}, which is there too"
            yield Fault((*path, "scorers", alias), what)
    chosen = names or [scorer.name for scorer in DEFAULT_SCORERS]
    looks_at_caches = own or (weighted and any(name in BY_CACHE for name in chosen))
    looks = own or watched or (weighted and any(looks_at_servers(name) for name in chosen))
    usable = {
        "scorers": (weighted, "policy: weighted"),
        "staleness": (
            looks,
            "policy: weighted with a scorer that looks at servers, such as queue-depth, a class of "
            "your own, or an admission that looks at servers",
        ),
        "cache_delay": (
            looks_at_caches,
            f"policy: weighted with {' or '.join(BY_CACHE)}, or a class of your own",
        ),
        "virtual_nodes": (policy == "consistent-hash", "policy: consistent-hash"),
        "load_factor": (policy == "consistent-hash", "policy: consistent-hash"),
    }
    for key, (can, where) in usable.items():
        if getattr(router, key) is not None and not can:
            what = f"{policy} has no use for it"
            because = ((*path, "policy"), (*path, "scorers"))
            yield Fault((*path, key), what, f"only with {where}", because_of=because)


def router_plan(router: RouterSpec, file: Path) -> RouterPlan:
    """The plan of a section without faults."""
    scorers: tuple[ScorerPlan, ...] = ()
    if router.policy == "weighted":
        given = router.scorers or {}
        scorers = tuple(ScorerPlan(ALIASES.get(name, name), given[name]) for name in given)
        scorers = scorers or DEFAULT_SCORERS
    return RouterPlan(
        policy=router.policy,
        scorers=scorers,
        staleness_s=STALENESS_S if router.staleness is None else router.staleness,
        cache_delay_s=CACHE_DELAY_S if router.cache_delay is None else router.cache_delay,
        counterfactual=router.counterfactual,
        virtual_nodes=router.virtual_nodes or VIRTUAL_NODES,
        load_factor=router.load_factor or LOAD_FACTOR,
        folder=str(file.parent),
    )

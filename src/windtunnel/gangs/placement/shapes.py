"""What each pod needs of a node: resources, labels, free host ports, volumes, and other pods there.

Equal needs share one shape of the space. What was worked out is kept for as long as it is likely to
be used again; it can be worked out again at any time.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from windtunnel.gangs.objects import Pod
from windtunnel.gangs.placement.claims import PodClaims
from windtunnel.gangs.placement.constraints import (
    AffinityTerm,
    Fields,
    host_ports,
    rules_of,
    terms_of,
)
from windtunnel.gangs.placement.requests import HOSTNAME, PodRules, PodShape, PodTerm, both
from windtunnel.gangs.placement.space import Space
from windtunnel.gangs.view import View

PlacedPods = Callable[[], Iterator[tuple[Pod, str]]]
"""Returns the pods that count in the space, each with its node."""
MOST_SPARE: Final = 256
"""Beyond two for each pod that exists, so many entries are kept: names and templates of pods that
are gone are not removed one by one."""


class PodShapes:
    """The shapes of pods, and the terms by which pods avoid each other or want to be near."""

    def __init__(
        self,
        view: View,
        space: Space,
        claims: PodClaims | None,
        placed: PlacedPods | None = None,
    ) -> None:
        self._view: Final = view
        self._space: Final = space
        self._claims: Final = claims
        self._placed: Final = self._bound_pods if placed is None else placed
        self._shapes: Final[dict[str, PodShape]] = {}
        """By template; by place in a clique if any pod has (anti-)affinity terms; by pod if it has
        claims."""
        self._seen: Final[dict[str, None]] = {}
        """Templates without terms, and places in cliques of pods whose terms are known."""
        self.terms: Final[dict[AffinityTerm, PodTerm]] = {}
        """Terms of the pods seen so far, and counts by domain of the pods that they select."""
        self._ports: Final[dict[tuple[str, str], PodTerm]] = {}
        """By port of a node and address: the pods that use it."""

    def clear(self) -> None:
        """Has all shapes worked out again."""
        self._shapes.clear()

    def learn(self, pod: Pod) -> bool:
        """Registers the (anti-)affinity terms of a pod; returns whether there are new ones, which
        other pods may match."""
        if pod.template_hash in self._seen:
            return False
        kind = f"{pod.clique}/{pod.index}/{pod.template_hash}"
        if kind in self._seen:
            return False
        terms = terms_of(pod)
        self._limit(self._seen)
        self._seen[kind if terms else pod.template_hash] = None
        new = [term for term in terms if term not in self.terms]
        for term in new:
            made = self.terms[term] = self._space.term(term.topology_key, near=term.near)
            for other, node in self._placed():
                if term.matches(other):
                    rules = PodRules(matches=(made,))
                    self._space.count_terms(self._space.by_name[node], rules, 1)
        return bool(new)

    def _bound_pods(self) -> Iterator[tuple[Pod, str]]:
        for pod in self._view.pods.values():
            if pod.node:
                yield pod, pod.node

    def of(self, pod: Pod) -> PodShape:
        kind = pod.template_hash
        claims = self._claims
        if claims is not None and not claims.any_of(pod):
            claims = None
        if claims is not None:
            kind = f"{pod.name}/{kind}"
        elif self.terms:  # the pod's own labels count
            kind = f"{pod.clique}/{pod.index}/{kind}"
        shape = self._shapes.get(kind)
        if shape is None:
            self._limit(self._shapes)
            rules = self._rules(pod, claims)
            shape = self._shapes[kind] = self._space.shape(pod.requests, rules)
        return shape

    def _rules(self, pod: Pod, claims: PodClaims | None) -> PodRules:
        spec = pod.template.pod_spec
        rules = self.with_ports(spec, rules_of(spec))
        for selector in () if claims is None else claims.of(pod).selectors:
            rules = replace(rules, selector=both(rules.selector, selector))
        if not self.terms:
            return rules
        known, own = self.terms, terms_of(pod)
        far = [term for term in own if not term.near]
        near = [term for term in own if term.near]
        matching = [made for term, made in known.items() if term.matches(pod)]
        return replace(
            rules,
            avoids=(*(known[term] for term in far if term.required), *rules.avoids),
            shuns=tuple(known[term] for term in far if not term.required),
            joins=tuple(known[term] for term in near if term.required),
            likes=tuple(known[term] for term in near if not term.required),
            matches=(*matching, *rules.matches),
        )

    def with_ports(self, pod_spec: Fields, rules: PodRules) -> PodRules:
        """Adds that no two pods use the same port of a node. The terms that a pod matches exist
        from here on, so a term that is added later matches no pod that is already counted."""
        ports = host_ports(pod_spec)
        if not ports:
            return rules
        own = [self._port(port, address) for port, address in ports]
        there = [*own, *(self._port(port, "") for port, _ in ports)]
        matches = (*rules.matches, *dict.fromkeys(there))
        return replace(rules, avoids=(*rules.avoids, *own), matches=matches)

    def _port(self, port: str, address: str) -> PodTerm:
        term = self._ports.get((port, address))
        if term is None:
            says = f" on which its host port {port} is free"
            term = self._ports[port, address] = self._space.term(HOSTNAME, says=says)
        return term

    def _limit(self, kept: dict[str, PodShape] | dict[str, None]) -> None:
        """Empties `kept` if most of it must be of pods that are gone."""
        if len(kept) > 2 * len(self._view.pods) + MOST_SPARE:
            kept.clear()

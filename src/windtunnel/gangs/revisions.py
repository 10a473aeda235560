"""Going back: a set gets the pod templates of a revision that it had, and rolls them out."""

from windtunnel.core.errors import InputError
from windtunnel.gangs.commands import PatchSpec
from windtunnel.gangs.objects import PodCliqueSet, Revision
from windtunnel.gangs.templates import CliqueTemplate, SetSpec


def roll_back(owner: PodCliqueSet, number: int | None = None) -> PatchSpec:
    """The change that brings back a kept revision; without a number, the one before the last."""
    kept = owner.status.revisions
    if number is None:
        if len(kept) < 2:
            what = f"the set {owner.name} has no revision before the one that it is at"
            raise InputError(what)
        return _restored(owner, kept[-2])
    for revision in kept:
        if revision.number == number:
            return _restored(owner, revision)
    allowed = ", ".join(str(revision.number) for revision in kept)
    raise InputError(f"the set {owner.name} keeps no revision {number}", allowed=allowed)


def _restored(owner: PodCliqueSet, revision: Revision) -> PatchSpec:
    spec = owner.spec
    cliques = tuple(
        _with_pods_of(clique, revision.templates[clique.name]) for clique in spec.cliques
    )
    made = SetSpec(
        owner.replicas,
        cliques,
        spec.groups,
        spec.startup,
        revision.priority_class,
        spec.termination_delay_s,
        spec.on_all_scheduled_lost,
        spec.update,
        publish_not_ready=spec.publish_not_ready,
        pack=spec.pack,
        sharing=spec.sharing,
        claim_templates=spec.claim_templates,
        labels=spec.labels,
        annotations=spec.annotations,
        revision_limit=spec.revision_limit,
        hash=revision.hash,
    )
    return PatchSpec(owner.name, made)


def _with_pods_of(clique: CliqueTemplate, old: CliqueTemplate) -> CliqueTemplate:
    """The clique as it is wanted now, with the pods that it had then."""
    return CliqueTemplate(
        clique.name,
        clique.replicas,
        clique.min_available,
        old.pod_spec,
        old.requests,
        old.hash,
        clique.role_name,
        clique.starts_after,
        old.labels,
        old.annotations,
        old.scheduler,
        clique.scale,
        clique.pack,
        clique.sharing,
        clique.rolling,
        old.gates,
    )

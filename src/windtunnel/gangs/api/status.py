"""What the controllers remember: written to the status of objects, and read back from it.

A restarted controller knows nothing but what is written: incarnations, when something was first
scheduled, losses, the course of an update, revisions with their pod templates, terminations under
way. `written` gives JSON values, the three readers give the status that they were written from.
"""

from typing import Any

from windtunnel.gangs.objects import CliqueStatus, GroupStatus, Revision, SetStatus
from windtunnel.gangs.templates import (
    ClaimSharing,
    CliqueTemplate,
    PackDomains,
    Rolling,
    ScaleBounds,
    Share,
)

FIELDS: dict[type[Any], tuple[str, ...]] = {
    CliqueStatus: (
        "observed", "replicas", "ready", "updated", "updated_ready", "gated", "erroneous",
        "unready", "scheduled", "first_scheduled_s", "losses", "lost_rule", "update_started_s",
        "update_ended_s", "update_peak",
    ),
    GroupStatus: (
        "observed", "replicas", "scheduled", "healthy", "available", "updated",
        "first_scheduled_s", "losses", "lost_rule", "update_started_s", "update_ended_s",
        "update_peak", "revision", "incarnations", "recycled",
    ),
    SetStatus: (
        "observed_generation", "replicas", "available", "updated", "revision", "revisions",
        "update_started_s", "update_ended_s", "progressed_s", "progress", "updating", "done",
        "incarnations", "recycled", "scales",
    ),
    Revision: ("number", "hash", "templates", "priority_class"),
    CliqueTemplate: (
        "name", "replicas", "min_available", "pod_spec", "requests", "hash", "role_name",
        "starts_after", "labels", "annotations", "scheduler", "scale", "pack", "sharing",
        "rolling", "gates",
    ),
    ScaleBounds: ("minimum", "maximum", "metrics"),
    PackDomains: ("topology", "required", "preferred"),
    ClaimSharing: ("name", "namespace", "per_replica", "roles", "groups"),
    Rolling: ("max_unavailable", "max_surge", "progress_deadline_s"),
    Share: ("count", "share"),
}  # fmt: skip
_NEVER_ENDS = "never"


def written(value: object) -> Any:
    """A status, or a part of one, as JSON values; absent parts are left out."""
    fields = FIELDS.get(type(value))
    if fields is not None:
        found = {name: getattr(value, name) for name in fields}
        return {_key(name): written(one) for name, one in found.items() if one is not None}
    if isinstance(value, dict):
        return {str(key): written(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [written(one) for one in value]
    return _NEVER_ENDS if value == float("inf") else value


def clique_status(data: dict[str, Any]) -> CliqueStatus:
    status = CliqueStatus()
    _fill(status, data)
    return status


def group_status(data: dict[str, Any]) -> GroupStatus:
    status = GroupStatus()
    _fill(status, _numbered(data))
    return status


def set_status(data: dict[str, Any]) -> SetStatus:
    found = _numbered(data)
    found["revisions"] = tuple(_revision(one) for one in data.get("revisions", ()))
    for name in ("updating", "done"):
        found[name] = tuple(data.get(name, ()))
    status = SetStatus()
    _fill(status, found)
    return status


def _fill(status: object, data: dict[str, Any]) -> None:
    for name in FIELDS[type(status)]:
        if _key(name) in data:
            setattr(status, name, data[_key(name)])


def _numbered(data: dict[str, Any]) -> dict[str, Any]:
    """JSON has no numbers for keys."""
    found = dict(data)
    for name in ("incarnations", "recycled"):
        found[name] = {int(index): count for index, count in data.get(name, {}).items()}
    return found


def _revision(data: dict[str, Any]) -> Revision:
    templates = {name: _template(one) for name, one in data["templates"].items()}
    return Revision(data["number"], data["hash"], templates, data["priorityClass"])


def _template(data: dict[str, Any]) -> CliqueTemplate:
    found = _arguments(CliqueTemplate, data)
    for name in ("starts_after", "gates"):
        found[name] = tuple(found[name])
    if "scale" in found:
        bounds = _arguments(ScaleBounds, found["scale"])
        found["scale"] = ScaleBounds(**{**bounds, "metrics": tuple(bounds["metrics"])})
    if "pack" in found:
        found["pack"] = PackDomains(**_arguments(PackDomains, found["pack"]))
    if "rolling" in found:
        found["rolling"] = _rolling(found["rolling"])
    found["sharing"] = tuple(_sharing(one) for one in found["sharing"])
    return CliqueTemplate(**found)


def _rolling(data: dict[str, Any]) -> Rolling:
    found = _arguments(Rolling, data)
    for name in ("max_unavailable", "max_surge"):
        if name in found:
            found[name] = Share(**_arguments(Share, found[name]))
    if found["progress_deadline_s"] == _NEVER_ENDS:
        found["progress_deadline_s"] = float("inf")
    return Rolling(**found)


def _sharing(data: dict[str, Any]) -> ClaimSharing:
    found = _arguments(ClaimSharing, data)
    return ClaimSharing(
        **{**found, "roles": tuple(found["roles"]), "groups": tuple(found["groups"])}
    )


def _arguments(of: type[Any], data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[_key(name)] for name in FIELDS[of] if _key(name) in data}


def _key(name: str) -> str:
    """As Kubernetes writes it: `updateStartedS`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

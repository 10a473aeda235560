"""Admits the next task in one step, as a scheduler does."""

from windtunnel.admission.leases import TaskLease
from windtunnel.admission.tasks.admission import TaskAdmission


def admit_next(tasks: TaskAdmission, now: float = 0.0) -> TaskLease | None:
    """The lease of the next task, which leaves the queue; None when none may start."""
    selection = tasks.select()
    return None if selection is None else tasks.admit(selection, now)

"""Whether a seed changes anything: a replay under a policy without random draws is always the same.

Runs with other seeds are then the same run again. Intervals from them would have no width, and
would make the smallest difference look significant.
"""

from windtunnel.routing import build as routing
from windtunnel.twin.kubernetes.times import EXPONENTIAL
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.settings.sources import SourceSettings


def draws(plan: ScenarioPlan) -> bool:
    """Whether anything in a run depends on its seed."""
    if routing.draws(plan.router, plan.folder) or _scaling_draws(plan):
        return True
    if _faults_draw(plan) or _infrastructure_draws(plan):
        return True
    return any(_source_draws(source) for source in plan.sources)


def _scaling_draws(plan: ScenarioPlan) -> bool:
    """Whether start-up times or actuation delays are random."""
    scaling = plan.scaling
    if scaling is None:
        return False
    return plan.serving.load_time.stddev_s > 0.0 or scaling.timing.actuation_delay.stddev_s > 0.0


def _faults_draw(plan: ScenarioPlan) -> bool:
    """Whether faults have random times or subjects, or their servers random restart times."""
    return any(fault.is_random or plan.serving.load_time.stddev_s > 0.0 for fault in plan.faults)


def _infrastructure_draws(plan: ScenarioPlan) -> bool:
    """Whether machines or pods take random times."""
    if not plan.on_machines:
        return False
    fleet = plan.sections.fleet
    delays = plan.pod_times.delays(plan.pod_load)
    if any(delay.spread > 0.0 or delay.kind == EXPONENTIAL for delay in delays.values()):
        return True
    return fleet is not None and any(pool.provisioning.cv > 0.0 for pool in fleet.pools)


def _source_draws(source: SourceSettings) -> bool:
    """Whether a source is random: identical requests at equal gaps are as certain as a trace."""
    arrivals, prefix = source.arrivals.drawn(), source.prefix
    if source.session is not None or source.members > 1 or len(source.adapter_weights) > 1:
        return True
    if any(extra is not None and extra.share < 1.0 for extra in (source.media, source.reasoning)):
        return True
    if any(lengths.distribution != "constant" for lengths in source.lengths().values()):
        return True
    if prefix is not None and prefix.groups > 1:
        return True
    if arrivals.think is not None:
        return arrivals.think.distribution != "constant"
    return arrivals.cv > 0.0

"""Builds the faults of a run from their plans. A kind is a row in `_effect`."""

from typing import Final

from windtunnel.core.random import Stream, Streams
from windtunnel.core.telemetry import Telemetry
from windtunnel.twin.autoscaling import Autoscaling
from windtunnel.twin.cluster import Cluster
from windtunnel.twin.faults.conditions import Gauge
from windtunnel.twin.faults.controllers import ClockSkew, ControllerRestart
from windtunnel.twin.faults.drill import Drill
from windtunnel.twin.faults.effects import Effect, EngineCrash, Pace, SlowMachine
from windtunnel.twin.faults.leaking import KvLeak
from windtunnel.twin.faults.ledger import Ledger
from windtunnel.twin.faults.looping import CrashLoop
from windtunnel.twin.faults.machines import (
    MachineLoss,
    ProviderOutage,
    QuotaExhaustion,
    SpotReclaim,
)
from windtunnel.twin.faults.plan import (
    BlackoutPlan,
    CrashPlan,
    FaultPlan,
    LagPlan,
    LeakPlan,
    LoopPlan,
    MachineLossPlan,
    OutagePlan,
    PartitionPlan,
    QuotaPlan,
    ReclaimPlan,
    RestartPlan,
    SkewPlan,
    SlowPlan,
    StormPlan,
)
from windtunnel.twin.faults.refusing import RateLimitStorm
from windtunnel.twin.faults.schedule import Schedule
from windtunnel.twin.faults.sight import MetricBlackout, MetricLag, RouterPartition, Sight
from windtunnel.twin.ground.ground import Ground
from windtunnel.twin.ground.mishaps import Mishaps
from windtunnel.twin.lifecycle import Lifecycle
from windtunnel.twin.recorder import Recorder
from windtunnel.twin.storms import Storms


class Faults:
    """The faults of one run: what is planned, and what has happened."""

    def __init__(self, schedule: Schedule, ledger: Ledger, storms: Storms) -> None:
        self.storms: Final = storms
        self.schedule: Final = schedule
        self.ledger: Final = ledger


class Workshop:
    """What faults are made of: the parts of a run that they act on."""

    def __init__(
        self,
        cluster: Cluster,
        lifecycle: Lifecycle,
        autoscaling: Autoscaling | None,
        ground: Ground | None,
        schedule: Schedule,
    ) -> None:
        self._ground: Final = ground
        self._autoscaling: Final = autoscaling
        self._sight: Final = Sight(cluster, autoscaling)
        self._cluster: Final = cluster
        self._lifecycle: Final = lifecycle
        self._schedule: Final = schedule
        self._pace: Final = Pace(cluster)
        self.storms: Final = Storms()

    def effect(self, plan: FaultPlan, stream: Stream) -> Effect:
        """What a fault does; `stream` draws whom it befalls."""
        what = plan.what
        match what:
            case SlowPlan():
                return SlowMachine(what, self._cluster, self._pace, stream)
            case CrashPlan():
                return EngineCrash(what, self._cluster, self._lifecycle, stream)
            case LoopPlan():
                return CrashLoop(what, self._cluster, self._lifecycle, self._schedule, stream)
            case PartitionPlan():
                return RouterPartition(what, self._cluster, self._lifecycle, stream)
            case LeakPlan():
                return KvLeak(what, self._cluster, self._lifecycle, self._schedule, stream)
            case StormPlan():
                return RateLimitStorm(what, self._cluster, self.storms, stream)
            case MachineLossPlan() | ReclaimPlan() | OutagePlan() | QuotaPlan():
                return self._machine_effect(what, stream)
            case _:
                return self._control_effect(what)

    def _control_effect(self, what: BlackoutPlan | LagPlan | SkewPlan | RestartPlan) -> Effect:
        match what:
            case BlackoutPlan():
                return MetricBlackout(what, self._sight)
            case LagPlan():
                return MetricLag(what, self._sight)
            case SkewPlan():
                assert self._autoscaling is not None, "refused when it is loaded"
                return ClockSkew(what, self._autoscaling)
            case RestartPlan():
                return ControllerRestart(what, self._autoscaling, self._lifecycle.ground)

    def _machine_effect(
        self, what: MachineLossPlan | ReclaimPlan | OutagePlan | QuotaPlan, stream: Stream
    ) -> Effect:
        assert self._ground is not None, "refused when it is loaded"
        mishaps = Mishaps(self._ground)
        match what:
            case MachineLossPlan():
                return MachineLoss(what, mishaps, stream)
            case ReclaimPlan():
                return SpotReclaim(what, mishaps, self._schedule, stream)
            case OutagePlan():
                return ProviderOutage(what, mishaps)
            case QuotaPlan():
                return QuotaExhaustion(what, mishaps)


def build_faults(
    plans: tuple[FaultPlan, ...],
    cluster: Cluster,
    lifecycle: Lifecycle,
    autoscaling: Autoscaling | None,
    ground: Ground | None,
    recorder: Recorder,
    streams: Streams,
    telemetry: Telemetry,
) -> Faults | None:
    """None where nothing goes wrong: nothing is asked then, and nothing is paid."""
    if not plans:
        return None
    schedule, ledger = Schedule(lifecycle.timetable), Ledger(telemetry)
    workshop = Workshop(cluster, lifecycle, autoscaling, ground, schedule)
    for plan in plans:
        effect = workshop.effect(plan, streams[f"faults.{plan.name}.who"])
        gauge = Gauge(cluster, recorder)
        times = streams[f"faults.{plan.name}"]
        Drill(plan, effect, schedule, ledger, gauge, times).start()
    return Faults(schedule, ledger, workshop.storms)

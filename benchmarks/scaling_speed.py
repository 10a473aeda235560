"""A tick of the autoscaler over a large fleet: 1,000 models, 10 variants each, 10,000 replicas."""

import gc

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.core.random import Stream
from windtunnel.scaling.policies.saturation.policy import KvSaturationSettings
from windtunnel.scaling.scaler import Scaler
from windtunnel.scaling.settings import RateSettings
from windtunnel.scaling.snapshot import (
    Flow,
    Model,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    RequestLengths,
    Snapshot,
    Variant,
)

MODELS = 1_000
VARIANTS = 10
PROMISED_S = 0.020


def fleet(stream: Stream) -> Snapshot:
    """Every variant has one replica; loads are random, so that some models grow and some shrink."""
    models = []
    for number in range(MODELS):
        load = stream.uniform()
        variants = []
        for kind in range(VARIANTS):
            replica = ReplicaView(
                f"m{number}-{kind}-0",
                waiting=int(8 * load * stream.uniform()),
                running=int(64 * load),
                kv_tokens_used=100_000.0 * load,
                kv_tokens=100_000.0,
            )
            variants.append(
                Variant(
                    f"v{kind}",
                    spec=ReplicaSpec(
                        accelerator=f"kind-{kind % 4}",
                        price_per_hour=2.0 + kind,
                        kv_tokens=100_000.0,
                        max_num_seqs=256,
                        max_num_batched_tokens=8192,
                    ),
                    minimum=0,
                    maximum=20,
                    counts=ReplicaCounts(target=1),
                    replicas=[replica],
                )
            )
        flow = Flow(
            15.0,
            arrived=100,
            completed=100,
            lengths=RequestLengths(prompt_tokens=900.0, output_tokens=250.0),
        )
        models.append(Model(f"m{number}", variants, flow=flow))
    return Snapshot(0.0, models, {f"kind-{kind}": 2_000 for kind in range(4)})


def scaler_for(snapshot: Snapshot) -> Scaler:
    settings = KvSaturationSettings(policy="saturation", rate=RateSettings(up=4, down=4))
    names = [model.name for model in snapshot.models]
    return Scaler(dict.fromkeys(names, settings.build()), settings.oldest_s)


def main() -> None:
    insist_on_compiled()
    snapshot = fleet(Stream(1, "benchmark.scaling"))
    scaler = scaler_for(snapshot)
    decisions = scaler.tick(snapshot, 0.0)
    assert len(decisions) == MODELS * VARIANTS
    assert any(decision.target > decision.current for decision in decisions)
    gc.disable()  # as the twin does while it runs
    report(
        Claim(
            f"a tick over {MODELS:,} models of {VARIANTS} variants, compiled",
            ours=1e3 * least_cpu_s(lambda: scaler.tick(snapshot, 15.0), 7),
            baseline=1e3 * PROMISED_S,
            most=1.0,
            unit="CPU ms",
            against="the target",
        )
    )


if __name__ == "__main__":
    main()

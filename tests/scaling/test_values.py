"""What goes into an autoscaler and what comes out are plain values."""

from windtunnel.scaling.decision import Decision, Limit
from windtunnel.scaling.snapshot import ReplicaCounts, ReplicaView, Variant


def test_a_variant_counts_its_replicas_by_state() -> None:
    variant = Variant(
        "h100",
        replicas=[ReplicaView("h100-0")],
        counts=ReplicaCounts(starting=2, pending=1, draining=4),
    )
    assert (variant.ready, variant.coming) == (1, 3)


def test_a_replica_without_a_cache_uses_none_of_it() -> None:
    assert ReplicaView("a").kv_used == 0.0
    assert ReplicaView("b", kv_tokens_used=25.0, kv_tokens=100.0).kv_used == 0.25


def test_a_decision_is_plain_data() -> None:
    limit = Limit("maximum", 9, 8, 9, "At most 8 replicas are allowed.")
    decision = Decision(
        "m",
        "v",
        current=8,
        recommended=9,
        target=8,
        reason="Full.",
        metrics={"kv_used": 0.9},
        limits=[limit],
    )
    assert not decision.changes
    assert decision.as_data()["limits"] == [
        {
            "name": "maximum",
            "before": 9,
            "after": 8,
            "without": 9,
            "reason": "At most 8 replicas are allowed.",
        }
    ]

"""Shares in manifests, which have no percentages."""

from windtunnel.scaling.manifests.fields import IN_TEXT, Like
from windtunnel.scaling.policies.aibrix import AibrixSettings
from windtunnel.scaling.policies.spare_capacity import SpareCapacitySettings


def test_a_manifest_is_told_of_numbers_only() -> None:
    assert Like(AibrixSettings, "up_tolerance", IN_TEXT).allowed == "a number from 0.0 to 1.0"
    above = Like(SpareCapacitySettings, "kv_threshold").allowed
    assert above == "a number above 0.0, up to 1.0"

"""What Kthena's admission says of a disaggregated target."""

import pytest

from tests.scaling.manifests.texts import bent, disaggregated, faults

ROLES = "spec/disaggregatedTarget/roles"
RATIO = "spec/disaggregatedTarget/ratioConstraint"
ROLE_NAME = (
    "role name must refer to a ModelServing.spec.template.roles[].name and must not be empty"
)
DECODE = f"{ROLES}/decode"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            f"{DECODE}/minReplicas",
            17,
            [f"{DECODE}/minReplicas: minReplicas must be <= maxReplicas"],
        ),
        (
            "spec/metrics",
            [],
            [
                f"{ROLES}/{role}/{rest}"
                for role in ("prefill", "decode")
                for rest in (
                    "metrics: metrics must be set on every non-fixed role when spec.metrics "
                    "is empty",
                    "metricSources/kv: metricSources key must match an effective metric name",
                )
            ],
        ),
        (
            f"{DECODE}/metricSources",
            {},
            [
                f"{DECODE}/metricSources: metricSources must be set on every non-fixed role when "
                "metrics are configured"
            ],
        ),
        (
            f"{DECODE}/metricSources/other",
            {"pod": {}},
            [
                f"{DECODE}/metricSources/other: "
                "metricSources key must match an effective metric name"
            ],
        ),
        (
            f"{DECODE}/metrics",
            [{"name": "kv", "targetValue": 0}],
            [
                f"{DECODE}/metrics[0]/targetValue: metric target value must be greater than 0 "
                "and not equal to infinity"
            ],
        ),
        (
            f"{RATIO}/denominatorRole",
            "prefill",
            [f"{RATIO}: numeratorRole and denominatorRole must differ"],
        ),
        (
            f"{RATIO}/numeratorRole",
            "x",
            [f"{RATIO}/numeratorRole: numeratorRole must exist in roles"],
        ),
        (
            f"{RATIO}/denominatorRole",
            "x",
            [f"{RATIO}/denominatorRole: denominatorRole must exist in roles"],
        ),
        (f"{RATIO}/minRatio", "2", [f"{RATIO}/minRatio: minRatio must be <= maxRatio"]),
        (f"{RATIO}/minRatio", "-1", [f"{RATIO}: minRatio must be >= 0 and maxRatio must be > 0"]),
        (f"{RATIO}/maxRatio", float("inf"), [f"{RATIO}: ratio values must be finite"]),
        (
            f"{DECODE}/minReplicas",
            0,
            [f"{RATIO}: ratio roles must be scalable-to-zero together"],
        ),
        (
            ROLES,
            {
                "prefill": {"minReplicas": 3, "maxReplicas": 3},
                "decode": {"minReplicas": 4, "maxReplicas": 4},
            },
            [],
        ),
        (
            f"{DECODE}/maxReplicas",
            1,
            [],
        ),
        (
            ROLES,
            {"prefill": {"minReplicas": 2, "maxReplicas": 2}},
            [
                f"{ROLES}: roles must contain at least two entries when ratioConstraint is "
                "configured",
                f"{RATIO}/denominatorRole: denominatorRole must exist in roles",
            ],
        ),
        (
            ROLES,
            {
                "prefill": {"minReplicas": 6, "maxReplicas": 6},
                "decode": {"minReplicas": 4, "maxReplicas": 4},
            },
            [f"{RATIO}: ratioConstraint is not achievable within role replica bounds"],
        ),
        (
            ROLES,
            {
                "prefill": {"minReplicas": 1, "maxReplicas": 1},
                "decode": {"minReplicas": 9, "maxReplicas": 9},
            },
            [f"{RATIO}: ratioConstraint is not achievable within role replica bounds"],
        ),
    ],
)
def test_43_each_rule_of_a_disaggregated_policy(path: str, value: object, said: list[str]) -> None:
    found = faults(bent(disaggregated(), path, value))
    assert found == [_dotted(sentence) for sentence in said]


def _dotted(sentence: str) -> str:
    place, what = sentence.split(": ", 1)
    return f"{place.replace('/', '.')}: {what}"


def test_30_a_band_without_whole_numbers_is_refused() -> None:
    manifest = bent(disaggregated(), f"{RATIO}/minRatio", "600m")
    bent(manifest, f"{RATIO}/maxRatio", "650m")
    for role in ("prefill", "decode"):
        bent(manifest, f"{ROLES}/{role}/maxReplicas", 2)
    place = "spec.disaggregatedTarget.ratioConstraint"
    assert faults(manifest) == [
        f"{place}: no whole numbers of replicas within the bounds have such a ratio"
    ]


def test_43_a_role_without_a_name() -> None:
    manifest = disaggregated()
    roles = manifest["spec"]["disaggregatedTarget"]["roles"]
    roles[""] = roles.pop("decode")
    bent(manifest, f"{RATIO}/denominatorRole", "")
    assert f"spec.disaggregatedTarget.roles.: {ROLE_NAME}" in faults(manifest)

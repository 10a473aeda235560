"""Whatever is written in a manifest, the answer is an assignment or a sentence."""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.scaling.manifests.test_kthena import EARLIER
from tests.scaling.manifests.test_more_peers import AIBRIX, DYNAMO, WVA
from tests.scaling.manifests.test_peers import HPA, KEDA, KNATIVE
from tests.scaling.manifests.texts import disaggregated, heterogeneous, homogeneous, read
from windtunnel.core.errors import InputError
from windtunnel.scaling.build import ScalingSetup, build_scaler
from windtunnel.scaling.settings import ScalerTiming

SOUND: list[dict[str, Any]] = [
    homogeneous(),
    heterogeneous(),
    disaggregated(),
    *(yaml.safe_load(text) for text in (HPA, KEDA, KNATIVE, AIBRIX, DYNAMO)),
    *yaml.safe_load_all(WVA),
]
JUNK: list[Any] = [None, True, 0, -1, 1.5, 10**9, "", "x", "10", "5s", [], ["a"], {}, {"a": 1}]


def paths(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The places of all values."""
    below = node.items() if isinstance(node, dict) else enumerate(node)
    found: list[tuple[str | int, ...]] = []
    for key, value in below:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += paths(value, (*path, key))
    return found


PLACES = [(index, path) for index, sound in enumerate(SOUND) for path in paths(sound)]


RATIO = next(place for place in PLACES if place[1][-1] == "maxRatio")


@example(place=RATIO, junk=1_000_000_000, taken=False)
@given(st.sampled_from(PLACES), st.sampled_from(JUNK), st.booleans())
def test_junk_is_told(place: tuple[int, tuple[str | int, ...]], junk: Any, taken: bool) -> None:
    index, (*inside, last) = place
    manifest = copy.deepcopy(SOUND[index])
    node: Any = manifest
    for key in inside:
        node = node[key]
    if taken:
        del node[last]
    else:
        node[last] = junk
    said, found = "", []
    try:
        found = read(manifest)
    except InputError as error:
        said = str(error)
    assert found or "autoscaling.yaml" in said
    if found:
        build_scaler(ScalingSetup(ScalerTiming(), tuple(found), {}), ["m"])


@pytest.mark.parametrize(
    "text",
    ["", "- a", "a: &x 1\nb: *y", "kind: [", "kind: !!python/object:os.system x", EARLIER * 2],
)
def test_what_is_no_file_of_manifests(text: str) -> None:
    with pytest.raises(InputError):
        read(text)

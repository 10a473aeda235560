"""Numbers of a snapshot that cannot be."""

import math

import pytest

from windtunnel.scaling.snapshot import Model, Snapshot, Variant, believable


@pytest.mark.parametrize("wrong", [-5.0, math.nan, math.inf])
def test_an_answer_that_cannot_be_is_no_answer(wrong: float) -> None:
    model = Model("m", variants=[Variant("main", external={"wrong": wrong, "right": 2.0})])
    (cleaned,) = believable(Snapshot(0.0, [model])).models
    assert cleaned.variants[0].external == {"right": 2.0}

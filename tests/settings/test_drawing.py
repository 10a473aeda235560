"""Values that are drawn from the declarations of settings."""

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.core.random import Stream
from windtunnel.settings.drawing import Dice, Values, draw_section
from windtunnel.settings.fields import Duration, Flag, Number, Share, Text, Whole
from windtunnel.settings.section import Section


class Options(Section):
    """Fields of every sort."""

    order: Literal["fifo", "lifo"] = "fifo"
    eager: Annotated[bool, Flag()] = False
    count: Annotated[int, Whole(1, 50)] = 8
    share: Annotated[float, Share(above=True)] = 0.5
    factor: Annotated[float, Number(1, 9, above=True)] | None = Field(default=1.5)
    wait_s: Annotated[float, Duration("1s", "20s")] = 10.0
    unset: Annotated[float, Duration("0s", "1h")] | None = None
    label: Annotated[str, Text("any text")] = "none"


def drawn(*names: str) -> list[Values]:
    return [draw_section(Dice(Stream(seed, "drawn")), Options, names) for seed in range(200)]


def test_what_is_drawn_is_read() -> None:
    names = tuple(Options.model_fields)
    for values in drawn(*names):
        Options.read(values)
        assert "unset" not in values
        assert "label" not in values


def test_every_word_and_many_numbers_are_drawn() -> None:
    assert {values["order"] for values in drawn("order") if values} == {"fifo", "lifo"}
    assert {values["eager"] for values in drawn("eager") if values} == {True, False}
    waits = {values["wait"] for values in drawn("wait_s") if values}
    assert len(waits) > 20
    assert 2.0 <= min(waits) < 10.0 < max(waits) <= 20.0
    assert all(1.0 < values["factor"] <= 7.5 for values in drawn("factor") if values)


def test_only_the_named_fields_are_drawn_and_each_may_be_left_out() -> None:
    found = drawn("count", "share")
    assert {tuple(values) for values in found} == {(), ("count",), ("share",), ("count", "share")}

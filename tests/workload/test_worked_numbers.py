"""The numbers that docs/explanation/workload.md works out are what the code makes of them."""

from itertools import pairwise

import pytest

from tests.workload.plans import Conversation, Prefix, World, pause, source
from windtunnel.core.random import Stream
from windtunnel.workload.arrivals import ArrivalTimes
from windtunnel.workload.distributions import Arrivals, Curve, Lengths
from windtunnel.workload.moments import asked_mean, drawn_mean


def test_the_two_hundredth_request_under_a_curve() -> None:
    curve = Curve(points=((0.0, 1.0), (10.0, 1.0), (20.0, 3.0)))
    draws = ArrivalTimes(Arrivals("constant", 10.0, 0.0), curve, Stream(0, "x"))
    times = [draws.next() for _ in range(300)]
    assert times[199] == pytest.approx(16.18, abs=0.005)
    assert times[299] == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("process", "short", "long"), [("gamma", 0.64, 0.023), ("weibull", 0.46, 0.017)]
)
def test_gaps_of_equal_variation_and_different_shape(
    process: str, short: float, long: float
) -> None:
    draws = ArrivalTimes(Arrivals(process, 1.0, 3.0), None, Stream(0, "x"))
    gaps = [later - earlier for earlier, later in pairwise(draws.next() for _ in range(40_000))]
    assert sum(gap < 0.1 for gap in gaps) / len(gaps) == pytest.approx(short, abs=0.01)
    assert sum(gap > 10 for gap in gaps) / len(gaps) == pytest.approx(long, abs=0.003)


def test_means_within_bounds() -> None:
    assert drawn_mean(Lengths("lognormal", 900.0, 0.9, 16, 16384)) == pytest.approx(900, abs=0.5)
    assert drawn_mean(Lengths("lognormal", 900.0, 0.9, 16, 1000)) == pytest.approx(663, abs=0.5)
    tailed = Lengths(
        "pareto-lognormal", 900.0, 0.9, 16, 32768, tail_alpha=1.5, tail_start=4000, tail_share=0.05
    )
    assert asked_mean(tailed) == pytest.approx(1455)
    assert drawn_mean(tailed) == pytest.approx(1315, abs=0.5)


def test_the_prompts_of_a_conversation() -> None:
    def just(tokens: int) -> Lengths:
        return Lengths("constant", float(tokens), 0.0, tokens, tokens)

    talk = Conversation(just(7), pause(1.0), accumulates=True)
    plan = source(
        count=1, prompt=just(300), output=just(250), prefix=Prefix(800, 1), conversation=talk
    )
    prompts = [request.prompt_tokens for request in World((plan,)).requests]
    assert [prompts[turn - 1] for turn in (1, 2, 7)] == [1100, 1650, 4400]

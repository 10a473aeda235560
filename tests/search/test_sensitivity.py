"""Sensitivity: indices of figures that are known, bars that say so, and what is refused."""

import html
import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import windtunnel as wt
from tests.twin.runs import one_server
from windtunnel.cli.main import main
from windtunnel.core.errors import WindtunnelError
from windtunnel.core.system.extras import install_command
from windtunnel.report.page.searches.sensitivity import sensitivity_page
from windtunnel.report.terminal.searches.sensitivity import show
from windtunnel.search.execution.workers import FailedRun, MeasuredRun, Outcome
from windtunnel.search.point import Origin
from windtunnel.search.sensitivity import Study, indices_of, plan_study
from windtunnel.search.sweep.axes import axes_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("SALib") is None, reason="SALib is not installed"
)

PROMPT, OUTPUT = "workload.0.prompt_tokens", "workload.0.output_tokens"
POLICY = "serving.router.policy"
METRIC = "latency.e2e.mean"
VARIED = (f"{PROMPT}=10..110", f"{OUTPUT}=2..42", f"{POLICY}=round-robin,least-loaded")


def a_study(method: str, samples: int, *varied: str) -> Study:
    origin = Origin(one_server(), "one.yaml")
    return plan_study(origin, axes_of(varied or VARIED), METRIC, method=method, samples=samples)


def outcomes_of(study: Study, figure: Callable[[dict[str, Any]], float]) -> list[Outcome]:
    """As if every point had run, and its figure were this function of its settings."""
    points = [dict(settings) for settings in study.sweep.points]
    return [MeasuredRun({METRIC: figure(points[run.point])}) for run in study.sweep.runs]


def straight(settings: dict[str, Any]) -> float:
    return 0.01 * float(settings[PROMPT]) - 0.1 * float(settings[OUTPUT])


def test_morris_finds_how_far_a_straight_figure_goes() -> None:
    study = a_study("morris", 8)
    found = indices_of(study, outcomes_of(study, straight))
    by_path = {one["path"]: one for one in found["settings"]}
    # Whole numbers make steps a little uneven; across its range each moves the figure so far.
    assert by_path[PROMPT]["mu"] == pytest.approx(1.0)
    assert by_path[OUTPUT]["mu"] == pytest.approx(-4.0)
    assert by_path[OUTPUT]["mu_star"] == pytest.approx(4.0)
    assert by_path[POLICY]["mu_star"] == 0.0
    assert [one["path"] for one in found["settings"]] == [OUTPUT, PROMPT, POLICY]
    assert found["points"] == len(study.sweep.points) <= 8 * 4


@pytest.mark.parametrize(
    ("varied", "across"),
    [
        ("1..2", 1.0),
        ("1..3", 2.0),
        ("1..4", 3.0),
        ("1..7", 6.0),
        ("1,2,4,8", 7.0),
        ("1..3000", 2999.0),
    ],
)
def test_effects_of_whole_numbers_are_per_step_that_was_taken(varied: str, across: float) -> None:
    study = a_study("morris", 6, f"{PROMPT}={varied}", f"{OUTPUT}=2..42")
    levels = study.sweep.axes[0].levels

    def place(settings: dict[str, Any]) -> float:
        value = settings[PROMPT]
        if levels is None:
            return float(value) - 1.0
        return across * levels.index(value) / (len(levels) - 1)

    found = indices_of(study, outcomes_of(study, place))
    first = next(one for one in found["settings"] if one["path"] == PROMPT)
    assert first["mu"] == pytest.approx(across)
    assert first["mu_star"] == pytest.approx(across)
    assert first["sigma"] == pytest.approx(0.0, abs=1e-9 * across)
    assert first["confidence"] == pytest.approx(0.0, abs=1e-9 * across)


def test_sobol_shares_out_the_variance_of_a_straight_figure() -> None:
    study = a_study("sobol", 64)
    found = indices_of(study, outcomes_of(study, straight))
    shares = {one["path"]: one for one in found["settings"]}
    for path, expected in ((PROMPT, 1.0 / 17.0), (OUTPUT, 16.0 / 17.0), (POLICY, 0.0)):
        assert shares[path]["total"] == pytest.approx(expected, abs=0.1)
        assert shares[path]["first"] == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("method", ["morris", "sobol"])
def test_a_figure_that_never_changes_depends_on_nothing(method: str) -> None:
    study = a_study(method, 4)
    found = indices_of(study, outcomes_of(study, lambda _: 0.5))
    for one in found["settings"]:
        assert {v for v in one.values() if isinstance(v, float)} == {0.0}
    assert "Nothing that was varied changes it." in text(found)
    assert "nan" not in sensitivity_page(found)


def test_the_same_study_has_the_same_points() -> None:
    assert a_study("morris", 5) == a_study("morris", 5)
    assert a_study("sobol", 8).sweep.points == a_study("sobol", 8).sweep.points


def test_points_that_come_to_the_same_values_run_once() -> None:
    study = a_study("morris", 20, f"{POLICY}=round-robin,least-loaded", f"{PROMPT}=1..2")
    assert len(study.sweep.points) <= 4
    assert len(study.whose) == 60


def text(study: dict[str, Any], width: int = 80) -> str:
    file = io.StringIO()
    show(study, Path("runs/x"), Console(file=file, width=width, highlight=False, _environ={}))
    return file.getvalue()


def test_bars_say_what_matters_which_way_and_how_sure() -> None:
    study = a_study("morris", 8)
    found = indices_of(study, outcomes_of(study, straight))
    lines = text(found).splitlines()
    assert lines[0].startswith("E2E mean: ")
    assert lines[3].startswith("output_tokens  " + "\N{FULL BLOCK}" * 24)
    assert lines[3].rstrip().endswith("down")
    assert lines[4].startswith("prompt_tokens  " + "\N{FULL BLOCK}" * 6)
    assert lines[5].rstrip().endswith("no effect")
    assert lines[-1] == "open runs/x/report.html"
    for width in (20, 40, 60, 120):
        assert "\N{HORIZONTAL ELLIPSIS}" not in text(found, width)
    page = html.unescape(sensitivity_page(found))
    assert page.count('class="fill"') == 3
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "style=" not in page


def test_shares_move_by_points() -> None:
    found = {**indices_of(study := a_study("morris", 4), outcomes_of(study, straight))}
    found["metric"] = {"name": "slo.standard.attained", "unit": "share"}
    first = {**found["settings"][0], "mu_star": 0.06, "confidence": 0.039}
    found["settings"] = [first]
    assert "6.0 ±3.9 points" in text(found)
    assert "6.0 ±3.9 points" in html.unescape(sensitivity_page(found))


def test_words_have_no_direction() -> None:
    study = a_study("morris", 4)
    found = indices_of(study, outcomes_of(study, lambda s: len(s[POLICY]) * 0.1))
    assert found["settings"][0]["path"] == POLICY
    assert found["settings"][0]["mu_star"] > 0.0
    assert [one["ordered"] for one in found["settings"]] == [False, True, True]
    assert text(found).splitlines()[3].split()[-1] in ("-", "depends")


def test_sobol_with_too_few_samples_says_how_vague_its_shares_are() -> None:
    study = a_study("sobol", 2)
    found = indices_of(study, outcomes_of(study, lambda s: float(s[PROMPT])))
    first = {**found["settings"][0], "total": 0.9, "total_confidence": 0.1}
    sure = {**found, "settings": [first, *({**first, "total": 0.1} for _ in range(2))]}
    assert "too few" not in text(sure)
    vague = {**first, "total": 0.2, "total_confidence": 0.34}
    said = text({**sure, "settings": [first, vague, vague]})
    assert "2 samples are too few: shares are known to ±0.34; try --samples 8" in said


def test_samples_that_show_no_share_are_too_few_where_the_figure_changes() -> None:
    """With two samples an index can be zero for a setting that decides everything."""
    study = a_study("sobol", 2)
    found = indices_of(study, outcomes_of(study, lambda s: float(s[PROMPT])))
    none = {"total": 0.0, "total_confidence": 0.0, "first": 0.0, "first_confidence": 0.0}
    settings = [{**one, **none} for one in found["settings"]]
    said = text({**found, "settings": settings})
    assert "2 samples are too few: try --samples 8" in said
    assert "Nothing that was varied" not in said
    flat = {**found, "settings": settings, "low": 1.0, "high": 1.0}
    assert "Nothing that was varied changes it" in text(flat)


def test_too_few_samples_are_said() -> None:
    study = a_study("morris", 2)
    found = indices_of(study, outcomes_of(study, lambda s: float(s[PROMPT] > 75)))
    wide = [{**one, "confidence": 9.0} for one in found["settings"]]
    assert "2 samples are too few: try --samples 8" in text({**found, "settings": wide})


def test_a_point_without_the_figure_is_a_sentence() -> None:
    study = a_study("morris", 2)
    outcomes = outcomes_of(study, straight)
    with pytest.raises(WindtunnelError, match="points failed: too dark"):
        indices_of(study, [FailedRun("too dark"), *outcomes[1:]])
    with pytest.raises(WindtunnelError, match="points have no latency"):
        indices_of(study, [MeasuredRun({METRIC: None}), *outcomes[1:]])


def test_without_salib_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "SALib" else real(name)
    )
    with pytest.raises(WindtunnelError) as raised:
        a_study("morris", 2)
    assert install_command("search") in str(raised.value)


@pytest.fixture
def command(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    (tmp_path / "one.yaml").write_text(one_server(count=2))
    monkeypatch.chdir(tmp_path)

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["sensitivity", "one.yaml", *args])
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


ASKED = [*(part for text in VARIED for part in ("--vary", text)), "--samples", "2"]


def test_the_command_shows_bars_and_leaves_a_folder(
    command: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = command(*ASKED, "--metric", METRIC)
    assert (code, err) == (0, "")
    assert "output_tokens" in out
    folder = Path("runs/sensitivity-one")
    names = ["points", "report.html", "results.parquet", "sweep.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    code, out, _ = command(*ASKED, "--metric", METRIC, "--json", "-")
    assert code == 0
    table = wt.sensitivity("one.yaml", dict(t.split("=") for t in VARIED), METRIC, samples=2)
    assert table.rows == json.loads(out)["settings"]
    assert len(table.points) == json.loads(out)["runs"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "Missing option '--metric'"),
        (["--metric", "latency.e2e.men"], "there is no figure 'latency.e2e.men' (did you mean"),
        (["--metric", METRIC, "--method", "sobol", "--samples", "12"], "allowed: 8 or 16"),
        (["--metric", METRIC, "--samples", "1"], "--samples: 1 samples; allowed: 2 to 4,096"),
    ],
)
def test_bad_input_is_a_sentence(
    command: Callable[..., tuple[int, str, str]], args: list[str], sentence: str
) -> None:
    code, out, err = command(*ASKED[:-2], *args)
    assert (code, out) == (2, "")
    assert sentence in err
    assert not Path("runs").exists()
